"""Reads, checks, compares and repairs written datasets; nothing here imports Beam."""
