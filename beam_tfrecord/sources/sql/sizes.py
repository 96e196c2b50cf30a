"""Estimates of how much a table holds, and of the parts to cut it into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_tfrecord.sources.sql.engine import SqlColumn, Table

# A partition is what is read again when a connection drops, and the grain of parallel reading.
PARTITION_BYTES = 32 * 2**20
PARTITION_ROWS = 250_000

_VARIABLE_BYTES = 32


def partition_count(table: Table | None, rows: int | None, row_bytes: int) -> int:
    """Return how many partitions to make: a function of the data alone, and a power of two.

    Few partitions are dealt out evenly so, whether there are two workers or eight.

    Args:
        table: What is read, where it is a table.
        rows: How many there are; None: the catalogue's estimate is good enough.
        row_bytes: Size of one.
    """
    known = (table.rows if rows is None and table else rows) or 0
    least = max(known * row_bytes // PARTITION_BYTES, known // PARTITION_ROWS, 1)
    return 1 << (least - 1).bit_length()


def row_bytes_of(table: Table | None, rows: int | None, columns: Sequence[SqlColumn]) -> int:
    """Estimate the bytes of a row: of its fixed columns, and what the catalogue tells of others."""
    fixed = sum(_column_bytes(column.arrow) for column in columns)
    if table is None or table.bytes is None:
        return fixed
    total = table.rows or rows
    return max(fixed, table.bytes // total) if total else fixed


def _column_bytes(arrow: Any) -> int:
    try:
        return max(1, int(arrow.bit_width) // 8)
    except ValueError:
        return _VARIABLE_BYTES
