"""Describes a dataset to people, as one HTML page."""
