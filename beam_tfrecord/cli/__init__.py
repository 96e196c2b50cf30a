"""The command line: `main` starts it, `write` and `read` hold its commands."""
