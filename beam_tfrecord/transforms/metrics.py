"""Beam counters: for show, never for correctness, since runners differ in how they count."""

from __future__ import annotations

from apache_beam.metrics import Metrics


def count(namespace: type, name: str, amount: int) -> None:
    """Add to a counter named `name` in the namespace of a class."""
    Metrics.counter(namespace, name).inc(amount)
