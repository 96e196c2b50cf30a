"""The version of the package, kept here alone; packaging reads it without importing anything."""

__version__ = "0.1.0"
