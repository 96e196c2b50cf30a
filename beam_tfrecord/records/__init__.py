"""Encodes rows as TFRecord records, decodes records, and calls the user's functions on rows."""
