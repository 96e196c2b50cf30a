"""Selects rows of a source: by a condition in SQL (a filter), and by a hash of their places.

`parse` turns the text of a filter into the nodes of `nodes`, `evaluate` decides the rows of a
batch, `prune` finds parts of a file that cannot have a matching row, and `select` is what sources
have. Only `parse` imports sqlglot, and only in the process that starts a job.
"""
