"""Runs jobs: checks the arguments, plans, builds the pipelines, resumes, and returns the result."""
