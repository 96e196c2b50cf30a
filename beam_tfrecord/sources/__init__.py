"""Sources of rows. `base` states their contract; `inputs.SOURCES` lists all kinds."""
