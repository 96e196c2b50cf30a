"""Beam transforms: readers (`read`), row functions (`map_rows`), splits and writers (`write`)."""
