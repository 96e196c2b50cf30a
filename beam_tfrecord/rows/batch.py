"""`Batch`, an Arrow record batch with the origin of its rows: what pipelines pass between steps.

The *origin* is the unit (the part of the input that one worker reads at a time) and the number of
each row within the unit. The origin decides the position of a row in the dataset, so every step
keeps it aligned with the rows. It is not in the Arrow metadata, because a slice of a record batch
would keep the metadata of all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_arrays import take_rows, to_text
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.images import Refused
from beam_tfrecord.native.kernel_types import Int64Array

DEFAULT_BATCH_ROWS = 16_384
MAX_VALUE_CHARS = 200
# Messages of libraries may have whole values.
_MAX_MESSAGE_CHARS = 2_000

# Labels of the pipeline steps that rows have passed, the reader first.
StepPath = tuple[str, ...]

EXAMPLES_SCHEMA = pa.schema([pa.field("example", pa.large_binary(), nullable=False)])
# Length of a value in a message, which has to fit on one line.
_SHOWN_CHARS = 40


@dataclasses.dataclass(frozen=True)
class Reject:
    """A row that could not be written, with the reason.

    Attributes:
        unit: Name of the unit that the row was read from; empty if rows have no stable origin.
        row: Row number within the unit, from 0; -1 if unknown.
        column: The column at fault; empty if the fault is not in a single column.
        code: Short stable reason, such as ``bad-value`` or ``too-large``.
        message: One line for a person, with file and line if known; cut if it is very long.
        value: The value at fault as text, cut to `MAX_VALUE_CHARS`.
        address: Where the row is, as in `message`; empty if unknown.
        lines: Number of rows that it counts as: a broken row of CSV counts as its lines, because
            each of them may have been a row.
    """

    unit: str
    row: int
    column: str
    code: str
    message: str
    value: str = ""
    address: str = ""
    lines: int = 1

    def __post_init__(self) -> None:
        if len(self.message) > _MAX_MESSAGE_CHARS:
            object.__setattr__(self, "message", f"{self.message[:_MAX_MESSAGE_CHARS]}…")


def count_rejects(rejects: Iterable[Reject]) -> int:
    """Return the number of rows that rejects count as."""
    return sum(reject.lines for reject in rejects)


@dataclasses.dataclass(frozen=True, eq=False)
class Origin:
    """The unit that the rows of a batch were read from, and their numbers within it."""

    unit: str
    index: int
    rows: int | Int64Array
    sub: Int64Array | None = None
    is_exact: bool = True
    address: tuple[str, int] | None = None

    def address_of(self, row: int) -> str:
        """Return where a row is, for messages: ``a.csv:9`` (a line) or ``a.parquet row 8``."""
        text, first = self.address or (f"{self.unit} row ", 0)
        return f"{text}{first + row}"

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
        """Return an inexact origin for the rows that a function made of a batch, in order."""
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
class BatchPosition:
    """The position of a batch in its task, in a job that can be resumed.

    A task is the units that one worker reads together.
    """

    key: str
    number: int
    is_last: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """Rows in columns, with their origin.

    Attributes:
        data: The rows.
        origin: Unit and row numbers of the rows; None if rows have no stable numbers. Then the
            bytes of a row decide its position in the dataset.
        split: Name of the split of all rows; None before `AssignSplits`.
        rejects: Rows that earlier steps rejected, for the report of the last step.
        encoded: Whether the only column of `data` holds serialized examples.
        framed: Whether these are complete records of a TFRecord file: an example between its length
            and its checksums, which are right.
        numbers: More exact values of float columns whose types rounded them: either text, or
            float64 values that round to the same float32 as the original numbers.
        refused: Images among the rows that TensorFlow cannot decode, for the report of the last
            step.
        task: Number of the task that the rows were read from; None outside of a job.
        rows_read: Number of source rows that became this batch; None if they are its rows and
            rejects.
        position: The position of the batch in its task; None if the job cannot be resumed.
        step_path: Labels of the steps that the rows have passed, the reader first.

    Example:
        >>> next(bt.ReadFromCsv("penguins.csv").batches()).data.num_rows
        344
    """

    data: pa.RecordBatch
    origin: Origin | None = None
    split: str | None = None
    rejects: tuple[Reject, ...] = ()
    encoded: bool = False
    numbers: pa.RecordBatch | None = None
    refused: Refused | None = None
    framed: bool = False
    task: int | None = None
    rows_read: int | None = None
    position: BatchPosition | None = None
    step_path: StepPath = ()

    def __post_init__(self) -> None:
        if self.origin is None:
            return
        for numbers in (self.origin.rows, self.origin.sub):
            if isinstance(numbers, np.ndarray) and len(numbers) != self.data.num_rows:
                raise ValueError(
                    f"origin has {len(numbers)} row numbers for {self.data.num_rows} rows"
                )

    def __getitem__(self, name: object) -> object:
        raise TypeError(
            "a Batch holds many rows in columns: put bt.ToRows() before a step that takes one row"
        )

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.data.num_rows)

    @property
    def rows_counted(self) -> int:
        """Number of source rows that became this batch, including rejected rows."""
        lost = count_rejects(self.rejects)
        return self.num_rows + lost if self.rows_read is None else self.rows_read

    @property
    def exact_origin(self) -> Origin | None:
        """The origin if it identifies each row, else None."""
        return self.origin if self.origin is not None and self.origin.is_exact else None

    def reject(
        self, row: int, code: str, message: str, *, column: str = "", value: str = ""
    ) -> Reject:
        """Return the reject of a row, with its address if that is known."""
        origin = self.exact_origin
        if origin is None:
            return Reject("", -1, column, code, message, value)
        number = int(origin.slice(row, row + 1).row_numbers(1)[0])
        where = origin.address_of(number)
        return Reject(origin.unit, number, column, code, f"{where}: {message}", value, where)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of Python values."""
        yield from python_rows(self.data)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with `changes`; a change of `data` also resets `numbers` to None."""
        if "data" in changes:
            changes = {"numbers": None, **changes}
        return dataclasses.replace(self, **changes)

    def take(self, indices: Int64Array) -> Self:
        """Return the rows `indices`, in that order, without reports and counts of other rows."""
        picked = pa.array(indices, pa.int64())
        return self.replace(
            data=take_rows(self.data, picked),
            origin=None if self.origin is None else self.origin.take(indices, self.num_rows),
            numbers=None if self.numbers is None else take_rows(self.numbers, picked),
            rejects=(),
            refused=None,
            rows_read=self._count_of(is_first=False),
        )

    def slice(self, start: int, stop: int) -> Self:
        """Return the rows `start` to `stop`; only a slice from row 0 has reports and counts."""
        rows, is_first = stop - start, start == 0
        return self.replace(
            data=self.data.slice(start, rows),
            origin=None if self.origin is None else self.origin.slice(start, stop),
            numbers=None if self.numbers is None else self.numbers.slice(start, rows),
            rejects=self.rejects if is_first else (),
            refused=self.refused if is_first else None,
            rows_read=self._count_of(is_first=is_first),
        )

    def _count_of(self, *, is_first: bool) -> int | None:
        return self.rows_read if is_first or self.rows_read is None else 0

    def numbers_in(
        self, data: pa.RecordBatch, rows: Int64Array | None = None, *, rows_unknown: bool = False
    ) -> pa.RecordBatch | None:
        """Return the `numbers` for data that a function made of this batch, or None.

        Values that the function did not change keep their exact number.

        Args:
            data: The result of the function.
            rows: Index in this batch of each row of `data`; None if they are the same rows.
            rows_unknown: It is unknown which rows of this batch `data` has. Then a column keeps its
                exact numbers only if all of its values equal those of this batch, row by row.
        """
        if self.numbers is None or (rows_unknown and data.num_rows != self.num_rows):
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
            if rows_unknown and not pc.all(same, min_count=0).as_py():
                continue
            is_text = pa.types.is_string(exact.type)
            own = to_text(column) if is_text else pc.cast(column, pa.float64())
            columns[name] = pc.if_else(same, exact, own)
        return pa.RecordBatch.from_pydict(columns) if columns else None


def check_batch(element: Any, step: str) -> None:
    """Check that an element of a pipeline is a batch."""
    if not isinstance(element, Batch):
        raise needs_batches(step, type(element).__name__)


def needs_batches(step: str, kind: str) -> UsageError:
    """Return the error for a step of batches whose input has elements of another type."""
    message = f"{step} needs Batch elements, not {kind}: make them by BatchRows(schema) before"
    return UsageError(message)


def _bits(floats: pa.Array) -> pa.Array:
    """Return the bits of floats as float64, in which NaN equals itself and 0.0 is not -0.0."""
    return pc.cast(floats, pa.float64()).view(pa.int64())


def batch_of_examples(examples: Sequence[bytes] | pa.Array, **fields: Any) -> Batch:
    """Return a batch of serialized examples."""
    is_array = isinstance(examples, pa.Array)
    column = examples if is_array else pa.array(examples, pa.large_binary())
    data = pa.RecordBatch.from_arrays([column], schema=EXAMPLES_SCHEMA)
    return Batch(data, encoded=True, **fields)


def bad_value(
    unit: str, row: int, where: str, column: str, value: str, problem: str, *, shown: str = ""
) -> Reject:
    """Return the reject of a row with a value that `problem` says more of: ``is not int64: …``.

    The message has the begin of the value, or the text `shown`.
    """
    message = f"column {column!r} is {shown or shortened(value)} in {where}, which {problem}"
    return Reject(unit, row, column, "bad-value", message, value[:MAX_VALUE_CHARS], where)


def shortened(text: str) -> str:
    """Return a text, cut if it is too long for a message."""
    return text[:_SHOWN_CHARS] + "…" * (len(text) > _SHOWN_CHARS)


def without_rows(batch: Batch, faulty: Mapping[int, Reject]) -> Batch:
    """Return a batch without its faulty rows, which are given by index and become its rejects."""
    if not faulty:
        return batch
    kept = np.setdiff1d(np.arange(batch.num_rows, dtype=np.int64), list(faulty))
    return batch.take(kept).replace(rejects=tuple(faulty[index] for index in sorted(faulty)))
