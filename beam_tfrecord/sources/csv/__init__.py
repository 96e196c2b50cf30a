"""CSV files: `source` is the source; the rest says how a file is cut, typed and read."""
