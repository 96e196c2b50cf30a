"""Large packages, imported by the tests that use them and not by those that collect them."""

import pytest


class Lazy:
    """A package that is imported at its first use; the test is skipped where it is missing."""

    def __init__(self, name):
        self.__name__ = name

    def __getattr__(self, attribute):
        if attribute.startswith("_"):  # pytest looks for some of these while it collects.
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self.__name__), attribute)


def packages_of(module):
    """Return the names of the lazy packages that a module of tests has at its top."""
    return {value.__name__ for value in vars(module).values() if isinstance(value, Lazy)}
