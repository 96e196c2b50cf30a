"""Converts tables in memory (pandas, polars, datasets, Arrow), dicts and rows to record batches.

What a library means by a missing value is decided here. In pandas NaN of floats is null, as NA,
NaT and None are; `nan="value"` keeps it in columns of numbers. polars and Arrow have both.
"""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.base.text import counted, listed, repeated
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import with_labels
from beam_tfrecord.features.python_values import Misfit, as_row, infer_column, is_missing
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS

_LOGGER = logging.getLogger(__name__)

_HF_ROWS = 1000
_ENCODED = pa.struct({"bytes": pa.binary(), "path": pa.string()})
FIRST_ROWS = 64
NO_ROW = "there is no row: the input is empty, or an iterator that was read before"
_PIECE_BYTES = 16 * 2**20


class Stream(NamedTuple):
    """The rows of a table in memory."""

    batches: Iterable[pa.RecordBatch]
    schema: pa.Schema | None


def is_table(held: Any) -> bool:
    """Return whether `held` is a table or arrays: of one of these, iteration yields no rows."""
    return isinstance(held, np.ndarray) or _reader_of(held) is not None


def stream_of(held: Any, nan: str = "null") -> Stream:
    """Return the rows of a table, of a dict of columns or of an iterable of rows.

    `nan` says what NaN of pandas is: ``null``, or ``value`` for NaN.
    """
    if nan not in ("null", "value"):
        raise UsageError(f"nan={nan!r} does not exist: choose 'null' or 'value'")
    if reader := _reader_of(held):
        return _of_pandas(held, nan) if reader is _of_pandas else reader(held)
    if isinstance(held, Iterable):
        return Stream(row_batches(held), None)
    raise UsageError(
        f"cannot read an input of type {type(held).__name__}: give paths, a table (pandas, polars, "
        "Arrow), a dict of arrays, or an iterable of dicts"
    )


def _reader_of(held: Any) -> Callable[..., Stream] | None:
    """Return what reads a table or a dict of columns; None if `held` is neither."""
    readers = {
        ("pandas", "DataFrame"): _of_pandas,
        ("polars", "DataFrame"): _of_polars,
        ("polars", "LazyFrame"): _of_lazy,
        ("datasets", "Dataset"): _of_datasets,
        ("datasets", "IterableDataset"): _of_datasets,
    }
    for (module, name), reader in readers.items():
        # The module need not be installed.
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(held, kind):
            return reader
    if hasattr(held, "__arrow_c_stream__"):
        return _of_arrow
    return _of_dict if isinstance(held, Mapping) else None


def _of_dict(held: Mapping[Any, Any]) -> Stream:
    if tables := [name for name, of in held.items() if hasattr(of, "column_names")]:
        raise UsageError(
            f"the input is a dict of {len(held):,} tables: give one of them, such as "
            f"x[{tables[0]!r}]"
        )
    return Stream(column_batches(held), None)


def _of_arrow(held: Any) -> Stream:
    try:
        reader = pa.RecordBatchReader.from_stream(held)
    except Exception as error:
        raise UsageError(
            f"cannot read an input of type {type(held).__name__} as a table: {error}"
        ) from error
    # Only such a reader may have been read before.
    is_once = isinstance(held, pa.RecordBatchReader)
    return Stream(_batches_of(reader, is_once=is_once), reader.schema)


def _batches_of(reader: pa.RecordBatchReader, *, is_once: bool) -> Iterator[pa.RecordBatch]:
    rows, batches = 0, iter(reader)
    while held := next_of(batches, 1, rows):
        yield held[0]
        rows += held[0].num_rows
    if is_once and not rows:
        raise UsageError(NO_ROW)


def _of_polars(frame: Any) -> Stream:
    return _of_frames(frame.iter_slices(DEFAULT_BATCH_ROWS), frame.clear())


def _of_lazy(frame: Any) -> Stream:
    """Return the rows of a LazyFrame, which polars computes piece by piece."""
    return _of_frames(frame.collect_batches(), frame.collect_schema().to_frame())


def _of_frames(frames: Iterable[Any], empty: Any) -> Stream:
    for name, dtype in empty.schema.items():
        # Python objects are exported as their addresses.
        if str(dtype) in ("Object", "Int128", "UInt128"):
            raise UsageError(
                f"column {name!r} is of dtype {dtype}, which has no type here: cast it before"
            )

    def table_of(frame: Any) -> pa.Table:
        # The newest level has views inside dictionaries, which Arrow cannot decode.
        return frame.to_arrow(compat_level=sys.modules["polars"].CompatLevel.oldest())

    batches = (batch for table in map(table_of, frames) for batch in table.to_batches())
    return Stream(batches, table_of(empty).schema)


def _of_datasets(dataset: Any) -> Stream:
    """Return the rows of a `datasets.Dataset` in the order that it shows, in no format.

    Pictures and sounds become their encoded bytes, and class names go into the schema.
    """
    from datasets.table import embed_table_storage

    features: Any = dataset.features or {}
    batches = (
        batch
        for table in dataset.with_format("arrow").iter(batch_size=_HF_ROWS)
        for batch in _stored(embed_table_storage(table), features).to_batches()
    )
    # Without features, the types of a stream of rows can differ from batch to batch.
    if not features or not hasattr(dataset, "data"):
        return Stream(batches, None)
    schema = features.arrow_schema
    return Stream(batches, _stored(schema.empty_table(), features).schema)


def _stored(table: pa.Table, features: Mapping[str, Any]) -> pa.Table:
    """Return the columns of `datasets` in types that others know too."""
    fields, columns = [], []
    for field, column in zip(table.schema, table.columns, strict=True):
        feature, chunks = features.get(field.name), column.chunks
        if isinstance(field.type, pa.ExtensionType):
            chunks = [chunk.storage for chunk in chunks]
        if getattr(feature, "pa_type", None) == _ENCODED:
            chunks = [pc.struct_field(chunk, "bytes") for chunk in chunks]
        columns.append(pa.chunked_array(chunks))
        labels = getattr(feature, "names", None)
        fields.append(with_labels(pa.field(field.name, columns[-1].type), labels or ()))
    return pa.table(columns, pa.schema(fields))


def _of_pandas(frame: Any, nan: str = "null") -> Stream:
    own = [(name, frame.iloc[:, number]) for number, name in enumerate(frame.columns)]
    pairs = [*own, *_index_of(frame.index)]
    for name, _ in pairs:
        check_name(name)
    check_distinct([name for name, _ in pairs])
    columns = {n: _with_nulls(s, nan) if s.dtype == object else s for n, s in pairs}
    floats = [n for n, s in pairs if isinstance(s.dtype, np.dtype) and s.dtype.kind == "f"]
    if nan == "null" and (found := [repr(n) for n in floats if columns[n].hasnans]):
        _LOGGER.warning("NaN is a missing value, in %s: nan='value' keeps it", listed(found))

    def piece(start: int, stop: int) -> pa.Table:
        parts = {name: series.iloc[start:stop] for name, series in columns.items()}
        return pa.table({n: _pandas_array(n, part, start, nan) for n, part in parts.items()})

    has_objects = any(series.dtype == object for series in columns.values())
    return Stream(in_pieces(piece), None if has_objects else piece(0, 0).schema)


def _index_of(index: Any) -> list[tuple[Any, Any]]:
    """Return the names and values of the levels of an index that are columns.

    Names make them columns. Integers without a name are row numbers, which are not.
    """
    if list(index.names) == [None] and index.dtype.kind in "iu":
        return []
    if None in index.names:
        raise UsageError(
            "the index of the DataFrame has no name but holds values: name it by "
            "rename_axis('name') to make it a column, or call reset_index(drop=True)"
        )
    levels = (index.get_level_values(number) for number in range(index.nlevels))
    return [(level.name, level.to_series()) for level in levels]


def _with_nulls(series: Any, nan: str) -> Any:
    """Return a column of objects in which NaN of floats is null, unless numbers keep it."""
    kinds = {kind for kind in set(map(type, series)) if not is_missing(kind)} - {type(None)}
    numbers = (int, float, np.integer, np.floating)
    are_numbers = all(issubclass(kind, numbers) and kind is not bool for kind in kinds)
    if nan == "value" and are_numbers:
        return series
    is_nan = [isinstance(value, float | np.floating) and value != value for value in series]
    return series.mask(np.array(is_nan, bool), None)


def _pandas_array(name: str, series: Any, first: int, nan: str) -> pa.Array | pa.ChunkedArray:
    if series.dtype == object:
        return typed_column(name, series.tolist(), first)
    zone = getattr(series.dtype, "tz", None)
    try:
        if zone is not None:
            # pyarrow reads such columns by an attribute that pandas deprecates.
            utc = pa.array(series.dt.tz_convert(None).to_numpy())
            return utc.view(pa.timestamp(series.dt.unit, zone))
        array = pa.array(series.array, from_pandas=nan == "null")
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _no_type(name, series) from error
    if isinstance(array.type, pa.ExtensionType):
        raise _no_type(name, series)
    return array


def _no_type(name: str, series: Any) -> UsageError:
    return UsageError(
        f"column {name!r} is of dtype {series.dtype}, which has no type here: convert it, such as "
        "by astype(str)"
    )


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
        if isinstance(values, str | bytes) or not is_list or not np.ndim(values):
            raise UsageError(
                f"column {name!r} is of type {type(values).__name__}: give a list or an array of "
                "the values of all rows"
            )
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items())
        raise UsageError(f"columns must have as many rows as each other: {found}")
    shaped = {n: of for n, of in columns.items() if isinstance(of, np.ndarray) and _is_shaped(of)}
    held = {name: _plain(values) for name, values in columns.items() if name not in shaped}

    def piece(start: int, stop: int) -> pa.Table:
        table = typed_table({n: of[start:stop] for n, of in held.items()}, start)
        for name, array in shaped.items() if table.num_rows else ():
            rows, shape = array[start:stop].reshape(table.num_rows, -1), array.shape[1:]
            lists = pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])
            tensor = pa.fixed_shape_tensor(lists.type.value_type, shape)
            table = table.append_column(name, pa.ExtensionArray.from_storage(tensor, lists))
        return table.select(list(columns)) if table.num_rows else table

    return in_pieces(piece)


def _is_shaped(array: np.ndarray[Any, Any]) -> bool:
    """Return whether all rows of an array are numbers of one shape, which lists would not tell."""
    is_number = array.dtype.kind in "iuf" and array.dtype.isnative and array.dtype.itemsize <= 8
    return array.ndim > 1 and is_number and array.size > 0


def _plain(values: Any) -> Sequence[Any]:
    if isinstance(values, np.ndarray):
        return list(values)  # whose items keep their dtype
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, method):
            found: Sequence[Any] = getattr(values, method)()
            return found
    return values if isinstance(values, list) else list(values)
