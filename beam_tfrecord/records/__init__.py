"""Rows to the bytes of records and back: examples, frames and the functions that map rows."""
