"""What is on disk when a job is done: manifest, layout, order, hashes, rejects, and stages."""
