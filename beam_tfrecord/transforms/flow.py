"""The shapes that data takes between steps: spread over workers, gathered, combined to one value.

Beam has transforms of the same meaning: Reshuffle, ToList, CombineGlobally, Create. They are made
of three to eight steps each, most of them for windows and defaults that batch jobs do without, and
it is the number of steps that a small job waits for: they were three quarters of all steps, and of
the time until the first row was read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam

from beam_tfrecord.transforms.step import flat_map, map_each

# More than workers, so that each gets some; one key must not hold up another element.
_KEYS = 2**31


class Spread(beam.Reshuffle):
    """Deal the elements of a bounded collection out to workers, behind a break of fusion.

    To a runner it is Beam's own Reshuffle, which Flink deals out in turn; any other runner groups
    by random keys.
    """

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        """Build the chain."""
        return (
            elements
            | "Key" >> map_each(_keyed).with_output_types(tuple[int, Any])
            | "Group" >> beam.GroupByKey()
            | "Values" >> flat_map(_values).with_output_types(Any)
        )


def _keyed(element: Any) -> tuple[int, Any]:
    return random.randrange(_KEYS), element


def _values(group: tuple[int, Iterable[Any]]) -> Iterable[Any]:
    return group[1]


class Start(beam.PTransform):
    """Begin with what a function yields, which is called once on a worker.

    Args:
        function: Called without arguments.
    """

    def __init__(self, function: Callable[[], Iterable[Any]]) -> None:
        super().__init__()
        self._function = function

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Build the chain."""
        return (
            begin.pipeline
            | "Begin" >> beam.Impulse()
            | "Call" >> flat_map(_call, self._function).with_output_types(Any)
        )


def _call(_: bytes, function: Callable[[], Iterable[Any]]) -> Iterable[Any]:
    return function()


class Gather(beam.PTransform):
    """Give all elements, as a list in no order, to one call of a function, if there are none too.

    Args:
        function: Yields from the list what goes on.
    """

    def __init__(self, function: Callable[[list[Any]], Iterable[Any]]) -> None:
        super().__init__()
        self._function = function

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        """Build the chain."""
        return (
            elements.pipeline
            | "Begin" >> beam.Impulse()
            | "Call"
            >> flat_map(_call_with, self._function, beam.pvalue.AsList(elements)).with_output_types(
                Any
            )
        )


def _call_with(
    _: bytes, function: Callable[[list[Any]], Iterable[Any]], elements: list[Any]
) -> Iterable[Any]:
    return function(elements)


class Combine(beam.PTransform):
    """Combine all elements to one value, where they are as far as can be; none to the default.

    Args:
        function: How.
    """

    def __init__(self, function: beam.CombineFn) -> None:
        super().__init__()
        self._function = function

    def expand(self, elements: beam.PCollection) -> beam.PCollection:
        """Build the chain."""
        combined = (
            elements
            | "Key" >> map_each(_one_key).with_output_types(tuple[None, Any])
            | "Combine" >> beam.CombinePerKey(self._function)
        )
        return combined | "Value" >> Gather(_ValueOr(self._function))


def _one_key(element: Any) -> tuple[None, Any]:
    return None, element


class _ValueOr:
    """Yield the one value that was combined, or that of no elements."""

    def __init__(self, function: beam.CombineFn) -> None:
        self._function = function

    def __call__(self, combined: list[tuple[None, Any]]) -> Iterable[Any]:
        if combined:
            return [value for _, value in combined]
        return [self._function.extract_output(self._function.create_accumulator())]
