"""What is on disk when a job is done: manifest, layout, order, rejects, and the format of stages."""
