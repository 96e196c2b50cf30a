"""Beam transforms: readers (`read`), row functions and splits (`map_and_split`), `write`."""
