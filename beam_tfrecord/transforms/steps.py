"""Applies the steps of this package, and finds what is known of the rows of a PCollection.

Examples are the readers that the rows come from, and whether the rows have a split. Steps of this
package note facts as attributes ``beam_tfrecord_…`` of their PCollections. A sink collects them on
a walk up the graph of the pipeline.

Two readers of a pipeline may yield rows of equal origin, and so may two row functions after one
reader. To distinguish them, every batch also carries its *step path*: the labels of the steps of
this package that it has passed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.typehints import row_type, typehints

from beam_tfrecord.errors import RejectedRows, StorageError, TargetExists, UsageError
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.rejects import SAVED_FILE
from beam_tfrecord.format.stage import StageManifest
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.job_state.worker_errors import Guarded
from beam_tfrecord.publish.assemble import warn_of
from beam_tfrecord.publish.transaction import abandon
from beam_tfrecord.records.mapped_rows import is_example_class
from beam_tfrecord.rows.batch import Batch, StepPath, check_batch, needs_batches
from beam_tfrecord.runners import SINKS, check_lossless
from beam_tfrecord.storage import is_remote

# Each fork whose branches are flattened again doubles the number of paths.
MAX_STEP_PATHS = 4096


def step_label(pipeline: beam.Pipeline) -> str:
    """Return the full label of the transform that is being applied."""
    return str(pipeline.transforms_stack[-1].full_label)


def step_paths_to(rows: beam.PCollection) -> tuple[StepPath, ...]:
    """Return all step paths that lead to a PCollection, in the order of the inputs of each Flatten.

    Rows of other Beam code have passed no step, so their path is empty. Other code may also forward
    batches of its side inputs; steps of this package have no side inputs of rows.
    """
    found: dict[beam.PCollection, tuple[StepPath, ...]] = {}

    def paths(rows: beam.PCollection) -> tuple[StepPath, ...]:
        if rows in found:
            return found[rows]
        last, steps = rows, []
        while True:
            inputs = inputs_of(rows)
            if (step := getattr(rows, "beam_tfrecord_step", None)) is not None:
                steps.append(step)
            else:
                # The user's code may forward batches of any of its inputs.
                inputs += side_inputs_of(rows)
            if len(inputs) != 1:
                break
            (rows,) = inputs
        before = dict.fromkeys(path for one in inputs for path in paths(one)) if inputs else ((),)
        if len(before) > MAX_STEP_PATHS:
            raise UsageError(
                f"rows reach one step on more than {MAX_STEP_PATHS:,} paths: write several datasets"
            )
        found[last] = tuple((*path, *reversed(steps)) for path in before)
        return found[last]

    return paths(rows)


def is_flatten(rows: beam.PCollection) -> bool:
    """Return whether a PCollection is the output of a Flatten."""
    return rows.producer is not None and isinstance(rows.producer.transform, beam.Flatten)


def inputs_of(rows: beam.PCollection) -> tuple[beam.PCollection, ...]:
    """Return the inputs of the step that produces a PCollection."""
    inputs = rows.producer.inputs if rows.producer is not None else ()
    return tuple(one for one in inputs if isinstance(one, beam.PCollection))


def side_inputs_of(rows: beam.PCollection) -> tuple[beam.PCollection, ...]:
    """Return the side inputs of the step that produces a PCollection."""
    return tuple(side.pvalue for side in getattr(rows.producer, "side_inputs", ()))


@dataclasses.dataclass(eq=False)
class Rereading(beam.PTransform):
    """Reads the rows of a step again: reads those of its inputs, and applies the step.

    Used when statistics of all rows are needed before any row is transformed. A side input computed
    from the rows themselves would make the runner store all of them.
    """

    readers: tuple[beam.PTransform, ...]
    step: beam.PTransform

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Read with all readers, and apply the step."""
        read = tuple(begin | f"Read{number}" >> one for number, one in enumerate(self.readers))
        return (read if isinstance(self.step, beam.Flatten) else read[0]) | "Step" >> self.step


def reader_of(batches: beam.PCollection) -> beam.PTransform | None:
    """Return a transform that reads the elements of `batches` again; None if it is unknown."""
    known: beam.PTransform | None = getattr(batches, "beam_tfrecord_reader", None)
    if known is None and is_flatten(batches):
        readers = [reader_of(one) for one in inputs_of(batches)]
        found = tuple(reader for reader in readers if reader is not None)
        if found and len(found) == len(readers):
            return Rereading(found, beam.Flatten())
    return known


def remember_reader(
    before: beam.PCollection, after: beam.PCollection, step: beam.PTransform
) -> None:
    """Attach to `after` a transform that reads its rows again, such as for statistics of them."""
    reader = reader_of(before)
    if reader is not None:
        after.beam_tfrecord_reader = Rereading((reader,), step)


def apply_step(
    step: Any,
    batches: beam.PCollection,
    label: str,
    function: Callable[..., Iterable[Batch]],
    *side_inputs: Any,
) -> beam.PCollection[Batch]:
    """Apply a function of a batch and side inputs as a step, which has the attribute `faults`."""
    check_batches(batches, step)
    name = step_label(batches.pipeline)

    def outputs(values: Any) -> Iterator[Batch]:
        check_batch(values[0], type(step).__name__)
        for batch in function(*values):
            yield batch.replace(step_path=(*batch.step_path, name))

    guarded = Guarded(outputs, step.faults)
    made = batches | label >> beam.FlatMap(
        lambda batch, *others: guarded((batch, *others)), *side_inputs
    ).with_output_types(Batch)
    made.beam_tfrecord_step = name
    remember_reader(batches, made, step)
    return made


def element_kind(hint: Any) -> str:
    """Return ``batches``, ``examples``, ``rows``, ``any`` or ``none`` for a Beam element type."""
    if isinstance(hint, type) and issubclass(hint, Batch):
        return "batches"
    if hint is bytes or is_example_class(hint):
        return "examples"
    if isinstance(hint, typehints.DictConstraint | row_type.RowTypeConstraint) or (
        isinstance(hint, type)
        and (
            issubclass(hint, dict | beam.Row)
            or hasattr(hint, "_fields")
            or dataclasses.is_dataclass(hint)
        )
    ):
        return "rows"
    if hint in (None, Any, object, typehints.Any) or isinstance(hint, typehints.UnionConstraint):
        return "any"
    return "none"


_UNWRAPPED = (Iterable, Iterator, Generator, list)


def kind_of(elements: beam.PCollection) -> str:
    """Return the `element_kind` of a PCollection, also by hints that Beam does not understand.

    Beam takes hints that are text, as all are after ``from __future__ import annotations``, for no
    hints.
    """
    kind = element_kind(elements.element_type)
    function = getattr(getattr(elements.producer, "transform", None), "fn", None)
    if kind != "any" or not isinstance(function, beam.DoFn):
        return kind
    try:
        hints = typing.get_type_hints(function._process_argspec_fn())
    except (NameError, TypeError, AttributeError):
        return kind
    found = element_kind(_unwrapped(hints.get("return", Any)))
    return kind if found == "none" else found


def _unwrapped(hint: Any) -> Any:
    """Return the type of the elements that a function with a return hint yields."""
    arguments = [one for one in typing.get_args(hint) if one is not types.NoneType]
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType) and len(arguments) == 1:
        return _unwrapped(arguments[0])
    return _unwrapped(arguments[0]) if origin in _UNWRAPPED else origin or hint


def cannot_write(kind: Any) -> UsageError:
    """Return the error for elements of a type that no sink takes."""
    name = getattr(kind, "__name__", kind)
    coder = f"beam.coders.ProtoCoder({name})" if hasattr(kind, "SerializeToString") else "a coder"
    return UsageError(
        f"cannot write elements of type {name}: give Batch, dict, NamedTuple, dataclass, beam.Row, "
        f"tf.train.Example or its bytes, or give WriteToTFRecord coder={coder}"
    )


def check_input(elements: Any, step: beam.PTransform) -> None:
    """Check that a step follows another one."""
    if not isinstance(elements, beam.PCollection):
        name = type(step).__name__
        raise UsageError(f"{name} needs an input: p | ReadFromCsv('a.csv') | {name}(…)")


def check_batches(elements: Any, step: beam.PTransform) -> None:
    """Check that a step follows another one, and that its elements may be batches."""
    check_input(elements, step)
    hint = elements.element_type
    # Elements of no kind (such as keyed batches) may become batches in a function of the user.
    if element_kind(hint) in ("rows", "examples"):
        kind = getattr(hint, "__name__", str(hint))
        raise needs_batches(type(step).__name__, kind)


class Sink(beam.PTransform):
    """Base class of the transforms that publish a dataset or a stage.

    Attributes:
        target: The output.
    """

    target: Target
    _job: Job

    def check_elements(self, elements: Any) -> None:
        """Check that the sink can write what comes before it.

        Raises:
            TargetExists: Another sink of the pipeline has the same target.
            UsageError: The sink has no input, an unbounded one, or a runner that loses elements.
        """
        check_input(elements, self)
        check_lossless(elements.pipeline)
        directory = self.target.directory
        location = directory if is_remote(directory) else os.path.realpath(directory)
        sinks = vars(elements.pipeline).setdefault(SINKS, {})
        if sinks.setdefault((location, self.target.prefix), self) is not self:
            raise TargetExists(
                f"two sinks of one pipeline write to {self.target.output!r}: "
                "give each an output of its own"
            )
        if not elements.is_bounded:
            name = type(self).__name__
            raise UsageError(f"{name} needs a bounded PCollection: this one is unbounded")

    def warn(self) -> None:
        """Warn of what the user should know about the output that a pipeline has written."""
        job = self._job
        load = StageManifest.load if job.output == "stage" else Manifest.load
        # The line of the user's `with`, from whose end Beam runs the pipeline.
        warn_of(job.target, load(job.target.manifest), job.layout)

    def abandon(self, error: BaseException) -> None:
        """Remove what a pipeline wrote that failed, but for the rejects that its error names."""
        keep = SAVED_FILE if isinstance(error, RejectedRows) else ""
        with contextlib.suppress(StorageError, OSError):
            abandon(self._job.directory, keep=keep)


def upstream(rows: beam.PCollection, *, with_sides: bool = False) -> Iterator[beam.PCollection]:
    """Yield a PCollection and all that come before it, through side inputs too if asked."""
    pending, seen = [rows], set()
    while pending:
        if (one := pending.pop()) in seen:
            continue
        yield one
        seen.add(one)
        pending += inputs_of(one) + (side_inputs_of(one) if with_sides else ())


def has_splits(rows: beam.PCollection) -> bool:
    """Return whether an `AssignSplits` comes before a PCollection, as far as the graph shows."""
    return any(getattr(one, "beam_tfrecord_has_splits", False) for one in upstream(rows))
