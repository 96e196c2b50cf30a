"""Rows in columns: the batches that steps of a pipeline pass on, and functions over their rows."""
