"""Transforms that map rows or batches by a user's function, and that assign rows to splits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout, refuse_counted
from beam_tfrecord.job_state.stored_state import TYPES, forget_done, load_schema
from beam_tfrecord.job_state.worker_errors import Guarded
from beam_tfrecord.records.mapped_rows import Mapped, call_on_rows, error_text, mapped_batch
from beam_tfrecord.records.row_types import RowTypes, in_columns, infer_row_types, returned_schema
from beam_tfrecord.rows.batch import Batch, check_batch
from beam_tfrecord.rows.beam import in_global_window, in_one_window
from beam_tfrecord.selection.select import make_splits
from beam_tfrecord.transforms.kept_rows import FILES, FOUND, RowKeeper, typed_batches
from beam_tfrecord.transforms.read_batches import NOTHING
from beam_tfrecord.transforms.rows import as_arrow_schema
from beam_tfrecord.transforms.steps import apply_step, check_batches, remember_reader, step_label

RowFunction = Callable[[dict[str, Any]], Any]


@dataclasses.dataclass(eq=False)
class MapRows(beam.PTransform):
    """Call a Python function on every row.

    The function takes a row as a dict and returns a dict, NamedTuple, dataclass or `beam.Row`, None
    (drops the row), a list of these (the row becomes several), or a `tf.train.Example` or its
    bytes. If the function raises an error, the row is rejected; the reject names the line of code
    that raised it.

    The types of the returned rows come from `schema`, else from the function's TypedDict,
    NamedTuple or dataclass return hint, else from all returned rows, which wait in temporary files
    until the last of them is there. A column keeps its type if all returned values fit it. The
    files are in the hidden directory of the sink that comes after this step; with several sinks, or
    none, they are in the directory for temporary files of this machine, and runners on other
    machines refuse the pipeline.

    The function is called once for each row, unless a runner tries a part of the work again. A job
    of `write` that is resumed calls it again for the rows of the parts that were not finished.

    Attributes:
        function: The function.
        schema: Types of the mapped rows; None means by the return hint or by inference.
        faults: Directory where a data error is recorded for the launcher; None means that
            the worker raises it.
        resume: Directory of a job that may be resumed, where inferred types are stored; None if the
            job cannot be resumed.

    Raises:
        UsageError: `function` is no function.

    Example:
        >>> def doubled(row):
        ...     return {"id": row["id"], "double": 2 * row["fare"]}
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromCsv("trips.csv") | bt.MapRows(doubled)
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'double': 5.0}
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
        """Add the steps that call the function on every batch."""
        schema = self._known_types()
        if schema is not None:
            function = functools.partial(_map_rows, self.function)
            return apply_step(self, batches, "MapBatch", function, schema)
        check_batches(batches, self)
        if self.resume is not None:
            # Types follow from all rows, so no group may be left out.
            forget_done(self.resume)
        name = step_label(batches.pipeline)
        keep = _KeepMapped(self.function, self.faults, RowKeeper(batches.pipeline, self.faults))
        kept = in_one_window(batches) | "KeepRows" >> beam.ParDo(keep).with_outputs(
            FILES, FOUND, main="none"
        )

        def typed(batch: Batch, mapped: Mapped | None, schema: pa.Schema) -> Batch:
            return _typed(batch, mapped, schema).replace(step_path=(*batch.step_path, name))

        mapped = typed_batches(kept, typed, faults=self.faults, resume=self.resume)
        mapped.beam_tfrecord_step = name
        remember_reader(batches, mapped, self)
        return mapped

    def _known_types(self) -> pa.Schema | None:
        schema = as_arrow_schema(self.schema)
        if schema is None:
            schema = returned_schema(getattr(self.function, "function", self.function))
        return load_schema(self.resume, TYPES) if schema is None else schema


def _map_rows(function: RowFunction, batch: Batch, schema: pa.Schema) -> Iterator[Batch]:
    yield _typed(batch, _mapped(function, batch), schema)


def _mapped(function: RowFunction, batch: Batch) -> Mapped | None:
    """Return what a function makes of the rows of a batch; None if that has no columns."""
    return call_on_rows(batch, function) if batch.data.num_columns else None


def _typed(batch: Batch, mapped: Mapped | None, schema: pa.Schema) -> Batch:
    return batch if mapped is None else mapped_batch(batch, mapped, schema)


class _KeepMapped(beam.DoFn):
    """Calls a function on the rows of each batch, and keeps what it returns."""

    def __init__(self, function: RowFunction, faults: str | None, keeper: RowKeeper) -> None:
        self._function = function
        self._keep = Guarded(self._outputs, faults)
        self.keeper = keeper

    def start_bundle(self) -> None:
        self.keeper.start()

    def process(self, batch: Batch) -> Iterator[Any]:
        yield from self._keep(batch)

    def _outputs(self, batch: Batch) -> Iterator[Any]:
        check_batch(batch, "MapRows")
        mapped, before = _mapped(self._function, batch), batch.data.schema
        if mapped is not None:
            mapped = dataclasses.replace(mapped, rows=in_columns(mapped.rows))
        try:
            types = RowTypes() if mapped is None else infer_row_types(mapped.rows, before)
        except SchemaConflict as error:
            assert mapped is not None
            raise _located(error, batch, mapped) from error
        yield from self.keeper.add(batch, mapped, (types, before))

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(in_global_window, self.keeper.flush())


def _located(error: SchemaConflict, batch: Batch, mapped: Mapped) -> SchemaConflict:
    """Return the error of the first row that has it alone, with its address; else `error`."""
    origin = batch.exact_origin
    for result, source in zip(mapped.rows, mapped.source_rows, strict=True):
        try:
            infer_row_types([result], batch.data.schema)
        except SchemaConflict as found:
            if origin is None:
                return found
            number = int(origin.row_numbers(batch.num_rows)[source])
            return SchemaConflict(f"{origin.address_of(number)}: {found.message}")
    return error


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

    Example:
        >>> def fares(batch):
        ...     return batch.select(["fare"])
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromCsv("trips.csv") | bt.MapBatches(fares)
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'fare': 2.5}
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
        splits: Shares by name: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``; or
            conditions in SQL, and ``rest`` for the last split.
        split_column: Column that names the split.
        group: Columns whose equal values share a split; without it, equal examples do.
        seed: Seed of the hash that decides the split.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromCsv("penguins.csv") | bt.AssignSplits("train=0.9,test=0.1")
        ...     _ = rows | bt.WriteToTFRecord("split/")
    """

    def __init__(
        self,
        splits: Mapping[str, float | str] | str | None = None,
        *,
        split_column: str | None = None,
        group: Sequence[str] | str = (),
        seed: int | None = 0,
    ) -> None:
        super().__init__()
        self._layout = Layout(
            refuse_counted(make_splits(splits, column=split_column, group=group)),
            seed=check_seed(seed),
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
