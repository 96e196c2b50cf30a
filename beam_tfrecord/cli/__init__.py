"""The command line: `main` is where it starts; one file a family of commands."""
