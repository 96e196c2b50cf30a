"""Transforms that convert between batches and the elements of other Beam code: rows and examples.

Rows are dicts, NamedTuples, dataclasses or `beam.Row`s; examples are `tf.train.Example`s or their
bytes.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.base.extras import import_tensorflow, require
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.features.python_values import as_row
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_state.worker_errors import Guarded
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.examples import canonical_examples
from beam_tfrecord.records.mapped_rows import Mapped, is_example_class, mapped_batch
from beam_tfrecord.records.row_types import in_columns, infer_row_types
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, batch_of_examples
from beam_tfrecord.rows.beam import in_global_window, in_one_window
from beam_tfrecord.runners import check_lossless
from beam_tfrecord.transforms.kept_rows import FILES, FOUND, RowKeeper, typed_batches
from beam_tfrecord.transforms.steps import cannot_write, check_batches, check_input, kind_of

_BATCH_BYTES = 16 * 2**20
# One of so many rows is measured, since that takes longer than to add it.
_SIZED_ROWS = 16


@dataclasses.dataclass(eq=False)
class BatchRows(beam.PTransform):
    """Gather rows of other Beam code into batches.

    The rows are dicts, NamedTuples, dataclasses or `beam.Row`s. They have no stable number, so the
    position of a row in the dataset follows from its bytes, or from the `key` columns of
    `WriteToTFRecord`.

    Attributes:
        schema: Types of the rows.
        batch_rows: Maximum number of rows per batch.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create([{"id": 1}]) | bt.BatchRows(pa.schema({"id": "int64"}))
        ...     _ = rows | bt.WriteToTFRecord("few/")
    """

    runs_python = True

    schema: Schema | pa.Schema
    batch_rows: int = DEFAULT_BATCH_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.schema, Schema | pa.Schema):
            raise UsageError("BatchRows needs a schema: a beam_tfrecord.Schema or a pyarrow.Schema")

    def expand(self, rows: beam.PCollection) -> beam.PCollection[Batch]:
        """Add the step that gathers rows."""
        check_input(rows, self)
        check_lossless(rows.pipeline)
        gather = _Gather("rows", as_arrow_schema(self.schema), self.batch_rows)
        return in_one_window(rows) | "GatherRows" >> beam.ParDo(gather).with_output_types(Batch)


def as_dict(row: Any) -> dict[str, Any]:
    """Return a dict, NamedTuple, dataclass or `beam.Row` as a dict."""
    if (found := as_row(row)) is None:
        raise cannot_write(type(row))
    return found


def batch_of_rows(rows: Sequence[Any], schema: pa.Schema) -> Batch:
    """Return a batch of rows whose origin is unknown; rows that do not fit become rejects."""
    return _typed(_NO_BATCH, _unmapped(list(map(as_dict, rows))), schema)


_NO_BATCH = Batch(pa.RecordBatch.from_arrays([], schema=pa.schema([])))


def _unmapped(rows: Sequence[Any]) -> Mapped:
    """Return rows that no function made."""
    zeros = np.zeros(len(rows), np.int64)
    return Mapped(rows, zeros, zeros, ())


def _typed(batch: Batch, rows: Mapped | None, schema: pa.Schema) -> Batch:
    assert rows is not None
    batch = mapped_batch(batch, rows, schema)
    # No function made these rows.
    rejects = (dataclasses.replace(reject, code="bad-value") for reject in batch.rejects)
    return batch.replace(rejects=tuple(rejects)) if batch.rejects else batch


def as_arrow_schema(schema: Schema | pa.Schema | None) -> pa.Schema | None:
    """Return a schema as an Arrow schema; return other values, such as None, unchanged."""
    return schema.to_arrow() if isinstance(schema, Schema) else schema


def batches_of(
    elements: beam.PCollection,
    coder: beam.coders.Coder | None,
    schema: Schema | None,
    directory: str,
) -> tuple[beam.PCollection[Batch], ...]:
    """Convert the elements of a sink, whose job has a directory, to PCollections of batches."""
    kind = "examples" if coder is not None else kind_of(elements)
    if kind == "none":
        raise cannot_write(elements.element_type)
    if kind == "batches":
        return (elements,)
    options: dict[str, Any] = {"coder": coder, "faults": directory}
    if kind == "examples" or schema is not None:
        gather = _Gather(kind, as_arrow_schema(schema), **options)
        return (elements | "Gather" >> beam.ParDo(gather).with_output_types(Batch),)
    gather = _Gather(kind, None, keeper=RowKeeper(elements.pipeline, directory), **options)
    step = beam.ParDo(gather)
    step.runs_python = True
    gathered = elements | "Gather" >> step.with_outputs(FILES, FOUND, main="batches")
    rows = typed_batches(gathered, _typed, faults=directory)
    # Not a Flatten, before which the local runner stores all batches.
    return (rows,) if kind == "rows" else (gathered.batches, rows)


class _Gather(beam.DoFn):
    """Gathers examples and rows into batches; batches pass, rows without a schema are kept."""

    def __init__(
        self,
        kind: str,
        schema: pa.Schema | None,
        most: int = DEFAULT_BATCH_ROWS,
        *,
        coder: beam.coders.Coder | None = None,
        keeper: RowKeeper | None = None,
        faults: str | None = None,
    ) -> None:
        self._kind = kind
        self._schema = schema
        self._most = most
        self._coder = coder
        self.keeper = keeper
        self._keep = Guarded(self._kept, faults)

    def start_bundle(self) -> None:
        self._rows = _Pile(self._keep if self._schema is None else self._typed, self._most)
        self._examples = _Pile(lambda found: (batch_of_examples(found),))
        self._messages = _Pile(lambda found: (batch_of_examples(canonical_examples(found)),))
        # By class, because there are few, and many elements.
        self._adders: dict[type, Callable[[Any], Iterable[Any]]] = {}
        if self.keeper is not None:
            self.keeper.start()

    def process(self, element: Any) -> Iterable[Any]:
        kind = type(element)
        add = self._adders.get(kind)
        if add is None:
            add = self._adders[kind] = self._adder_of(kind)
        return add(element)

    def _adder_of(self, kind: type) -> Callable[[Any], Iterable[Any]]:
        """Return the function that adds an element of a class."""
        if self._kind == "rows":
            return self._add_row
        if self._coder is not None:
            encode = self._coder.encode
            return lambda element: self._add_example(encode(element))
        if issubclass(kind, Batch):
            return lambda batch: (batch,)
        if issubclass(kind, bytes):
            return self._add_example
        if is_example_class(kind):
            return self._add_message
        if self._kind == "examples":
            raise UsageError(
                "a type hint of the step before says that it yields examples, but it yields "
                f"{kind.__name__}: correct the hint"
            )
        return self._add_row

    def _add_row(self, row: Any) -> Iterable[Any]:
        row = as_dict(row)
        is_sized = len(self._rows.found) % _SIZED_ROWS == 0
        return self._rows.add(row, _SIZED_ROWS * _bytes_of(row) if is_sized else 0)

    def _add_example(self, example: bytes) -> Iterable[Any]:
        return self._examples.add(example, len(example))

    def _add_message(self, example: Any) -> Iterable[Any]:
        serialized = example.SerializeToString()
        return self._messages.add(serialized, len(serialized))

    def _typed(self, rows: list[dict[str, Any]]) -> Iterable[Batch]:
        return (_typed(_NO_BATCH, _unmapped(rows), self._schema),)

    def _kept(self, rows: list[dict[str, Any]]) -> Iterator[Any]:
        assert self.keeper is not None
        found = in_columns(rows)
        types = infer_row_types(found), _NO_BATCH.data.schema
        yield from self.keeper.add(_NO_BATCH, _unmapped(found), types)

    def finish_bundle(self) -> Iterator[Any]:
        for pile in (self._examples, self._messages, self._rows):
            yield from map(in_global_window, pile.flush())
        if self.keeper is not None:
            yield from map(in_global_window, self.keeper.flush())


class _Pile:
    """Gathers elements until they are enough for a batch."""

    def __init__(
        self, outputs: Callable[[list[Any]], Iterable[Any]], most: int = DEFAULT_BATCH_ROWS
    ) -> None:
        self._outputs = outputs
        self._most = most
        self._bytes = 0
        self.found: list[Any] = []

    def add(self, element: Any, nbytes: int) -> Iterable[Any]:
        """Add an element; return the outputs of all if they are enough."""
        self.found.append(element)
        self._bytes += nbytes
        is_full = len(self.found) >= self._most or self._bytes >= _BATCH_BYTES
        return self.flush() if is_full else ()

    def flush(self) -> Iterable[Any]:
        """Return the outputs of what was added since the last time."""
        found, self.found, self._bytes = self.found, [], 0
        return self._outputs(found) if found else ()


def _bytes_of(row: dict[str, Any]) -> int:
    """Return the size of the large values of a row."""
    values = (value for value in row.values() if isinstance(value, str | bytes | np.ndarray))
    return sum(one.nbytes if isinstance(one, np.ndarray) else len(one) for one in values)


class ToRows(beam.PTransform):
    """Return the rows of batches as dicts, for other Beam code.

    A dict cannot carry rejects, so a batch with rejects is an error. Nor can it carry the split
    that `AssignSplits` assigned, so `WriteToTFRecord` refuses rows that had one.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromCsv("trips.csv") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """

    runs_python = True

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[dict[str, Any]]:
        """Add the step that returns every row."""
        check_batches(batches, self)
        return batches | "ToRows" >> beam.FlatMap(_rows_of).with_output_types(dict[str, Any])


def _rows_of(batch: Batch) -> list[dict[str, Any]]:
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    return python_rows(batch.data)


@dataclasses.dataclass(eq=False)
class EncodeExamples(beam.PTransform):
    """Encode each row of batches as a serialized `tf.train.Example` in canonical form.

    Bytes cannot carry the split that `AssignSplits` assigned, so `WriteToTFRecord` refuses examples
    of rows that had one.

    Attributes:
        schema: Schema to enforce; None means that of the batches.

    Example:
        >>> with bt.pipeline() as p:
        ...     examples = p | bt.ReadFromCsv("trips.csv") | bt.EncodeExamples()
        ...     _ = examples | beam.Map(len) | beam.Map(print)
        33
    """

    runs_python = True

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

    Example:
        >>> with bt.pipeline() as p:
        ...     examples = p | beam.Create([{"id": 1}]) | bt.ToExample(pa.schema({"id": "int64"}))
        ...     _ = examples | beam.Map(lambda one: print("id" in one.features.feature))
        True
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
