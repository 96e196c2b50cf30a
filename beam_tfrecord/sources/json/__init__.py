"""The JSON source: `source` defines it; the other modules cut, parse, type and read a file."""
