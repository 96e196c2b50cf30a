"""Which row is where in an epoch, and what its batch holds, the same for all frameworks."""
