"""Marks that several tests share."""

import pytest


def needs(server):
    """Return marks of tests of a server or a JVM: slow, and of one worker, which starts it once.

    Args:
        server: Name of the group of tests.
    """
    return [pytest.mark.slow, pytest.mark.xdist_group(server)]


def mark_users(item, fixtures, server):
    """Mark a test that uses any of some fixtures, directly or through others.

    Args:
        item: The test.
        fixtures: Names of the fixtures.
        server: What they need.
    """
    if not fixtures.isdisjoint(item.fixturenames):
        for mark in needs(server):
            item.add_marker(mark)


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
