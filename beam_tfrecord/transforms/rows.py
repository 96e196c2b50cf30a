"""Transforms that convert between batches and the elements of other Beam code: rows and examples.

Rows are dicts, NamedTuples, dataclasses or `beam.Row`s; examples are `tf.train.Example`s or their
bytes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.base.extras import import_tensorflow, require
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.python_values import as_row
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.examples import canonical_examples
from beam_tfrecord.records.mapped_rows import (
    Mapped,
    RowTypes,
    infer_row_types,
    is_example_class,
    mapped_batch,
)
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, batch_of_examples
from beam_tfrecord.rows.beam import in_one_window
from beam_tfrecord.runners import check_lossless
from beam_tfrecord.transforms.pipeline_facts import (
    cannot_write,
    check_batches,
    check_input,
    element_kind,
)


@dataclasses.dataclass(eq=False)
class BatchRows(beam.PTransform):
    """Gather rows of other Beam code into batches.

    The rows are dicts, NamedTuples, dataclasses or `beam.Row`s. They have no stable number, so the
    position of a row in the dataset follows from its bytes, or from the `key` columns of
    `WriteToTFRecord`.

    Attributes:
        schema: Types of the rows.
        batch_rows: Maximum number of rows per batch.
    """

    schema: Schema | pa.Schema
    batch_rows: int = DEFAULT_BATCH_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.schema, Schema | pa.Schema | beam.pvalue.AsSingleton):
            raise UsageError("BatchRows needs a schema: a beam_tfrecord.Schema or a pyarrow.Schema")

    def expand(self, rows: beam.PCollection) -> beam.PCollection[Batch]:
        """Add the step that gathers rows."""
        check_input(rows, self)
        check_lossless(rows.pipeline)
        schema = as_arrow_schema(self.schema)
        gathered = _gathered(in_one_window(rows), "GatherRows", self.batch_rows)
        return gathered | "BatchRows" >> beam.Map(batch_of_rows, schema).with_output_types(Batch)


def _gathered(elements: Any, label: str, size: int = DEFAULT_BATCH_ROWS) -> Any:
    """Return the elements in lists of at most `size`."""
    return elements | label >> beam.BatchElements(min_batch_size=size, max_batch_size=size)


def as_dict(row: Any) -> dict[str, Any]:
    """Return a dict, NamedTuple, dataclass or `beam.Row` as a dict."""
    if (found := as_row(row)) is None:
        raise cannot_write(type(row))
    return found


def batch_of_rows(rows: Sequence[Any], schema: pa.Schema) -> Batch:
    """Return a batch of rows whose origin is unknown; rows that do not fit become rejects."""
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    zeros = np.zeros(len(rows), np.int64)
    mapped = Mapped(list(map(as_dict, rows)), zeros, zeros, ())
    batch = mapped_batch(Batch(nothing), mapped, schema)
    # No function made these rows.
    rejects = (dataclasses.replace(reject, code="bad-value") for reject in batch.rejects)
    return batch.replace(rejects=tuple(rejects)) if batch.rejects else batch


def as_arrow_schema(schema: Schema | pa.Schema | None) -> pa.Schema | None:
    """Return a schema as an Arrow schema; return other values, such as None, unchanged."""
    return schema.to_arrow() if isinstance(schema, Schema) else schema


EXAMPLES, ROWS = "examples", "rows"


def batches_of(
    elements: beam.PCollection, coder: beam.coders.Coder | None, schema: Schema | None
) -> tuple[beam.PCollection[Batch], ...]:
    """Convert elements to PCollections of batches, one for each kind of element."""
    if coder is not None:
        encoded = elements | "EncodeElements" >> beam.Map(coder.encode).with_output_types(bytes)
        return batches_of(encoded, None, schema)
    kind = element_kind(elements.element_type)
    if kind == "none":
        raise cannot_write(elements.element_type)
    if kind == "batches":
        return (elements,)
    if kind == "examples":
        return (_batch_examples(elements | "AsBytes" >> beam.Map(_as_bytes)),)
    if kind == "rows":
        return (_batch_rows(elements | "AsDicts" >> beam.Map(as_dict), schema),)
    found = elements | "SortElements" >> beam.FlatMap(_sorted).with_outputs(
        EXAMPLES, ROWS, main="batches"
    )
    return found.batches, _batch_examples(found[EXAMPLES]), _batch_rows(found[ROWS], schema)


def _sorted(element: Any) -> Iterator[Any]:
    """Yield an element in the output of its kind."""
    if isinstance(element, Batch):
        yield element
    elif isinstance(element, bytes) or is_example_class(type(element)):
        yield beam.pvalue.TaggedOutput(EXAMPLES, _as_bytes(element))
    else:
        yield beam.pvalue.TaggedOutput(ROWS, as_dict(element))


def _as_bytes(example: Any) -> bytes:
    if isinstance(example, bytes):
        return example
    return bytes(canonical_examples([example.SerializeToString()])[0].as_py())


def _batch_examples(examples: beam.PCollection) -> beam.PCollection[Batch]:
    gathered = _gathered(examples, "GatherExamples")
    # Beam takes further keywords of a function for side inputs.
    return gathered | "BatchExamples" >> beam.Map(lambda some: batch_of_examples(some))


def _batch_rows(rows: beam.PCollection, schema: Schema | None) -> beam.PCollection[Batch]:
    """Gather rows into batches; without a schema, infer their types first.

    Rows of other code cannot be read again, so the runner stores them until the types are inferred.
    """
    if schema is not None:
        return rows | "BatchRows" >> BatchRows(schema)
    types = (
        rows
        | "GatherToInfer" >> beam.BatchElements(min_batch_size=1_000, max_batch_size=10_000)
        | "InferTypes" >> beam.Map(infer_row_types)
        | "MergeTypes"
        >> beam.CombineGlobally(lambda found: functools.reduce(RowTypes.merge, found, RowTypes()))
        | "SchemaOfTypes" >> beam.Map(lambda found: found.to_arrow(Schema(()).to_arrow()))
    )
    return rows | "BatchRows" >> BatchRows(beam.pvalue.AsSingleton(types))


class ToRows(beam.PTransform):
    """Return the rows of batches as dicts, for other Beam code.

    A dict cannot carry rejects, so a batch with rejects is an error. Nor can it carry the split
    that `AssignSplits` assigned, so `WriteToTFRecord` refuses rows that had one.
    """

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[dict[str, Any]]:
        """Add the step that returns every row."""
        check_batches(batches, self)
        return batches | "ToRows" >> beam.FlatMap(_rows_of).with_output_types(dict[str, Any])


def _rows_of(batch: Batch) -> list[dict[str, Any]]:
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    rows: list[dict[str, Any]] = batch.data.to_pylist()
    return rows


@dataclasses.dataclass(eq=False)
class EncodeExamples(beam.PTransform):
    """Encode each row of batches as a serialized `tf.train.Example` in canonical form.

    Bytes cannot carry the split that `AssignSplits` assigned, so `WriteToTFRecord` refuses examples
    of rows that had one.

    Attributes:
        schema: Schema to enforce; None means that of the batches.
    """

    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[bytes]:
        """Add the step that encodes every batch."""
        check_batches(batches, self)
        return batches | "EncodeExamples" >> beam.FlatMap(
            examples_of, self.schema
        ).with_output_types(bytes)


def examples_of(batch: Batch, schema: Schema | None = None) -> Iterator[bytes]:
    """Yield the serialized example of every row."""
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    if batch.encoded:
        yield from batch.data.column(0).to_pylist()
        return
    arena = Arena()
    encoded = Encoder(schema or Schema.from_arrow(batch.data.schema)).encode(batch, arena)
    if encoded.rejects:
        raise DataError(encoded.rejects[0].message)
    starts = arena.starts[: arena.records]
    # A unit without rows gives a batch without rows.
    ends = np.append(starts[1:], arena.size) if len(starts) else starts
    for start, end in zip(starts, ends, strict=True):
        yield arena.data[start + 12 : end - 4].tobytes()


class ToExample(beam.PTransform):
    """Convert rows, such as dicts, to `tf.train.Example`s; needs TensorFlow on the workers.

    Args:
        schema: Types of the rows.
    """

    def __init__(self, schema: Schema | pa.Schema) -> None:
        super().__init__()
        self._schema = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)

    def expand(self, rows: beam.PCollection) -> beam.PCollection[Any]:
        """Add the step that converts every row."""
        check_input(rows, self)
        return rows | "ToExample" >> beam.Map(_as_example, self._schema)


def _as_example(row: Any, schema: Schema) -> Any:
    example = _example_class()
    # A row without columns is an example without features, which has no bytes.
    serialized = next(examples_of(batch_of_rows([row], schema.to_arrow()), schema), b"")
    return example.FromString(serialized)


@functools.cache
def _example_class() -> Any:
    require("tensorflow", "ToExample")
    import_tensorflow("tensorflow")
    import tensorflow as tf

    return tf.train.Example
