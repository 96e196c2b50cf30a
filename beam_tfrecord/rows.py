"""Row functions over batches: call a Python function on every row, keep every origin.

`map_rows` is the pure function under `MapRows`. What the function returns decides what a row
becomes: a dict is one row, None is none, a list is several rows, and bytes or a
`tf.train.Example` is a serialized example. A row whose function raises is a reject.
"""

from __future__ import annotations

import dataclasses
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.arrow_types import is_bytes, is_plain_list, is_text, widen
from beam_tfrecord.batch import EXAMPLES_SCHEMA, Batch, Reject
from beam_tfrecord.errors import DataError, SchemaConflict

Row = Mapping[str, Any]
RowFunction = Callable[[dict[str, Any]], Any]

VALUE_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class RowTypes:
    """The types of mapped rows; `merge` is associative and order-free.

    Attributes:
        columns: Arrow type by column name.
        has_rows: True where some row was a dict.
        has_examples: True where some row was a serialized example.
    """

    columns: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    has_rows: bool = False
    has_examples: bool = False

    def merge(self, other: RowTypes) -> RowTypes:
        """Join the types of two parts of the data.

        Raises:
            SchemaConflict: A column has values that no type holds exactly.
        """
        columns = dict(self.columns)
        for name, found in other.columns.items():
            if name not in columns:
                columns[name] = found
                continue
            wider = widen(columns[name], found)
            if wider is None:
                raise SchemaConflict(
                    f"the row function returns {columns[name]} and {found} for column {name!r}: "
                    "return one type, or pass a schema"
                )
            columns[name] = wider
        return RowTypes(
            columns,
            self.has_rows or other.has_rows,
            self.has_examples or other.has_examples,
        )

    def to_arrow(self, before: pa.Schema) -> pa.Schema:
        """Return the schema of the mapped rows: the columns that were there first, in order.

        Raises:
            DataError: The function returned rows and examples.
        """
        if self.has_rows and self.has_examples:
            raise DataError("the row function returns rows and examples: return one kind")
        if self.has_examples:
            return EXAMPLES_SCHEMA
        if not self.has_rows:
            return before
        new = sorted(name for name in self.columns if name not in before.names)
        names = [name for name in before.names if name in self.columns] + new
        return pa.schema([pa.field(name, self._type(name, before)) for name in names])

    def _type(self, name: str, before: pa.Schema) -> pa.DataType:
        """Keep the type of a column where it holds all values that the function returned."""
        found = self.columns[name]
        if name in before.names:
            kept = before.field(name).type
            if python_type(kept) == found or widen(python_type(kept), found) == python_type(kept):
                return kept
        return pa.int64() if pa.types.is_signed_integer(found) else found


def python_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that `types_of` gives values of `arrow` once they were Python values.

    Numbers keep their type: `types_of` finds the narrowest that holds them.
    """
    if pa.types.is_dictionary(arrow):
        return python_type(arrow.value_type)
    if is_text(arrow):
        return pa.string()
    if is_bytes(arrow):
        return pa.binary()
    if is_plain_list(arrow):
        item = python_type(arrow.value_type)
        wide = pa.int64() if pa.types.is_integer(item) else item
        return pa.list_(pa.float64() if pa.types.is_floating(item) else wide)
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", arrow.tz)
    return arrow


def to_rows(data: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as dicts of Python values."""
    names = data.schema.names
    if not names:
        return [{} for _ in range(data.num_rows)]
    columns = [_to_list(column) for column in data.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _to_list(column: pa.Array) -> list[Any]:
    """Return Python values; numbers by way of NumPy, which is ten times as fast."""
    plain = pa.types.is_integer(column.type) or (
        pa.types.is_floating(column.type) and not pa.types.is_float16(column.type)
    )
    if not plain:
        return list(column.to_pylist())
    if not column.null_count:
        return list(column.to_numpy().tolist())
    values = list(column.fill_null(0).to_numpy().tolist())
    for index in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
        values[index] = None
    return values


@dataclasses.dataclass(frozen=True, eq=False)
class Mapped:
    """What the rows of a batch became.

    Attributes:
        rows: Dicts, or serialized examples.
        source_rows: Index within the batch of the row each came from, shape `[n]`.
        sub: Counts the outputs of one row from 0, shape `[n]`.
        rejects: Rows whose function raised.
    """

    rows: list[Any]
    source_rows: np.ndarray[Any, Any]
    sub: np.ndarray[Any, Any]
    rejects: tuple[Reject, ...]


def call_on_rows(batch: Batch, function: RowFunction) -> Mapped:
    """Call `function` on every row of a batch."""
    out: list[Any] = []
    sources: list[int] = []
    subs: list[int] = []
    rejects: list[Reject] = []
    numbers = None if batch.origin is None else batch.origin.row_numbers(batch.num_rows)
    for index, row in enumerate(to_rows(batch.data)):
        try:
            results = list(outputs_of(function(row)))
        except Exception as error:
            number = -1 if numbers is None else int(numbers[index])
            rejects.append(_reject_of(error, row, batch, number))
            continue
        out.extend(results)
        sources.extend([index] * len(results))
        subs.extend(range(len(results)))
    return Mapped(out, np.array(sources, np.int64), np.array(subs, np.int64), tuple(rejects))


def outputs_of(result: Any) -> Iterable[Any]:
    """Return what a function returned for one row as dicts or serialized examples.

    Raises:
        TypeError: It is of another type.
    """
    if result is None:
        return ()
    if isinstance(result, dict):
        return (result,)
    if isinstance(result, list | tuple) and not hasattr(result, "_asdict"):
        return [output for item in result for output in outputs_of(item)]
    if isinstance(result, Iterator):
        return [output for item in result for output in outputs_of(item)]
    if isinstance(result, bytes):
        return (result,)
    if hasattr(result, "_asdict"):
        return (result._asdict(),)
    if hasattr(result, "SerializeToString"):
        return (canonical_example(result),)
    raise TypeError(
        f"a row function returns a dict, None, a list, bytes or a tf.train.Example, "
        f"not {type(result).__name__}"
    )


def canonical_example(example: Any) -> bytes:
    """Serialize a `tf.train.Example` in canonical form.

    Protobuf's own serialization differs from process to process.
    """
    serialized = example.SerializeToString()
    return native.canonicalize(serialized) or serialized


def types_of(mapped: Sequence[Any]) -> RowTypes:
    """Infer the types of mapped rows.

    Raises:
        SchemaConflict: A column mixes values that no type holds exactly.
    """
    rows = [row for row in mapped if isinstance(row, dict)]
    columns = {}
    for name in {name: None for row in rows for name in row}:
        columns[name] = _type_of(name, [row.get(name) for row in rows])
    return RowTypes(columns, bool(rows), len(rows) < len(mapped))


def _type_of(name: str, values: list[Any]) -> pa.DataType:
    try:
        column = pa.array(values, from_pandas=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaConflict(
            f"the row function returns values of no single type for column {name!r}: {error}: "
            "return one type, or pass a schema"
        ) from error
    return _narrowest(column)


def _narrowest(column: pa.Array) -> pa.DataType:
    """Return the narrowest number type that holds a column exactly, else its own type."""
    candidates: tuple[pa.DataType, ...]
    if pa.types.is_integer(column.type):
        candidates = (pa.int8(), pa.int16(), pa.int32())
    elif pa.types.is_floating(column.type):
        candidates = (pa.float32(),)
    else:
        return column.type
    for narrow in candidates:
        try:
            narrowed = column.cast(narrow, safe=pa.types.is_integer(narrow)).cast(column.type)
            if _same_numbers(narrowed, column):
                return narrow
        except pa.ArrowInvalid:
            continue
    return column.type


def _same_numbers(one: pa.Array, other: pa.Array) -> bool:
    """Tell whether numbers are equal; NaN, unlike in Arrow, equals NaN."""
    if one.equals(other):
        return True
    left, right = (array.to_numpy(zero_copy_only=False) for array in (one, other))
    # Nulls are NaN here on both sides, at the same rows.
    return bool(pa.types.is_floating(one.type) and np.array_equal(left, right, equal_nan=True))


def mapped_batch(batch: Batch, mapped: Mapped, schema: pa.Schema) -> Batch:
    """Build the batch of mapped rows under a schema, each with its row's origin.

    Values that do not fit the schema are rejects.
    """
    rejects = (*batch.rejects, *mapped.rejects)
    encoded = schema.equals(EXAMPLES_SCHEMA)
    if encoded:
        data = pa.RecordBatch.from_arrays(
            [pa.array(mapped.rows, pa.large_binary())], schema=EXAMPLES_SCHEMA
        )
        kept = np.arange(len(mapped.rows))
    else:
        data, kept, refused = _columns_of(batch, mapped, schema)
        rejects += refused
    return batch.replace(
        data=data, origin=_origin_of(batch, mapped, kept), rejects=rejects, encoded=encoded
    )


def _origin_of(batch: Batch, mapped: Mapped, kept: np.ndarray[Any, Any]) -> Any:
    if batch.origin is None:
        return None
    sources, sub = mapped.source_rows[kept], mapped.sub[kept]
    origin = batch.origin
    if origin.sub is None and not sub.any():
        # No row became several, so as many rows are all of them.
        whole = len(sources) == batch.num_rows
        return origin if whole else origin.take(sources, batch.num_rows)
    taken = origin.take(sources, batch.num_rows)
    # Numbers of outputs of outputs: wide apart, so that two mappings in a row never meet. They
    # follow from the row alone, whatever became of the other rows of its batch.
    before = 0 if taken.sub is None else taken.sub * 1_000_003
    return dataclasses.replace(taken, sub=before + sub)


def _columns_of(
    batch: Batch, mapped: Mapped, schema: pa.Schema
) -> tuple[pa.RecordBatch, np.ndarray[Any, Any], tuple[Reject, ...]]:
    everything = np.arange(len(mapped.rows))
    try:
        return _record_batch(mapped.rows, schema), everything, ()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        pass
    # Something does not fit: find the rows, one by one.
    kept, rejects = [], []
    numbers = None if batch.origin is None else batch.origin.row_numbers(batch.num_rows)
    for index, row in enumerate(mapped.rows):
        try:
            _record_batch([row], schema)
            kept.append(index)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
            number = -1 if numbers is None else int(numbers[mapped.source_rows[index]])
            rejects.append(_reject_of(error, row, batch, number))
    good = np.array(kept, np.int64)
    return _record_batch([mapped.rows[i] for i in kept], schema), good, tuple(rejects)


def _record_batch(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    if any(not isinstance(row, Mapping) for row in rows):
        raise TypeError("an example was returned where the schema has columns")
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_integer(field.type) and any(isinstance(v, float) for v in values):
            raise TypeError(f"column {field.name!r} is {field.type} but has a float")
        arrays.append(pa.array(values, field.type))
    extra = {name for row in rows for name in row} - set(schema.names)
    if extra:
        raise TypeError(f"column {min(extra)!r} is not in the schema")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _reject_of(error: Exception, row: Any, batch: Batch, number: int) -> Reject:
    unit = "" if batch.origin is None else batch.origin.unit
    where = f"{unit} row {number}: " if unit else ""
    return Reject(
        unit=unit,
        row=number,
        column="",
        code="map-error",
        message=f"{where}{type(error).__name__}: {error}{_line_of(error)}",
        value=repr(row)[:VALUE_CHARACTERS],
    )


def _line_of(error: Exception) -> str:
    """Return the line of the user's code that raised."""
    here = os.path.dirname(__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(here)
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f" (at {os.path.basename(last.filename)}:{last.lineno}: {last.line or ''})".replace(
        ": )", ")"
    )
