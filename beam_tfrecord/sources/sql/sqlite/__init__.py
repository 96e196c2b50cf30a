"""The engine of SQLite, by the standard library."""
