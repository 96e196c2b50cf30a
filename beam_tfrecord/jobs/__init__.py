"""Jobs: from a command to a published dataset, with planning, resuming and publishing."""
