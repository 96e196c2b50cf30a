"""Judges datasets: `verify`, `repair`, `diff` and `show`."""
