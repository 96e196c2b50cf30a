"""Transforms that map rows or batches by a user's function, and that assign rows to splits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout, make_splits
from beam_tfrecord.records.mapped_rows import (
    Mapped,
    RowTypes,
    call_on_rows,
    error_text,
    infer_row_types,
    mapped_batch,
    returned_schema,
)
from beam_tfrecord.rows.batch import Batch, check_batch
from beam_tfrecord.rows.beam import in_one_window
from beam_tfrecord.transforms.pipeline_facts import apply_step, check_batches, reader_of
from beam_tfrecord.transforms.read_batches import NO_SCHEMA, NOTHING
from beam_tfrecord.transforms.rows import as_arrow_schema
from beam_tfrecord.work.stored_state import TYPES, Stored, load_schema
from beam_tfrecord.work.worker_errors import Guarded

RowFunction = Callable[[dict[str, Any]], Any]


@dataclasses.dataclass(eq=False)
class MapRows(beam.PTransform):
    """Call a Python function on every row.

    The function takes a row as a dict and returns a dict, NamedTuple, dataclass or `beam.Row`, None
    (drops the row), a list of these (the row becomes several), or a `tf.train.Example` or its
    bytes. If the function raises an error, the row is rejected; the reject names the line of code
    that raised it.

    The types of the returned rows come from `schema`, else from the function's TypedDict,
    NamedTuple or dataclass return hint, else from one more pass, which calls the function on all
    rows. A column keeps its type in this pass if the new values fit it. Batches that come through
    other Beam code cannot be read again for this pass, so the runner stores them until the types
    are known: pass a schema or a hint to avoid this.

    Attributes:
        function: The function.
        schema: Types of the mapped rows; None means by the return hint or by inference.
        faults: Directory where a data error is recorded for the launcher; None means that
            the worker raises it.
        resume: Directory of a job that may be resumed, where inferred types are stored; None if the
            job cannot be resumed.
    """

    runs_python = True

    function: RowFunction
    schema: Schema | pa.Schema | None = None
    faults: str | None = None
    resume: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        given: Any = self.function
        if not callable(given):
            name = type(given).__name__
            raise UsageError(f"MapRows needs a function, not {name}: a DoFn goes after ToRows()")

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Add the step that calls the function on every batch."""
        function = functools.partial(_map_rows, self.function)
        return apply_step(self, batches, "MapBatch", function, self.types(batches))

    def types(self, batches: beam.PCollection[Batch]) -> Any:
        """Return the schema of the mapped rows if it is known, else a side input that infers it."""
        check_batches(batches, self)
        schema = as_arrow_schema(self.schema)
        if schema is None:
            schema = returned_schema(getattr(self.function, "function", self.function))
        if schema is None:
            schema = load_schema(self.resume, TYPES)
        if schema is not None:
            return schema
        reader = reader_of(batches)
        # Output of other code cannot be read again.
        rows = (
            in_one_window(batches) if reader is None else batches.pipeline | "ReadToInfer" >> reader
        )
        infer = functools.partial(_infer_types, self.function)
        merge = Stored(_merge_types, self.resume, TYPES)
        inferred = (
            rows
            | "InferTypes" >> beam.FlatMap(Guarded(infer, self.faults))
            | "GatherTypes" >> beam.combiners.ToList()
            | "SchemaOfTypes" >> beam.FlatMap(Guarded(merge, self.faults, instead=[NO_SCHEMA]))
        )
        return beam.pvalue.AsSingleton(inferred)


def _map_rows(function: RowFunction, batch: Batch, schema: pa.Schema) -> Iterator[Batch]:
    if batch.data.num_columns:
        yield mapped_batch(batch, call_on_rows(batch, function), schema)
    else:
        yield batch


def _infer_types(function: RowFunction, batch: Batch) -> Iterator[tuple[RowTypes, pa.Schema]]:
    check_batch(batch, "MapRows")
    mapped = call_on_rows(batch, function)
    try:
        types = infer_row_types(mapped.rows)
    except SchemaConflict as error:
        raise _located(error, batch, mapped) from error
    yield types, batch.data.schema


def _located(error: SchemaConflict, batch: Batch, mapped: Mapped) -> SchemaConflict:
    """Return the error of the first row that has it alone, with its address; else `error`."""
    origin = batch.exact_origin
    for result, source in zip(mapped.rows, mapped.source_rows, strict=True):
        try:
            infer_row_types([result])
        except SchemaConflict as found:
            if origin is None:
                return found
            number = int(origin.row_numbers(batch.num_rows)[source])
            return SchemaConflict(f"{origin.address_of(number)}: {found.message}")
    return error


def _merge_types(
    found: Iterable[tuple[RowTypes, pa.Schema]],
) -> Iterator[pa.Schema]:
    pairs = list(found)
    types = functools.reduce(lambda one, other: one.merge(other), (t for t, _ in pairs), RowTypes())
    yield types.to_arrow(_in_common({schema for _, schema in pairs}))


def _in_common(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return a schema of the columns that have one type in all schemas that contain them."""
    found: dict[str, list[pa.Field]] = {}
    for schema in sorted(schemas, key=str):
        for field in schema:
            found.setdefault(field.name, []).append(field)
    same = (fields for fields in found.values() if len({field.type for field in fields}) == 1)
    return pa.schema([fields[0] for fields in same])


@dataclasses.dataclass(eq=False)
class MapBatches(beam.PTransform):
    """Call a function from `pyarrow.RecordBatch` to `pyarrow.RecordBatch` on every batch.

    If the function raises an error, all rows of the batch are rejected.

    Attributes:
        function: The function. It is also called on batches that have columns but no rows.
        keeps_rows: True if the function returns one row for each row, in order, so that rows keep
            their numbers. If False, the position of a row in the shuffled order follows from its
            bytes; in source order, rows have the order in which the function returned them.
        faults: Directory where a data error is recorded for the launcher; None means that
            the worker raises it.
    """

    runs_python = True

    function: Callable[[pa.RecordBatch], pa.RecordBatch]
    keeps_rows: bool = True
    faults: str | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Add the step that calls the function on every batch."""
        function = functools.partial(map_batch, self.function, self.keeps_rows)
        return apply_step(self, batches, "MapBatch", function)


def map_batch(
    function: Callable[[pa.RecordBatch], pa.RecordBatch], keeps_rows: bool, batch: Batch
) -> Iterator[Batch]:
    """Yield the result of `function` for a batch; if it raises an error, reject all rows."""
    if not batch.data.num_columns:
        yield batch
        return
    try:
        data = function(batch.data)
    except MemoryError:
        raise
    except Exception as error:
        yield from _rejected_batch(batch, error)
        return
    if isinstance(data, pa.Table):
        # A table without rows may have no batch.
        batches = data.combine_chunks().to_batches()
        data = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=data.schema)
    if not isinstance(data, pa.RecordBatch):
        raise DataError(f"a batch function returns a RecordBatch, not {type(data).__name__}")
    if not keeps_rows:
        origin = batch.origin
        if origin is not None:
            origin = origin.in_order(batch.num_rows, data.num_rows)
        yield batch.replace(
            data=data, origin=origin, numbers=batch.numbers_in(data, rows_unknown=True)
        )
        return
    if data.num_rows != batch.num_rows:
        raise DataError(
            f"a batch function returned {counted(data.num_rows, 'row')} for {batch.num_rows}: "
            "pass keeps_rows=False"
        )
    yield batch.replace(data=data, numbers=batch.numbers_in(data))


def _rejected_batch(batch: Batch, error: Exception) -> Iterator[Batch]:
    """Yield a batch without rows, with a reject for each row of `batch`."""
    text = error_text(error)
    rejects = (batch.reject(row, "map-error", text) for row in range(batch.num_rows))
    # No columns, since it is unknown which columns the function would have returned.
    lost = batch.replace(data=NOTHING, origin=None, rows_read=batch.rows_counted)
    yield lost.replace(rejects=(*batch.rejects, *rejects))


class AssignSplits(beam.PTransform):
    """Assign every row to a split by its present values.

    The arguments are those by which `WriteToTFRecord` splits rows. Each batch of the output
    has the rows of one split, and `WriteToTFRecord` writes them to that split. Rows are split only
    once: another `AssignSplits`, or a `WriteToTFRecord` with `splits`, `split_column` or `group`,
    refuses rows that have a split, even an equal one.

    Args:
        splits: Shares by name: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names the split.
        group: Columns whose equal values share a split; without it, equal examples do.
        seed: Seed of the hash that decides the split.

    Raises:
        UsageError: The arguments do not fit together.
    """

    def __init__(
        self,
        splits: Mapping[str, float] | str | None = None,
        *,
        split_column: str | None = None,
        group: Sequence[str] | str = (),
        seed: int | None = 0,
    ) -> None:
        super().__init__()
        self._layout = Layout(
            make_splits(splits, column=split_column, group=group), seed=check_seed(seed)
        )
        self._schema: Schema | None = None
        self.faults: str | None = None

    @classmethod
    def of_layout(
        cls, layout: Layout, *, schema: Schema | None = None, faults: str | None = None
    ) -> AssignSplits:
        """Return the transform that splits rows as a job with this layout and schema does."""
        step = cls()
        step._layout, step._schema, step.faults = layout, schema, faults
        return step

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Add the step that divides every batch by split."""
        split = functools.partial(split_batch, layout=self._layout, schema=self._schema)
        assigned = apply_step(self, batches, "AssignSplits", split)
        assigned.beam_tfrecord_has_splits = True
        return assigned


def split_batch(batch: Batch, layout: Layout, schema: Schema | None = None) -> Iterator[Batch]:
    """Yield one batch for each split that occurs in a batch, in order of the splits' numbers."""
    block = Block(layout, schema)
    written = block.add(batch)
    numbers = block.splits
    if numbers is None:
        numbers = np.zeros(len(written), np.uint16)
    rejects, read, refused = tuple(block.rejects), batch.rows_counted, batch.refused
    for number in np.unique(numbers):
        part = batch.take(written[numbers == number])
        yield part.replace(
            split=block.split_names[number], rejects=rejects, rows_read=read, refused=refused
        )
        rejects, read, refused = (), 0, None
    if rejects or read:
        yield batch.slice(0, 0).replace(rejects=rejects, rows_read=read)
