"""Datasets that are there: read back, shown, verified, compared and repaired."""
