"""Statistics of what datasets hold: counts, ranges, distributions and frequent values."""
