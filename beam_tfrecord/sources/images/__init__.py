"""The images source, for images in folders or in tables of paths; `source` is its main module."""
