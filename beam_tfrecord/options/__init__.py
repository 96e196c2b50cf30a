"""The options of a job: one table behind flags, arguments and the summary."""
