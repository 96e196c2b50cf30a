"""What users pass to read a database, as this package keeps it."""

from __future__ import annotations

from collections.abc import Sequence

from beam_tfrecord.errors import UsageError


def names_of(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names of columns.

    Raises:
        UsageError: There is one text, or a name twice.
    """
    if isinstance(columns, str):
        raise UsageError(f"columns {columns!r} is one text: pass a list of them")
    names = tuple(columns)
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"column {doubled[0]!r} is asked for twice: correct --columns")
    return names


def texts_of(values: Sequence[str]) -> tuple[str, ...]:
    """Return one text, or several, as several."""
    return (values,) if isinstance(values, str) else tuple(values)
