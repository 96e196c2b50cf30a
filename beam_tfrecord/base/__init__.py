"""What all rooms use and what knows nothing of data: words, tables for people, progress, extras."""
