"""The temporary directory of a job: its target, checkpoints, faults and job.json."""
