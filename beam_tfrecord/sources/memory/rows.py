"""Converts rows (dicts, NamedTuples, dataclasses) and dicts of columns to record batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.text import counted, repeated
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.python_values import Misfit, as_row, infer_column
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS

FIRST_ROWS = 64
NO_ROW = "there is no row: the input is empty, or an iterator that was read before"
_PIECE_BYTES = 16 * 2**20


def next_rows(rows: int, nbytes: int) -> int:
    """Return how many rows the next piece should have, given the size of the last one.

    Pieces grow to `DEFAULT_BATCH_ROWS`, or to about 16 MiB if rows are large.
    """
    fitting = _PIECE_BYTES * rows // max(1, nbytes)
    return max(1, min(DEFAULT_BATCH_ROWS, 4 * rows, fitting))


def in_pieces(piece: Callable[[int, int], pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the tables that `piece` returns for the rows from a start to a stop.

    A table without rows is the end. Each has the types of its own rows.
    """
    start, size = 0, FIRST_ROWS
    while rows := (table := piece(start, start + size)).num_rows:
        # A column whose text exceeds 2 GiB has chunks.
        yield from table.to_batches()
        start += rows
        size = next_rows(rows, table.nbytes)


def row_batches(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield rows in pieces."""
    iterator = iter(rows)
    return in_pieces(lambda start, stop: _table_of(next_of(iterator, stop - start, start), start))


def next_of(iterator: Iterator[Any], size: int, first: int) -> list[Any]:
    """Return the next rows of an iterator, at most `size`.

    An error of the iterator is raised unchanged, with a note about how many rows came before.
    """
    held: list[Any] = []
    try:
        held.extend(itertools.islice(iterator, size))
    except BaseException as error:
        error.add_note(f"raised by the input after {counted(first + len(held), 'row')}")
        raise
    return held


def _table_of(held: Sequence[Any], first: int) -> pa.Table:
    rows = [_dict_of(row, first + number) for number, row in enumerate(held)]
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    if rows and not names:
        raise UsageError("no row of the input has a column: give rows with at least one value")
    return typed_table({name: [row.get(name) for row in rows] for name in names}, first)


def _dict_of(row: Any, number: int) -> dict[Any, Any]:
    if (found := as_row(row)) is not None:
        return found
    raise UsageError(
        f"row {number:,} of the input is of type {type(row).__name__}: give every row as a dict, a "
        "NamedTuple or a dataclass, or give paths only"
    )


def typed_table(columns: Mapping[Any, Sequence[Any]], first: int) -> pa.Table:
    """Return columns of Python values with their own types; `first` is the number of a row."""
    for name in columns:
        check_name(name)
    return pa.table({name: typed_column(name, of, first) for name, of in columns.items()})


def typed_column(name: str, values: Sequence[Any], first: int) -> pa.Array | pa.ChunkedArray:
    """Return a column of Python values with its own type; `first` is the number of a row."""
    try:
        return infer_column(values)
    except Misfit as error:
        raise DataError(f"column {name!r} in row {first + error.row:,}: {error}") from error


def check_name(name: Any) -> None:
    """Check the name of a column."""
    if not isinstance(name, str):
        raise UsageError(
            f"a column is named {name!r}, which is not text: rename it, such as by "
            "x.columns = x.columns.map(str) for a DataFrame"
        )
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"column name {name!r} is not valid Unicode: rename the column") from error


def check_distinct(names: Iterable[str]) -> None:
    """Check that no two columns have the same name."""
    if doubled := repeated(names):
        raise UsageError(f"two columns are named {doubled[0]!r}: rename one of them")


def column_batches(columns: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of columns of equal length in pieces."""
    for name, values in columns.items():
        is_list = hasattr(values, "__len__") and hasattr(values, "__getitem__")
        if isinstance(values, str | bytes) or not is_list:
            raise UsageError(
                f"column {name!r} is of type {type(values).__name__}: give a list or an array of "
                "the values of all rows"
            )
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items())
        raise UsageError(f"columns must have as many rows as each other: {found}")
    held = {name: _plain(values) for name, values in columns.items()}
    return in_pieces(
        lambda start, stop: typed_table({n: of[start:stop] for n, of in held.items()}, start)
    )


def _plain(values: Any) -> Sequence[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            found: Sequence[Any] = getattr(values, method)()
            return found
    return values if isinstance(values, list) else list(values)
