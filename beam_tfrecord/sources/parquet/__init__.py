"""The Parquet source, which also reads stages; `source` is its main module."""
