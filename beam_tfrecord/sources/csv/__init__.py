"""The CSV source: `source` defines it; the other modules cut, type and read a file."""
