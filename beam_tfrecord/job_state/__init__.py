"""Describes a job and its output, and stores its state between its steps and attempts."""
