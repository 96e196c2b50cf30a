"""Publishes finished files as a dataset or a stage: all at the same moment, and exactly once."""
