"""The ways that rows come to a step: which of our steps they pass, found in the pipeline's graph.

Two readers of a pipeline may give rows of equal origin, and so may two mappings of one reader. So
every batch notes the steps that it passes, and a sink tells the ways apart that lead to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import UsageError
from beam_tfrecord.job_batch import Way, as_job_batch

# Every Flatten of both branches of a fork doubles their number.
MOST_WAYS = 4096


@dataclasses.dataclass(frozen=True)
class Noting:
    """Note on all batches that a function yields which step they passed.

    Attributes:
        function: From one element to any number of batches.
        step: Label of the step.
    """

    function: Callable[[Any], Iterable[Batch]]
    step: str

    def __call__(self, element: Any) -> Iterator[Batch]:
        """Yield the batches."""
        for batch in self.function(element):
            job_batch = as_job_batch(batch)
            yield job_batch.replace(way=(*job_batch.way, self.step))


def step_label(pipeline: beam.Pipeline) -> str:
    """Return the full label of the transform that is being applied."""
    return str(pipeline.transforms_stack[-1].full_label)


def mark_step(batches: beam.PCollection, step: str) -> None:
    """Let it be found in the graph that batches have passed a step."""
    batches.beam_tfrecord_step = step


def ways_to(rows: beam.PCollection) -> tuple[Way, ...]:
    """Return all ways that lead to a PCollection, in the order of the inputs of each Flatten.

    Rows of other Beam code have passed no step: the way of all of them is empty. Other code may
    also give on batches of its side inputs; a step of this package has none of rows.

    Raises:
        UsageError: There are too many.
    """
    found: dict[beam.PCollection, tuple[Way, ...]] = {}

    def ways(rows: beam.PCollection) -> tuple[Way, ...]:
        if rows in found:
            return found[rows]
        last, steps = rows, []
        while True:
            inputs = inputs_of(rows)
            if (step := getattr(rows, "beam_tfrecord_step", None)) is not None:
                steps.append(step)
            else:
                # Code of one's own may give on what it was given in any way.
                inputs += side_inputs_of(rows)
            if len(inputs) != 1:
                break
            (rows,) = inputs
        before = dict.fromkeys(way for one in inputs for way in ways(one)) if inputs else ((),)
        if len(before) > MOST_WAYS:
            raise UsageError(
                f"rows come to one place in more than {MOST_WAYS:,} ways: write several datasets"
            )
        found[last] = tuple((*way, *reversed(steps)) for way in before)
        return found[last]

    return ways(rows)


def is_step(batches: beam.PCollection) -> bool:
    """Tell whether a PCollection comes from a step of this package, or joins several."""
    is_flatten = batches.producer is not None and isinstance(
        batches.producer.transform, beam.Flatten
    )
    return is_flatten or hasattr(batches, "beam_tfrecord_step")


def inputs_of(rows: beam.PCollection) -> tuple[beam.PCollection, ...]:
    """Return what the step that gives a PCollection takes."""
    inputs = rows.producer.inputs if rows.producer is not None else ()
    return tuple(one for one in inputs if isinstance(one, beam.PCollection))


def side_inputs_of(rows: beam.PCollection) -> tuple[beam.PCollection, ...]:
    """Return what the step that gives a PCollection takes as side inputs."""
    return tuple(side.pvalue for side in rows.producer.side_inputs) if rows.producer else ()
