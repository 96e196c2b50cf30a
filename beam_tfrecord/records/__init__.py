"""Encodes rows as TFRecord records, decodes records, and calls row functions on rows."""
