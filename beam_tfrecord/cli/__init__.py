"""The command line: `main` is the program; `write` and `dataset_commands` define its commands."""
