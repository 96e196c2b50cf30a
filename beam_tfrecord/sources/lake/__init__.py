"""Reads tables of a data lake: Delta Lake and Apache Iceberg."""
