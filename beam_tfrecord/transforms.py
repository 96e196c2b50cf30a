"""Transforms of batches, in the order of the data; the logic is in pure modules."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord import rows as row_functions
from beam_tfrecord.arena import Arena
from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Reject
from beam_tfrecord.coders import BatchCoder as BatchCoder
from beam_tfrecord.encoding import Encoder
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.faults import recorded
from beam_tfrecord.hints import returned_schema
from beam_tfrecord.layout import Layout
from beam_tfrecord.reading import ReadBatches, reader_of
from beam_tfrecord.schema import Schema
from beam_tfrecord.sources import Source
from beam_tfrecord.sources.csv import Csv
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.splits import make_splits
from beam_tfrecord.windows import in_global_window

RowFunction = Callable[[dict[str, Any]], Any]


class _ReadFrom(ReadBatches):
    """A `ReadBatches` whose arguments are those of its source."""

    source_class: type[Source]

    def __init__(self, paths: Any, *, batch_rows: int = DEFAULT_BATCH_ROWS, **options: Any) -> None:
        super().__init__(self.source_class(paths=paths, **options), batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate the input here, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)


class ReadFromCsv(_ReadFrom):
    """Read CSV files as `Batch`es; the arguments are those of `beam_tfrecord.sources.csv.Csv`."""

    source_class = Csv


class ReadFromParquet(_ReadFrom):
    """Read Parquet files as `Batch`es; arguments as `beam_tfrecord.sources.parquet.Parquet`."""

    source_class = Parquet


@dataclasses.dataclass(eq=False)
class _Chain(beam.PTransform):  # type: ignore[misc]
    """A reader followed by a transform: what gives mapped batches anew."""

    reader: beam.PTransform
    step: beam.PTransform

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        return begin | "Read" >> self.reader | "Step" >> self.step


def _remember_reader(
    before: beam.PCollection, after: beam.PCollection, step: beam.PTransform
) -> None:
    """Let later transforms read mapped rows anew."""
    reader = reader_of(before)
    if reader is not None:
        after.beam_tfrecord_reader = _Chain(reader, step)


@dataclasses.dataclass(eq=False)
class MapRows(beam.PTransform):  # type: ignore[misc]
    """Call a Python function on every row.

    The function takes a row as a dict and returns a dict, None (the row is left out), a list of
    these (the row becomes several), or a `tf.train.Example` or bytes. A row whose function raises
    is a reject, with the line of code that raised.

    The types of what it returns come from `schema`, or a TypedDict or NamedTuple return hint, or
    else from a pass of its own over all rows; columns that hold what they held keep their type.

    Attributes:
        function: A function, or a `beam.DoFn` with a plain `process(row)`.
        schema: Types of the mapped rows.
        faults: Directory where an error of the data is recorded for the launcher.
    """

    function: RowFunction | beam.DoFn
    schema: Schema | pa.Schema | None = None
    faults: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.function, beam.DoFn) and not callable(self.function):
            raise UsageError(f"MapRows needs a function or a DoFn, not {self.function!r}")

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Map every batch."""
        mapped = batches | "MapBatch" >> beam.ParDo(
            _MapRows(self.function, self.faults), self._types(batches)
        ).with_output_types(Batch)
        _remember_reader(batches, mapped, self)
        return mapped

    def _types(self, batches: beam.PCollection[Batch]) -> Any:
        given = _arrow_schema(self.schema)
        if given is None and not isinstance(self.function, beam.DoFn):
            given = returned_schema(getattr(self.function, "function", self.function))
        if given is not None:
            return given
        reader = reader_of(batches)
        if reader is None:
            raise UsageError(
                "MapRows cannot read these batches a second time to infer types: pass schema="
            )
        inferred = (
            batches.pipeline
            | "ReadToInfer" >> reader
            | "InferTypes" >> beam.ParDo(_InferTypes(self.function, self.faults))
            | "GatherTypes" >> beam.combiners.ToList()
            | "MergeTypes" >> beam.ParDo(recorded(_merge_types, self.faults))
        )
        return beam.pvalue.AsSingleton(inferred)


def _arrow_schema(schema: Schema | pa.Schema | None) -> pa.Schema | None:
    return schema.to_arrow() if isinstance(schema, Schema) else schema


class _RowDoFn(beam.DoFn):  # type: ignore[misc]
    """Calls a function, or the process method of a user's DoFn, on rows."""

    def __init__(self, function: RowFunction | beam.DoFn, faults: str | None) -> None:
        self._function = function
        self._faults = faults

    @property
    def _call(self) -> RowFunction:
        user = self._function
        if not isinstance(user, beam.DoFn):
            return user
        return lambda row: list(user.process(row) or ())

    def setup(self) -> None:
        if isinstance(self._function, beam.DoFn):
            self._function.setup()

    def start_bundle(self) -> None:
        if isinstance(self._function, beam.DoFn):
            self._function.start_bundle()

    def finish_bundle(self) -> None:
        if isinstance(self._function, beam.DoFn) and self._function.finish_bundle() is not None:
            raise UsageError("a DoFn given to MapRows cannot give rows in finish_bundle")

    def teardown(self) -> None:
        if isinstance(self._function, beam.DoFn):
            self._function.teardown()


class _MapRows(_RowDoFn):
    def process(self, batch: Batch, schema: pa.Schema) -> Iterator[Batch]:
        mapped = row_functions.call_on_rows(batch, self._call)
        yield row_functions.mapped_batch(batch, mapped, schema)


class _InferTypes(_RowDoFn):
    def process(self, batch: Batch) -> Iterator[tuple[row_functions.RowTypes, pa.Schema]]:
        infer = recorded(self._infer, self._faults)
        yield from infer(batch)

    def _infer(self, batch: Batch) -> Iterator[tuple[row_functions.RowTypes, pa.Schema]]:
        mapped = row_functions.call_on_rows(batch, self._call)
        yield row_functions.types_of(mapped.rows), batch.data.schema


def _merge_types(
    found: Iterable[tuple[row_functions.RowTypes, pa.Schema]],
) -> Iterator[pa.Schema]:
    pairs = list(found)
    types = functools.reduce(
        lambda one, other: one.merge(other), (t for t, _ in pairs), row_functions.RowTypes()
    )
    yield types.to_arrow(pairs[0][1] if pairs else pa.schema([]))


@dataclasses.dataclass(eq=False)
class MapBatches(beam.PTransform):  # type: ignore[misc]
    """Call a function from `pyarrow.RecordBatch` to `pyarrow.RecordBatch`.

    Attributes:
        function: Called on every batch; batches of no rows included, if it can.
        keeps_rows: True: the function returns one row for each, in order, and rows keep their
            numbers. False: their place in the dataset follows from their bytes.
        faults: Directory where an error of the data is recorded for the launcher.
    """

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    keeps_rows: bool = True
    faults: str | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Map every batch."""
        call = functools.partial(map_batch, self.function, self.keeps_rows)
        mapped = batches | "MapBatch" >> beam.ParDo(recorded(call, self.faults)).with_output_types(
            Batch
        )
        _remember_reader(batches, mapped, self)
        return mapped


def map_batch(
    function: Callable[[pa.RecordBatch], pa.RecordBatch], keeps_rows: bool, batch: Batch
) -> Iterator[Batch]:
    """Yield what `function` makes of a batch; a batch whose function raises becomes rejects.

    Raises:
        DataError: It returns no record batch, or another number of rows with `keeps_rows`.
    """
    try:
        data = function(batch.data)
    except Exception as error:
        yield from _rejected_batch(batch, error)
        return
    if isinstance(data, pa.Table):
        data = data.combine_chunks()
        data = pa.RecordBatch.from_arrays(
            [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in data.columns],
            schema=data.schema,
        )
    if not isinstance(data, pa.RecordBatch):
        raise DataError(f"a batch function returns a RecordBatch, not {type(data).__name__}")
    if not keeps_rows:
        yield batch.replace(data=data, origin=None)
        return
    if data.num_rows != batch.num_rows:
        raise DataError(
            f"a batch function returned {data.num_rows} rows for {batch.num_rows}: "
            "pass keeps_rows=False"
        )
    yield batch.replace(data=data)


def _rejected_batch(batch: Batch, error: Exception) -> Iterator[Batch]:
    """Turn a batch into rejects; one of no rows is left out, since it holds nothing to lose."""
    if not batch.num_rows and not batch.rejects:
        return
    unit = "" if batch.origin is None else batch.origin.unit
    numbers = (
        np.full(batch.num_rows, -1)
        if batch.origin is None
        else batch.origin.row_numbers(batch.num_rows)
    )
    message = f"{type(error).__name__}: {error}"
    rejects = tuple(Reject(unit, int(number), "", "map-error", message) for number in numbers)
    yield batch.slice(0, 0).replace(rejects=(*batch.rejects, *rejects))


@dataclasses.dataclass(eq=False)
class BatchRows(beam.PTransform):  # type: ignore[misc]
    """Gather rows of any other Beam code into batches.

    Takes dicts, NamedTuples and `beam.Row`s. Such rows have no stable number: their place in the
    dataset follows from their bytes, unless a key is given.

    Attributes:
        schema: Types of the rows.
        batch_rows: Rows of a batch.
    """

    schema: Schema | pa.Schema
    batch_rows: int = DEFAULT_BATCH_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.schema, Schema | pa.Schema | beam.pvalue.AsSingleton):
            raise UsageError("BatchRows needs a schema: a beam_tfrecord.Schema or a pyarrow.Schema")

    def expand(self, rows: beam.PCollection) -> beam.PCollection[Batch]:
        """Gather rows."""
        schema = _arrow_schema(self.schema)
        return rows | "GatherRows" >> beam.ParDo(
            _BatchRows(self.batch_rows), schema
        ).with_output_types(Batch)


class _BatchRows(beam.DoFn):  # type: ignore[misc]
    def __init__(self, batch_rows: int) -> None:
        self._batch_rows = batch_rows
        self._schema: pa.Schema | None = None
        self._rows: list[dict[str, Any]] = []

    def start_bundle(self) -> None:
        self._rows = []

    def process(self, row: Any, schema: pa.Schema) -> Iterator[Batch]:
        self._schema = schema
        self._rows.append(as_dict(row))
        if len(self._rows) >= self._batch_rows:
            yield self._take()

    def finish_bundle(self) -> Iterator[Any]:
        if self._rows:
            yield in_global_window(self._take())

    def _take(self) -> Batch:
        rows, self._rows = self._rows, []
        assert self._schema is not None
        return batch_of_rows(rows, self._schema)


def as_dict(row: Any) -> dict[str, Any]:
    """Return a dict, NamedTuple or `beam.Row` as a dict.

    Raises:
        DataError: It is something else.
    """
    if isinstance(row, dict):
        return row
    if isinstance(row, beam.Row):
        return dict(row.as_dict())
    if hasattr(row, "_asdict"):
        return dict(row._asdict())
    raise DataError(
        f"cannot write {type(row).__name__} elements: give Batch, dict, NamedTuple, beam.Row, "
        "tf.train.Example or bytes"
    )


def batch_of_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Batch:
    """Build a batch without origin; rows that do not fit the schema are rejects."""
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    zeros = np.zeros(len(rows), np.int64)
    mapped = row_functions.Mapped(list(rows), zeros, zeros, ())
    return row_functions.mapped_batch(Batch(nothing), mapped, schema)


class ToRows(beam.PTransform):  # type: ignore[misc]
    """Give the rows of batches as dicts, for any Beam code.

    Rejects cannot travel on with plain dicts, so a batch that has any is an error.
    """

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[dict[str, Any]]:
        """Give every row."""
        return batches | "ToRows" >> beam.FlatMap(_rows_of).with_output_types(dict[str, Any])


def _rows_of(batch: Batch) -> list[dict[str, Any]]:
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    return row_functions.to_rows(batch.data)


class AssignSplits(beam.PTransform):  # type: ignore[misc]
    """Put every row in its split, as it stands here.

    Takes the arguments of `WriteToTFRecord` that decide splits; every batch that follows has its
    rows in one split, which `WriteToTFRecord` then keeps.

    Args:
        splits: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names the split.
        group: Columns whose equal values share a split.
        seed: Of the hash.
    """

    def __init__(
        self,
        splits: Mapping[str, float] | str | None = None,
        *,
        split_column: str | None = None,
        group: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._layout = Layout(make_splits(splits, column=split_column, group=group), seed=seed)

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Divide every batch."""
        assigned = batches | "AssignSplits" >> beam.FlatMap(
            split_batch, self._layout
        ).with_output_types(Batch)
        _remember_reader(batches, assigned, self)
        return assigned


def split_batch(batch: Batch, layout: Layout) -> Iterator[Batch]:
    """Yield the rows of a batch by split, in order of the splits' numbers."""
    block = Block(layout)
    written = block.add(batch)
    numbers = block.splits
    if numbers is None:
        numbers = np.zeros(len(written), np.uint16)
    rejects = tuple(block.rejects)
    for number in np.unique(numbers):
        part = batch.take(written[numbers == number])
        yield part.replace(split=block.split_names[number], rejects=rejects)
        rejects = ()
    if rejects:
        yield batch.slice(0, 0).replace(rejects=rejects)


@dataclasses.dataclass(eq=False)
class EncodeExamples(beam.PTransform):  # type: ignore[misc]
    """Encode batches as serialized `tf.train.Example`s in canonical form, one a row.

    Attributes:
        schema: Given schema; None: that of the batches.
    """

    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[bytes]:
        """Encode every batch."""
        return batches | "EncodeExamples" >> beam.FlatMap(
            examples_of, self.schema
        ).with_output_types(bytes)


def examples_of(batch: Batch, schema: Schema | None = None) -> Iterator[bytes]:
    """Yield the serialized example of every row.

    Raises:
        DataError: A row cannot be encoded.
    """
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    if batch.encoded:
        yield from batch.data.column(0).to_pylist()
        return
    arena = Arena()
    encoded = Encoder(schema or Schema.from_arrow(batch.data.schema)).encode(batch, arena)
    if encoded.rejects:
        raise DataError(encoded.rejects[0][3])
    ends = np.append(arena.starts[1 : arena.records], arena.size)
    for start, end in zip(arena.starts[: arena.records], ends, strict=True):
        yield arena.data[start + 12 : end - 4].tobytes()


class ToExample(beam.DoFn):  # type: ignore[misc]
    """Turn row dicts into `tf.train.Example`s; needs TensorFlow on the workers.

    Args:
        schema: Types of the rows.
    """

    def __init__(self, schema: Schema | pa.Schema) -> None:
        self._schema = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)

    def process(self, row: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the example of a row."""
        import tensorflow as tf

        batch = batch_of_rows([row], self._schema.to_arrow())
        for example in examples_of(batch, self._schema):
            yield tf.train.Example.FromString(example)
