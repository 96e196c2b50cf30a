"""Parquet files, and datasets staged in them: `source` is the source."""
