"""The command line: `main` is the program; `write` and `read` define its commands."""
