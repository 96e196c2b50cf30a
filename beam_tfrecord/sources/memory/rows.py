"""Converts rows (dicts, NamedTuples, dataclasses) and dicts of columns to record batches."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.python_values import Misfit, as_row, column_of
from beam_tfrecord.sizes import counted

FIRST_ROWS = 64
NO_ROW = "there is no row: the input is empty, or an iterator that was read before"
_PIECE_BYTES = 16 * 2**20


def next_rows(rows: int, nbytes: int) -> int:
    """Return how many rows the next piece should have, given the size of the last one.

    Pieces grow to `DEFAULT_BATCH_ROWS`, or to about 16 MiB if rows are large.
    """
    fitting = _PIECE_BYTES * rows // max(1, nbytes)
    return max(1, min(DEFAULT_BATCH_ROWS, 4 * rows, fitting))


def row_batches(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield rows in pieces; each piece has the types of its own rows."""
    iterator, first, size = iter(rows), 0, FIRST_ROWS
    while held := next_of(iterator, size, first):
        table = _table_of(_dicts(held, first), first)
        yield from table.to_batches()
        first += len(held)
        size = next_rows(len(held), table.nbytes)


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


def _dicts(rows: Sequence[Any], first: int) -> Sequence[dict[Any, Any]]:
    if set(map(type, rows)) == {dict}:
        return rows
    return [_dict_of(row, first + number) for number, row in enumerate(rows)]


def _dict_of(row: Any, number: int) -> dict[Any, Any]:
    if (found := as_row(row)) is not None:
        return found
    raise UsageError(
        f"row {number:,} of the input is of type {type(row).__name__}: give every row as a dict, a "
        "NamedTuple or a dataclass, or give paths only"
    )


def _table_of(rows: Sequence[dict[Any, Any]], first: int) -> pa.Table:
    names = _names(rows)
    for name in names:
        check_name(name)
    if not names:
        return pa.table(pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([]))))
    # A table, because a column whose text exceeds 2 GiB has chunks.
    return pa.table({name: typed_column(name, _values(rows, name), first) for name in names})


def _names(rows: Sequence[dict[Any, Any]]) -> Collection[Any]:
    """Return the keys of all rows, in the order of their first occurrence."""
    # Most rows have equal keys, and a union of sets is fast.
    if set().union(*rows) == rows[0].keys():
        return rows[0].keys()
    return dict.fromkeys(itertools.chain.from_iterable(rows))


def _values(rows: Sequence[dict[Any, Any]], name: str) -> list[Any]:
    try:
        return list(map(operator.itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def typed_column(name: str, values: Sequence[Any], first: int) -> pa.Array | pa.ChunkedArray:
    """Return the values of a column as an array of their own type; `first` is their first row."""
    try:
        return column_of(values)
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
    if doubled := [name for name, times in Counter(names).items() if times > 1]:
        raise UsageError(f"two columns are named {doubled[0]!r}: rename one of them")


def column_batches(columns: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of columns of equal length, in pieces with types of their own."""
    for name, values in columns.items():
        check_name(name)
        if isinstance(values, str | bytes) or not (
            hasattr(values, "__len__") and hasattr(values, "__getitem__")
        ):
            raise UsageError(
                f"column {name!r} is of type {type(values).__name__}: give a list or an array of "
                "the values of all rows"
            )
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items())
        raise UsageError(f"columns must have as many rows as each other: {found}")
    held = {name: _plain(values) for name, values in columns.items()}
    rows, first, size = max(lengths.values(), default=0), 0, FIRST_ROWS
    while first < rows:
        stop = min(rows, first + size)
        table = pa.table({n: typed_column(n, v[first:stop], first) for n, v in held.items()})
        yield from table.to_batches()
        size = next_rows(stop - first, table.nbytes)
        first = stop


def _plain(values: Any) -> Sequence[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            found: Sequence[Any] = getattr(values, method)()
            return found
    return values if isinstance(values, list) else list(values)
