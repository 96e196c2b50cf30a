"""`Batch`, the element that flows through every stage before encoding.

A batch is an Arrow record batch together with its *origin*: the unit of the source its rows were
read from and their row numbers there. The origin decides where a row lands in the dataset, so it
stays aligned with the data whatever a stage does. It is never kept in Arrow metadata, which
survives slicing and would go stale.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.lowering_text import to_text
from beam_tfrecord.images import Refused

Int64Array = npt.NDArray[np.int64]

# Labels of the steps of a pipeline that rows have passed, the reader first.
Way = tuple[str, ...]

DEFAULT_BATCH_ROWS = 16_384


@dataclasses.dataclass(frozen=True)
class Reject:
    """A row that could not be written, and why.

    Attributes:
        unit: Name of the unit the row was read from; empty where rows have no stable origin.
        row: Row number within the unit, from 0; -1 where unknown.
        column: The column at fault; empty where the whole row is.
        code: Short stable reason, such as ``bad-value`` or ``too-large``.
        message: One line for a human, with file and line where known.
        value: The value at fault as text, cut to 200 characters.
    """

    unit: str
    row: int
    column: str
    code: str
    message: str
    value: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Origin:
    """Where the rows of a batch came from.

    Attributes:
        unit: Name of the unit: a function of the input alone.
        index: Position of the unit in source order over the whole input, from 0.
        rows: Number of the first row where rows are consecutive, else one int64 number a row.
        sub: One int64 a row counting the rows that one source row became; None means all 0.
        is_exact: False where the numbers give the order of the rows and no more: which rows of
            the unit these are is not known, so their place follows from their bytes.
    """

    unit: str
    index: int
    rows: int | Int64Array
    sub: Int64Array | None = None
    is_exact: bool = True

    def row_numbers(self, num_rows: int) -> Int64Array:
        """Return the row numbers, shape `[num_rows]`."""
        if isinstance(self.rows, np.ndarray):
            return self.rows
        return np.arange(self.rows, self.rows + num_rows, dtype=np.int64)

    def take(self, indices: Int64Array, num_rows: int) -> Origin:
        """Return the origin of the rows `indices` of a batch with `num_rows` rows."""
        sub = None if self.sub is None else self.sub[indices]
        return dataclasses.replace(self, rows=self.row_numbers(num_rows)[indices], sub=sub)

    def in_order(self, num_rows: int, made: int) -> Origin | None:
        """Return the origin of `made` rows that a function made of all `num_rows` rows, in order.

        The rows share the range of numbers that was there; None where there was none.
        """
        if not num_rows:
            return None
        numbers = self.row_numbers(num_rows)[np.arange(made) * num_rows // max(num_rows, made)]
        return dataclasses.replace(self, rows=numbers, sub=None, is_exact=False)

    def slice(self, start: int, stop: int) -> Origin:
        """Return the origin of the rows `start` to `stop`."""
        rows = self.rows[start:stop] if isinstance(self.rows, np.ndarray) else self.rows + start
        sub = None if self.sub is None else self.sub[start:stop]
        return dataclasses.replace(self, rows=rows, sub=sub)


@dataclasses.dataclass(frozen=True)
class Part:
    """Which part of its group of units a batch is, where the work may be resumed.

    Attributes:
        key: Tells the group, and the state of its files, from any other.
        number: Position among the batches of the group, from 0.
        is_last: The group ends here.
    """

    key: str
    number: int
    is_last: bool


@dataclasses.dataclass(frozen=True, eq=False)
class FileColumn:
    """A column whose values are files, each from its first byte to its last.

    Attributes:
        name: Of the column.
        paths: What opens the file on this machine; null where a value is none; one a row.
    """

    name: str
    paths: pa.BinaryArray

    def take(self, indices: Int64Array) -> FileColumn:
        """Return what belongs to the rows `indices`."""
        return dataclasses.replace(self, paths=self.paths.take(pa.array(indices, pa.int64())))

    def slice(self, start: int, stop: int) -> FileColumn:
        """Return what belongs to the rows `start` to `stop`."""
        return dataclasses.replace(self, paths=self.paths.slice(start, stop - start))


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Rows in columns, with their origin.

    Attributes:
        data: The rows.
        origin: Where they came from; None where rows have no stable number, in which case their
            place in the dataset follows from their bytes.
        group: Number of the planned group of units this batch was read with; None outside a plan.
        split: Name of the split all rows belong to, once `AssignSplits` has run.
        rejects: Rows lost on the way to this batch, to be reported by the sink.
        encoded: True where the one column of `data` holds serialized examples, not values.
        rows_read: Rows of the source that became this batch, however many are left of them; None
            where each row is one.
        part: Which part of its group this is; None where nothing is resumed.
        files: Which values are whole files; None where that is not known.
        way: The steps of this package that the rows have passed in a pipeline.
        input_hash: Hash of the bytes that a group of units was read from, in the batch of no rows
            that ends it; None in all others.
        numbers: Columns of floats of `data`, again, whose numbers were more exact before they were
            brought to its types: float64 from which they round to float32 as the numbers would, or
            the text that they were.
        refused: Pictures among the rows read that TensorFlow refuses, to be reported by the sink.
    """

    data: pa.RecordBatch
    origin: Origin | None = None
    group: int | None = None
    split: str | None = None
    rejects: tuple[Reject, ...] = ()
    encoded: bool = False
    rows_read: int | None = None
    part: Part | None = None
    files: FileColumn | None = None
    way: Way = ()
    input_hash: int | None = None
    numbers: pa.RecordBatch | None = None
    refused: Refused | None = None

    def __post_init__(self) -> None:
        if self.origin is None:
            return
        for numbers in (self.origin.rows, self.origin.sub):
            if isinstance(numbers, np.ndarray) and len(numbers) != self.data.num_rows:
                raise ValueError(
                    f"origin has {len(numbers)} row numbers for {self.data.num_rows} rows"
                )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.data.num_rows)

    @property
    def exact_origin(self) -> Origin | None:
        """The origin where each row has a number of its own; else None."""
        return self.origin if self.origin is not None and self.origin.is_exact else None

    @property
    def rows_counted(self) -> int:
        """Rows of the source that this batch stands for, the rejected ones included."""
        return self.num_rows + len(self.rejects) if self.rows_read is None else self.rows_read

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of Python values."""
        yield from self.data.to_pylist()

    def replace(self, **changes: Any) -> Batch:
        """Return a copy with `changes`; nothing else is known of new data."""
        if "data" in changes:
            changes = {"files": None, "numbers": None, **changes}
        return dataclasses.replace(self, **changes)

    def take(self, indices: Int64Array) -> Batch:
        """Return the rows `indices`, in that order; reports and counts stay with the original."""
        origin = None if self.origin is None else self.origin.take(indices, self.num_rows)
        data = self.data.take(pa.array(indices, pa.int64()))
        read = None if self.rows_read is None else 0
        files = None if self.files is None else self.files.take(indices)
        numbers = None if self.numbers is None else self.numbers.take(pa.array(indices, pa.int64()))
        beside: dict[str, Any] = {"files": files, "numbers": numbers, "refused": None}
        return self.replace(data=data, origin=origin, rejects=(), rows_read=read, **beside)

    def slice(self, start: int, stop: int) -> Batch:
        """Return the rows `start` to `stop`; reports and counts stay with the first slice."""
        origin = None if self.origin is None else self.origin.slice(start, stop)
        rejects = self.rejects if start == 0 else ()
        read = self.rows_read if start == 0 or self.rows_read is None else 0
        refused = self.refused if start == 0 else None
        data = self.data.slice(start, stop - start)
        files = None if self.files is None else self.files.slice(start, stop)
        numbers = None if self.numbers is None else self.numbers.slice(start, stop - start)
        beside: dict[str, Any] = {"files": files, "numbers": numbers, "refused": refused}
        return self.replace(data=data, origin=origin, rejects=rejects, rows_read=read, **beside)

    def numbers_in(
        self, data: pa.RecordBatch, rows: Int64Array | None = None, *, whole: bool = False
    ) -> pa.RecordBatch | None:
        """Return the `numbers` of `data`, made from this batch: those of values that are as here.

        Args:
            data: What became of the rows.
            rows: Index in this batch of each of its rows; None: they are the same rows.
            whole: It is not known which rows they are: only columns that are as here count.
        """
        if self.numbers is None or (whole and data.num_rows != self.num_rows):
            return None
        columns: dict[str, pa.Array] = {}
        for name in self.numbers.schema.names:
            if data.schema.get_field_index(name) < 0:
                continue
            column, before, exact = (of.column(name) for of in (data, self.data, self.numbers))
            if column.type not in (pa.float32(), pa.float64()):
                continue
            if rows is not None:
                indices = pa.array(rows, pa.int64())
                before, exact = before.take(indices), exact.take(indices)
            same = pc.equal(_bits(column), _bits(before))
            same = pc.fill_null(same, pc.and_(column.is_null(), before.is_null()))
            if whole and not pc.all(same, min_count=0).as_py():
                continue
            is_text = pa.types.is_string(exact.type)
            own = to_text(column) if is_text else pc.cast(column, pa.float64())
            columns[name] = pc.if_else(same, exact, own)
        return pa.RecordBatch.from_pydict(columns) if columns else None


def _bits(floats: pa.Array) -> pa.Array:
    """Return the bits of floats as float64: there NaN equals itself, and 0.0 is not -0.0."""
    return pc.cast(floats, pa.float64()).view(pa.int64())


def batch_from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, **fields: Any) -> Batch:
    """Build a batch from row dicts.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit its column's type.
    """
    data = pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema)
    return Batch(data, **fields)


def table_of(batches: Iterable[Batch], schema: pa.Schema) -> pa.Table:
    """Join the data of `batches` into one table."""
    return pa.Table.from_batches([batch.data for batch in batches], schema=schema)


EXAMPLES_SCHEMA = pa.schema([pa.field("example", pa.large_binary(), nullable=False)])


def batch_of_examples(examples: Sequence[bytes], **fields: Any) -> Batch:
    """Build a batch of serialized examples."""
    column = pa.array(examples, pa.large_binary())
    data = pa.RecordBatch.from_arrays([column], schema=EXAMPLES_SCHEMA)
    return Batch(data, encoded=True, **fields)
