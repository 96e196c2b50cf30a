"""Finds the steps of a pipeline that run Python code for each row, and whether its input is large.

Python runs on one core in each process, so these steps are faster in several processes, once there
is more to do than it takes to start them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.iobase import BoundedSource
from apache_beam.pipeline import AppliedPTransform

from beam_tfrecord.runners import IS_OF_JOB, READERS

# A source of Beam that is smaller is done before the processes have started.
LARGE_BYTES = 64 * 2**20
# Transforms of Beam around one step: one with several outputs, and one whose errors are caught.
_WRAPPERS = ("_MultiParDo", "_ExceptionHandlingWrapper")


def python_steps(pipeline: beam.Pipeline) -> frozenset[str]:
    """Return the full labels of the primitive steps that run Python code for each row.

    These are the functions of the user, and the transforms of this package that are marked with
    `runs_python`.
    """
    (root,) = pipeline.transforms_stack
    is_library = hasattr(pipeline, IS_OF_JOB)
    return frozenset(step.full_label for step in _python_below(root, is_library=is_library))


def _python_below(step: AppliedPTransform, *, is_library: bool) -> Iterator[AppliedPTransform]:
    transform = step.transform
    is_marked = getattr(transform, "runs_python", False)
    if not step.parts:
        if isinstance(transform, beam.ParDo) and (is_marked or not is_library):
            yield step
        return
    package = type(transform).__module__.partition(".")[0]
    if is_marked:
        is_library = False
    elif package in ("apache_beam", "beam_tfrecord") and type(transform).__name__ not in _WRAPPERS:
        is_library = True
    for part in step.parts:
        yield from _python_below(part, is_library=is_library)


def is_large(pipeline: beam.Pipeline) -> bool:
    """Return whether one of the inputs of a pipeline is large, or of unknown size."""
    (root,) = pipeline.transforms_stack
    # An input that cannot be listed is an error of the run, which says what is wrong.
    with contextlib.suppress(Exception):
        readers = getattr(pipeline, READERS, ())
        return any(one.is_large() for one in readers) or any(map(_reads_much, _all_below(root)))
    return False


def _all_below(step: AppliedPTransform) -> Iterator[Any]:
    yield step.transform
    for part in step.parts:
        yield from _all_below(part)


def _reads_much(transform: Any) -> bool:
    source = getattr(transform, "source", None)
    return isinstance(source, BoundedSource) and (source.estimate_size() or 0) >= LARGE_BYTES
