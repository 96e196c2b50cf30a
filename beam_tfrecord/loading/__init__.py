"""Decides, for all frameworks, which rows each batch of an epoch has, and how they look."""
