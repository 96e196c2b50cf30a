"""The version of the package; packaging parses this file without importing the package."""

__version__ = "0.1.0"
