"""The engine of PostgreSQL, by ADBC."""
