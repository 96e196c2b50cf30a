"""Marks that several tests share."""

import collections

import pytest


def needs(server):
    """Return marks of tests of a server or a JVM: slow, and of one worker, which starts it once.

    Args:
        server: Name of the group of tests.
    """
    return [pytest.mark.slow, pytest.mark.xdist_group(server)]


def mark_slow_cases(items):
    """Mark the cases of tests as slow that come after the first `slow_after(number)`."""
    counts = collections.Counter()
    for item in items:
        for mark in item.iter_markers("slow_after"):
            test = item.nodeid.partition("[")[0]
            counts[test] += 1
            if counts[test] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


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
