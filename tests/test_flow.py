"""Spreading, gathering and combining: the same as Beam's own transforms, in fewer steps."""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
import pytest
from apache_beam.portability.common_urns import composites
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from beam_tfrecord.transforms.flow import Combine, Gather, Spread, Start


class Longest(beam.CombineFn):
    """The longest of some words, or a dash."""

    def create_accumulator(self) -> str:
        return "-"

    def add_input(self, longest: str, word: str) -> str:
        return max(longest, word, key=len)

    def merge_accumulators(self, longest: Iterable[str]) -> str:
        return max(longest, key=len)

    def extract_output(self, longest: str) -> str:
        return longest.upper()


def test_spread_keeps_every_element_and_all_copies() -> None:
    with bt.pipeline() as root:
        spread = root | beam.Create(["a", "b", "a", "c"]) | Spread()
        assert_that(spread, equal_to(["a", "a", "b", "c"]))


def test_runners_that_have_their_own_way_to_reshuffle_know_a_spread_as_that() -> None:
    root = bt.pipeline()
    root | beam.Create([1]) | "Mine" >> Spread()
    transforms = root.to_runner_api().components.transforms.values()
    assert {one.spec.urn for one in transforms if one.unique_name == "Mine"} == {
        composites.RESHUFFLE.urn
    }


def test_a_start_calls_its_function_once() -> None:
    with bt.pipeline() as root:
        assert_that(root | Start(lambda: iter([3, 1, 2])), equal_to([1, 2, 3]))


@pytest.mark.parametrize("given", [["b", "a"], []])
def test_gather_gives_one_call_all_elements_if_there_are_none_too(given: list[str]) -> None:
    with bt.pipeline() as root:
        gathered = root | beam.Create(given) | Gather(lambda found: ["".join(sorted(found))])
        assert_that(gathered, equal_to(["".join(sorted(given))]))


@pytest.mark.parametrize(("given", "longest"), [(["a", "ccc", "bb"], "CCC"), ([], "-")])
def test_combine_gives_one_value_always(given: list[str], longest: str) -> None:
    with bt.pipeline() as root:
        assert_that(root | beam.Create(given) | Combine(Longest()), equal_to([longest]))
