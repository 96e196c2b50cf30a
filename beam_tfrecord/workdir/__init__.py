"""Describes a job and its output, and stores its plan, faults and job.json between its steps."""
