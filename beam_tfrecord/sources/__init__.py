"""The sources, which read rows from one kind of input each; `base` defines their interface."""
