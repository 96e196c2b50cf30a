"""Input in memory: tables, arrays and rows, which are written to a temporary file and read back."""
