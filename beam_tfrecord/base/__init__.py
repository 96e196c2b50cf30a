"""What all rooms use and what knows nothing of data: text for people, progress, arguments."""
