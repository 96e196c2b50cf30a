"""NumPy arrays in files or in memory: `arrays` is the source."""
