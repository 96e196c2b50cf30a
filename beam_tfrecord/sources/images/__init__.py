"""The images source, for pictures in folders or in tables of paths; `source` is its main module."""
