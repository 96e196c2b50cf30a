"""Describes a job and its output, and stores its plan, errors and job.json between its steps."""
