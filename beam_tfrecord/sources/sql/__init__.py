"""Reads SQL databases: `source` defines the source and chooses the engine that reads a URL."""
