"""What is done to a dataset that is there: verify, compare, repair."""
