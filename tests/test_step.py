"""Steps: what Beam looks into, and functions with side inputs."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.userstate import get_dofn_specs

from beam_tfrecord.transforms.step import Step, flat_map, map_each


class Counting(Step):
    """Yields how often it was called within a bundle, when the bundle ends."""

    def __init__(self) -> None:
        self._count = 0

    def start_bundle(self) -> None:
        self._count = 0

    def process(self, element: object) -> Iterator[int]:
        self._count += 1
        yield -1

    def finish_bundle(self) -> Iterator[object]:
        yield beam.utils.windowed_value.WindowedValue(
            self._count, 0, [beam.transforms.window.GlobalWindow()]
        )


def test_beam_looks_into_what_is_ours_alone() -> None:
    told = dir(Counting())
    assert {"start_bundle", "process", "finish_bundle", "_count"} <= set(told)
    assert not {"setup", "to_runner_api", "default_type_hints"} & set(told)
    assert get_dofn_specs(Counting()) == (set(), set())


def test_a_step_does_what_a_dofn_does() -> None:
    with beam.Pipeline() as pipeline:
        counted = pipeline | beam.Create(["a", "b", "c"]) | beam.ParDo(Counting())
        total = counted | beam.Filter(lambda count: count >= 0) | beam.CombineGlobally(sum)
        assert_that(total, equal_to([3]))


def test_functions_get_side_inputs() -> None:
    def parts(text: str, ends: list[str], sign: str) -> Iterator[str]:
        for end in sorted(ends):
            yield f"{text}{sign}{end}"

    with beam.Pipeline() as pipeline:
        texts = pipeline | "Texts" >> beam.Create(["a", "b"])
        ends = pipeline | "Ends" >> beam.Create(["x", "y"])
        sign = pipeline | "Sign" >> beam.Create(["-"])
        sides = beam.pvalue.AsList(ends), beam.pvalue.AsSingleton(sign)
        joined = texts | flat_map(parts, *sides)
        assert_that(joined, equal_to(["a-x", "a-y", "b-x", "b-y"]), label="many")
        counts = texts | map_each(lambda text, ends: (text, len(ends)), beam.pvalue.AsList(ends))
        assert_that(counts, equal_to([("a", 2), ("b", 2)]), label="one")
