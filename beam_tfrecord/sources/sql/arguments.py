"""What users pass to read a database, as this package keeps it."""

from __future__ import annotations

from collections.abc import Sequence


def texts_of(values: Sequence[str]) -> tuple[str, ...]:
    """Return one text, or several, as several."""
    return (values,) if isinstance(values, str) else tuple(values)
