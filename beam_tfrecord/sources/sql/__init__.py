"""SQL databases: `source` is the source, `engines` says which engine reads which URL."""
