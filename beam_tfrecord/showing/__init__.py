"""What a dataset is, said to people and as code that reads it."""
