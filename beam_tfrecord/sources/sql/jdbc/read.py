"""Results of ``jdbc:`` drivers as rows: asked, described, and streamed in blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.sources.parquet.types import cast_exactly
from beam_tfrecord.sources.sql.engine import Misfit, SqlColumn, SqlRows
from beam_tfrecord.sources.sql.jdbc.blocks import arrays_of, copy_of, layout_of
from beam_tfrecord.sources.sql.jdbc.jvm import helper, java, result_of
from beam_tfrecord.sources.sql.jdbc.types import (
    FLOAT32,
    FLOAT64,
    TEXT,
    Described,
    JdbcType,
    type_of,
    wanted_type,
)

_BLOCK_BYTES = 8 * 2**20
_CANCEL_MS = 5000
_SHOWN_CHARACTERS = 200

# Of java.sql.ResultSetMetaData.
_NO_NULLS = 0


def ask(statement: Any, sql: str) -> Any:
    """Return the ``ResultSet`` of a question."""
    task = helper("Connector").query(statement, sql)
    try:
        return result_of(task)
    finally:
        _end(task, statement)


def _end(task: Any, statement: Any, *, is_open: bool = False) -> None:
    """Cancel a statement that is still at work, and leave it alone for a moment to end."""
    if is_open or not task.isDoneWithin(0):
        with contextlib.suppress(java().JException):
            statement.cancel()
        task.isDoneWithin(_CANCEL_MS)


def described_in(meta: Any, product: str) -> list[Described]:
    """Return the columns that a ``ResultSetMetaData`` of a database describes."""
    return [
        Described(
            product=product,
            number=int(meta.getColumnType(at)),
            name=str(meta.getColumnTypeName(at)),
            precision=int(meta.getPrecision(at)),
            scale=int(meta.getScale(at)),
            label=str(meta.getColumnLabel(at)),
            nullable=int(meta.isNullable(at)) != _NO_NULLS,
        )
        for at in range(1, int(meta.getColumnCount()) + 1)
    ]


def read_rows(
    statement: Any,
    rows: Any,
    described: Sequence[Described],
    columns: Sequence[SqlColumn] | None,
    *,
    batch_rows: int,
    fetch_bytes: int,
    cancels: bool = False,
) -> Iterator[SqlRows]:
    """Stream a result in blocks.

    Args:
        statement: The ``Statement`` that gave the result.
        rows: The ``ResultSet``.
        described: Its columns.
        columns: What to make of them; None: what they are by themselves, arrays as text.
        batch_rows: Rows of a block, unless it takes too many bytes before.
        fetch_bytes: Bytes that the driver fetches at a time, once the width of rows is known; 0:
            it keeps the number of rows that it was told.
        cancels: Cancel the statement where the caller does not take all rows.
    """
    wanted = [None] * len(described) if columns is None else [column.arrow for column in columns]
    readings = [_reading(of, arrow) for of, arrow in zip(described, wanted, strict=True)]
    filled = [reading.arrow for reading in readings]
    names = [of.label for of in described] if columns is None else [one.name for one in columns]
    types = [own if arrow is None else arrow for own, arrow in zip(filled, wanted, strict=True)]
    blocks = helper("RowBlocks")(rows, [reading.kind for reading in readings], fetch_bytes)
    task = blocks.start(batch_rows, _BLOCK_BYTES)
    is_open = cancels
    try:
        while count := int(result_of(task)):
            block, layout = blocks.block(), layout_of(blocks)
            misfits = list(_misfits(blocks, names, types)) if layout[-1] else []
            # Java reads on while the block is copied and used here.
            task = blocks.start(batch_rows, _BLOCK_BYTES)
            arrays = arrays_of(copy_of(block), layout, filled, count)
            yield _rows(arrays, names, types, misfits)
        is_open = False
    finally:
        _end(task, statement, is_open=is_open)


def _reading(described: Described, wanted: pa.DataType | None) -> JdbcType:
    natural = type_of(described, arrays="text")
    if wanted is None or (natural.arrow.equals(wanted) and not natural.refusal):
        return natural
    if natural is FLOAT64 and pa.types.is_float32(wanted):
        # What was described as a float of 32 bits is selected as one of 64, and fits.
        return FLOAT32
    return wanted_type(described, wanted) or TEXT


def _misfits(blocks: Any, names: Sequence[str], types: Sequence[Any]) -> Iterator[Misfit]:
    for one in blocks.misfits():
        at, value = int(one.column), str(one.value)
        shown = f"is {value[:40]!r}, which" if value else "holds a value that"
        cure = f"{names[at]}={'bytes' if is_text(types[at]) else 'text'}"
        message = f"{shown} is not {types[at]} exactly ({one.reason}): pass --types {cure}"
        yield Misfit(int(one.row), names[at], message, value)


def _rows(
    arrays: Sequence[pa.Array], names: Sequence[str], types: Sequence[Any], misfits: list[Misfit]
) -> SqlRows:
    cast = []
    for name, values, arrow in zip(names, arrays, types, strict=True):
        array, rows = cast_exactly(values, arrow)
        cast.append(array)
        for row in rows.tolist():
            text = _shown(values[row])
            misfits.append(Misfit(row, name, f"is {text[:40]}, which is not {arrow}", text))
    return SqlRows(pa.RecordBatch.from_arrays(cast, names=list(names)), tuple(misfits))


def _shown(value: pa.Scalar) -> str:
    # Python has no dates before year 1 or after 9999.
    try:
        return str(value.as_py())[:_SHOWN_CHARACTERS]
    except (OverflowError, ValueError):
        return str(value.cast(pa.string()))
