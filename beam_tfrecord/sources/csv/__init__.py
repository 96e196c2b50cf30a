"""Reads CSV files; `source` is the main module."""
