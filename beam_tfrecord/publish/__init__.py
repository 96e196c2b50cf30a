"""Publishing: finished files become a dataset or a stage, at once and once."""
