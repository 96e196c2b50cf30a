"""Reads images of directories or of tables of paths; `source` is the main module."""
