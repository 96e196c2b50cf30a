"""The Parquet source, which also reads the output of ``extract``; `source` is its main module."""
