"""Pictures in folders or named by tables; `source.Images` is the source."""
