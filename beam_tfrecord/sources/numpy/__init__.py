"""The NumPy source, for files and for arrays in memory; `source` is its main module."""
