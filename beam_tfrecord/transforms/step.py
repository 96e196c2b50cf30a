"""Steps of pipelines that begin at once: DoFns without state and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.typehints.decorators import IOTypeHints


class Step(beam.DoFn):
    """A DoFn that keeps no state and sets no timers.

    Beam looks for both in the signatures of whatever methods ``dir`` tells of, those of its own
    class too, about eight times a step: two fifths of what a job of a few rows took.
    """

    def __dir__(self) -> list[str]:
        """Return the names of what is not Beam's own."""
        own = [vars(kind) for kind in type(self).__mro__ if kind not in beam.DoFn.__mro__]
        return sorted(set(vars(self)).union(*own))


class _Calling(Step):
    """A step that calls a function; what its hints say is not what Beam understands by them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def default_type_hints(self) -> IOTypeHints:
        return IOTypeHints.empty()


class _Each(_Calling):
    def process(self, element: Any, *sides: Any) -> Iterable[Any]:
        yielded: Iterable[Any] = self._function(element, *sides)
        return yielded


class _One(_Calling):
    def process(self, element: Any, *sides: Any) -> Iterable[Any]:
        return (self._function(element, *sides),)


def flat_map(function: Callable[..., Iterable[Any]], *sides: Any) -> beam.ParDo:
    """Return a step that gives what a function yields for each element: `beam.FlatMap`.

    Args:
        function: Called with an element and what becomes of `sides`.
        sides: Values, or side inputs such as `beam.pvalue.AsList`.
    """
    return beam.ParDo(_Each(function), *sides)


def map_each(function: Callable[..., Any], *sides: Any) -> beam.ParDo:
    """Return a step that gives what a function returns for each element: `beam.Map`.

    Args:
        function: Called with an element and what becomes of `sides`.
        sides: Values, or side inputs such as `beam.pvalue.AsSingleton`.
    """
    return beam.ParDo(_One(function), *sides)
