"""Pictures in folders or named by tables: `source` is the source."""
