"""Marks that several tests share."""

import pytest


def slow_after(count, values):
    """Return parameters of a test; those after the first `count` are slow.

    Args:
        count: How many run by default.
        values: Each is one parameter, or a tuple of several.
    """
    found = list(values)
    for index, value in enumerate(found[count:], count):
        parts = value if isinstance(value, tuple) else (value,)
        found[index] = pytest.param(*parts, marks=pytest.mark.slow)
    return found
