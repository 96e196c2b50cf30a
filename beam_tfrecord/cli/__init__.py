"""The command line: `main` is the program; `job_commands` and `dataset_commands` its commands."""
