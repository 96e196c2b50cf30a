"""Opens written datasets and other TFRecord files: their rows, and single records."""
