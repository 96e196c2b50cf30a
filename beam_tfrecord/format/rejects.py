"""Stores the list of rejects (rows that could not be written), and checks it against a budget."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.parquet as pq

from beam_tfrecord import native
from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import DataError, RejectedRows, UsageError
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.rows.batch import Reject
from beam_tfrecord.storage import WholeFile, put, read_bytes

REJECTS_FILE = "rejects/rejects-00000.parquet"
# The list of a failed job, in its temporary directory: it may exceed the budget.
SAVED_FILE = "rejects.parquet"

# Rows that are hashed and written at a time: a row group of the Parquet file.
TABLE_ROWS = 16_384

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("unit", pa.string()),
        pa.field("row", pa.int64()),
        pa.field("column", pa.string()),
        pa.field("code", pa.string()),
        pa.field("message", pa.string()),
        pa.field("value", pa.string()),
        pa.field("address", pa.string()),
    ]
)
# A table of many rejects may have more text than the offsets of `string` reach.
_TEMPORARY_SCHEMA = pa.schema(
    [
        field.with_type(pa.large_string()) if pa.types.is_string(field.type) else field
        for field in [*REJECTS_SCHEMA, pa.field("lines", pa.int64())]
    ]
)

# An error shows this many causes of rejects, and addresses of each.
SHOWN = 3
# At most this many causes are distinguished, so that messages with values do not fill the memory.
MAX_CAUSES = 1000
_OTHER = ("", "", "other reasons")
# Parts of a message that differ between rejects of one cause.
_DETAIL = re.compile(r"""'[^']*'|"[^"]*"|\d+""")


@dataclasses.dataclass(frozen=True)
class RejectBudget:
    """The number of rows that a job may reject and still publish its output."""

    rows: int | None = 0
    percent: float | None = None

    def allows(self, rejects: int, rows: int) -> bool:
        """Return whether the budget allows `rejects` of `rows` rows read."""
        if self.percent is not None:
            return rejects * 100 <= self.percent * rows
        return self.rows is None or rejects <= self.rows

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{self.percent:g}%"
        return "any" if self.rows is None else str(self.rows)


def parse_budget(budget: int | str) -> RejectBudget:
    """Parse ``3``, ``0.5%`` or ``any``."""
    text = str(budget).strip()
    try:
        if text == "any":
            return RejectBudget(rows=None)
        if text.endswith("%"):
            percent = float(text[:-1])
            if not 0 <= percent <= 100:
                raise ValueError
            return RejectBudget(percent=percent)
        if int(text) < 0:
            raise ValueError
        return RejectBudget(rows=int(text))
    except ValueError:
        raise UsageError(f"cannot read reject budget {text!r}: write 10, 0.5% or any") from None


def write_rejects(path: str, rejects: Sequence[Reject]) -> None:
    """Write rejects to a temporary file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _TEMPORARY_SCHEMA) as writer:
        rows = list(map(dataclasses.asdict, rejects))
        writer.write_batch(pa.RecordBatch.from_pylist(rows, _TEMPORARY_SCHEMA))
    with WholeFile(path, outlasts=False) as file:
        file.write(sink.getvalue())


def sorted_rejects(paths: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rejects of temporary files, sorted by all columns, in tables of `TABLE_ROWS` rows.

    Meanwhile all of them are in memory, about 200 bytes each.
    """
    tables = [pa.ipc.open_stream(read_bytes(path)).read_all() for path in paths]
    table = pa.concat_tables([_TEMPORARY_SCHEMA.empty_table(), *tables]).combine_chunks()
    del tables
    # The random names of files do not affect the order, because rows are sorted by all values.
    order = pc.sort_indices(table, [(name, "ascending") for name in table.column_names])
    for start in range(0, len(order), TABLE_ROWS):
        yield table.take(order[start : start + TABLE_ROWS])


def rejected_rows(paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rejects of temporary files one by one, in the order of `sorted_rejects`."""
    return itertools.chain.from_iterable(map(pa.Table.to_pylist, sorted_rejects(paths)))


class HashedSink(io.RawIOBase):
    """Writable stream for Arrow that hashes the bytes it writes to a file; it never closes it."""

    def __init__(self, file: WholeFile) -> None:
        super().__init__()
        self._file = file
        self.hash = native.XXH64(0)

    def writable(self) -> bool:
        """Return True, as Arrow requires of a stream that it writes to."""
        return True

    def write(self, data: Any) -> int:
        """Write all bytes of a buffer and return their number."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self.hash.update(view)
        return len(view)


@dataclasses.dataclass(frozen=True)
class SavedRejects:
    """The number and the hashes of the rejects in the Parquet file that lists them."""

    rows: int
    xxh64: str
    stored_xxh64: str


def join_rejects(paths: Sequence[str], path: str) -> SavedRejects:
    """Join temporary files of rejects into one Parquet file, which is written atomically."""
    if not paths:
        return SavedRejects(0, rejects_hash(REJECTS_SCHEMA.empty_table()), "")
    table = pa.concat_tables(sorted_rejects(paths))
    listed = table.drop_columns("lines").cast(REJECTS_SCHEMA)
    rows = pc.sum(table["lines"]).as_py()
    return SavedRejects(rows, rejects_hash(listed), save_rejects(listed, path))


def save_rejects(table: pa.Table, path: str) -> str:
    """Write a table of rejects to a Parquet file, atomically, and return the XXH64 of the file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=TABLE_ROWS, compression="zstd")
    data = sink.getvalue()
    put(path, data)
    return data_hash(data)


def load_rejects(paths: Iterable[str]) -> pa.Table:
    """Read Parquet files of rejected rows."""
    tables = [REJECTS_SCHEMA.empty_table()]
    for path in paths:
        try:
            tables.append(pq.read_table(pa.BufferReader(read_bytes(path))))
        except (ValueError, pa.ArrowException) as error:
            raise DataError(str(error)) from error
        if tables[-1].schema != REJECTS_SCHEMA:
            raise DataError("it has other columns than a file of rejects")
    return pa.concat_tables(tables)


def rejects_hash(table: pa.Table) -> str:
    """Return the XXH64 of a table of rejects, as one JSON list of objects, in hex digits.

    It does not depend on the Parquet writer.
    """
    digest, between = native.XXH64(0), b"["
    for batch in table.to_batches(TABLE_ROWS):
        for row in batch.to_pylist():
            digest.update(between + json.dumps(row, ensure_ascii=False, sort_keys=True).encode())
            between = b", "
    digest.update(b"]" if table.num_rows else b"[]")
    return f"{digest.intdigest():016x}"


def rejected(
    budget: RejectBudget, rows: int, rejects: Iterable[dict[str, Any]], listed: str
) -> RejectedRows:
    """Return the error for a job that rejected more rows than its budget allows.

    Rejects with one cause share a line, with the message of the first and the addresses of others.
    They have the same column, code and message, apart from numbers and quoted texts.
    """
    counts: Counter[tuple[str, ...]] = Counter()
    numbers: Counter[tuple[str, ...]] = Counter()
    first: defaultdict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rejects:
        message = row["message"].replace(row["address"] or "", "")
        cause: tuple[str, ...] = (row["column"], row["code"], _DETAIL.sub("", message))
        if len(counts) >= MAX_CAUSES and cause not in counts:
            cause = _OTHER
        counts[cause] += row["lines"]
        numbers[cause] += 1
        if len(first[cause]) < SHOWN:
            first[cause].append(row)
    total = counts.total()
    is_functions = {code for _, code, _ in counts} == {"map-error"}
    what, wrong = ("cannot be written", "rows")
    if is_functions:
        what, wrong = ("made the map function fail", "function")
    lines = [f"{total:,} of {counted(rows, 'row')} {what} (allowed: {budget}):"]
    shown = counts.most_common(SHOWN)
    for cause, count in shown:
        lines.append(f"{counted(count, 'row')}: {first[cause][0]['message']}")
        if also := [row["address"] for row in first[cause][1:] if row["address"]]:
            more = numbers[cause] - 1 - len(also)
            lines.append(f"  also {', '.join(also)}{f' and {more:,} more' if more else ''}")
    if others := total - sum(count for _, count in shown):
        lines.append(f"{counted(others, 'row')} for other reasons")
    lines.append(
        f"correct the {wrong}, or leave these rows out by --max-rejects; to list them: "
        f"beam-tfrecord head {shlex.quote(listed)}"
    )
    return RejectedRows("\n  ".join(lines))
