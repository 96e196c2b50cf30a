"""The Avro source; `source` is its main module."""
