"""Selects rows of a source: by a condition in SQL (a filter), and by a hash of their positions.

`parse` reads the text of a filter, `evaluate` decides the rows, and `select` is what sources have.
The same conditions name splits.
Only `parse` imports sqlglot, and only in the process that starts a job.
"""
