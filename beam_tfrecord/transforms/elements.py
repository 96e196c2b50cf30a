"""Elements of any kind that a sink may be given, turned into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.typehints import row_type, typehints

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, batch_of_examples
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.infer_row_types import RowTypes, infer_row_types
from beam_tfrecord.records.rows import canonical_example
from beam_tfrecord.transforms.gather_rows import BatchRows, as_dict
from beam_tfrecord.transforms.step import Step, map_each
from beam_tfrecord.transforms.windows import in_global_window

ROWS = "rows"


def batches_of(
    elements: beam.PCollection, coder: beam.coders.Coder | None, schema: Schema | None
) -> tuple[beam.PCollection[Batch], ...]:
    """Turn elements into batches.

    Raises:
        UsageError: The type of the elements is known, and cannot be written.
    """
    if coder is not None:
        encoded = elements | "EncodeElements" >> map_each(coder.encode).with_output_types(bytes)
        return batches_of(encoded, None, schema)
    kind = element_kind(elements.element_type)
    if kind == "batches":
        return (elements,)
    if kind == "examples":
        gathered = elements | "GatherExamples" >> beam.ParDo(_Sort()).with_outputs(
            ROWS, main="batches"
        )
        return (gathered.batches,)
    if kind == "rows":
        return (_batch_rows(elements | "AsDicts" >> map_each(as_dict), schema),)
    gathered = elements | "SortElements" >> beam.ParDo(_Sort()).with_outputs(ROWS, main="batches")
    return gathered.batches, _batch_rows(gathered[ROWS], schema)


def element_kind(hint: Any) -> str:
    """Return ``batches``, ``examples``, ``rows`` or ``any`` for a Beam element type.

    Raises:
        UsageError: Such elements cannot be written.
    """
    if hint is Batch:
        return "batches"
    if hint is bytes or (isinstance(hint, type) and hasattr(hint, "SerializeToString")):
        return "examples"
    if isinstance(hint, typehints.DictConstraint | row_type.RowTypeConstraint) or (
        isinstance(hint, type) and (issubclass(hint, dict | beam.Row) or hasattr(hint, "_fields"))
    ):
        return "rows"
    if hint in (None, Any, object, typehints.Any) or isinstance(hint, typehints.UnionConstraint):
        return "any"
    raise UsageError(
        f"cannot write elements of type {getattr(hint, '__name__', hint)}: give Batch, dict, "
        "NamedTuple, beam.Row, tf.train.Example or bytes"
    )


def is_plain_kind(rows: beam.PCollection) -> bool:
    """Tell whether elements are rows or examples, which carry nothing but their values."""
    try:
        return element_kind(rows.element_type) in ("rows", "examples")
    except UsageError:
        # Neither batches nor what could be written: such as batches by key, on their way.
        return False


class _Sort(Step):
    """Gather examples into batches, let batches pass, and send rows aside."""

    def start_bundle(self) -> None:
        self._examples: list[bytes] = []

    def process(self, element: Any) -> Iterator[Any]:
        if isinstance(element, Batch):
            yield element
        elif isinstance(element, bytes):
            yield from self._gather(element)
        elif hasattr(element, "SerializeToString"):
            yield from self._gather(canonical_example(element))
        else:
            yield beam.pvalue.TaggedOutput(ROWS, as_dict(element))

    def _gather(self, example: bytes) -> Iterator[Batch]:
        self._examples.append(example)
        if len(self._examples) >= DEFAULT_BATCH_ROWS:
            yield self._take()

    def finish_bundle(self) -> Iterator[Any]:
        if self._examples:
            yield in_global_window(self._take())

    def _take(self) -> Batch:
        examples, self._examples = self._examples, []
        return batch_of_examples(examples)


def _batch_rows(rows: beam.PCollection, schema: Schema | None) -> beam.PCollection[Batch]:
    """Gather rows; without a schema their types are found in the rows themselves.

    Rows that came through other code cannot be read again, so the runner keeps them until their
    types are known: a schema spares it that.
    """
    if schema is not None:
        return rows | "BatchRows" >> BatchRows(schema)
    types = (
        rows
        | "GatherToInfer" >> beam.BatchElements(min_batch_size=1_000, max_batch_size=10_000)
        | "InferTypes" >> map_each(infer_row_types)
        | "MergeTypes" >> beam.CombineGlobally(_merge_types)
        | "SchemaOfTypes" >> map_each(lambda found: found.to_arrow(Schema(()).to_arrow()))
    )
    return rows | "BatchRows" >> BatchRows(beam.pvalue.AsSingleton(types))


def _merge_types(found: Iterable[RowTypes]) -> RowTypes:
    merged = RowTypes()
    for types in found:
        merged = merged.merge(types)
    return merged
