"""Calls the user's function on each row of a batch, and makes typed columns of its results.

This is the core of `MapRows`, without Beam. If the function returns a dict, it is one row; None is
no row, a list is several rows, and bytes or a `tf.train.Example` are a serialized example. If the
function raises an error, the row becomes a reject. Each result keeps the origin of its row: the
unit (part of the input) and the row number that it was read from.

The types of the columns come from the type hints of the function, or from all of its results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import functools
import itertools
import os
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.features.arrow_types import is_binary, is_list, is_text
from beam_tfrecord.features.common_types import join_types
from beam_tfrecord.features.python_values import (
    MISFITS,
    PLAIN_TYPES,
    Misfit,
    as_row,
    infer_column,
    infer_type,
    join,
    plain_values,
    to_array,
)
from beam_tfrecord.features.tensors import TensorType, item_type
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA, MAX_VALUE_CHARS, Batch, Origin, Reject
from beam_tfrecord.rows.user_function import is_users_file

Row = Mapping[str, Any]
RowFunction = Callable[[dict[str, Any]], Any]
_Columns = tuple[pa.RecordBatch, dict[str, pa.Array]]

_HINTS: dict[Any, pa.DataType] = {
    **PLAIN_TYPES,
    datetime.date: pa.date32(),
    datetime.datetime: pa.timestamp("us"),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 9),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Mapped:
    """The results of a row function for the rows of a batch."""

    rows: Sequence[Any]
    source_rows: np.ndarray[Any, Any]
    sub: np.ndarray[Any, Any]
    rejects: tuple[Reject, ...]


class RowsInColumns(Sequence[Row]):
    """Dicts with the same keys, as the values of each key: an array where one type holds them."""

    def __init__(self, columns: Mapping[str, pa.Array | list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index: Any) -> Any:
        values = ((name, values[index]) for name, values in self.columns.items())
        return {name: one.as_py() if isinstance(one, pa.Scalar) else one for name, one in values}


def in_columns(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows in columns if all are dicts that have the same keys in the same order."""
    found = None if isinstance(rows, RowsInColumns) else native.columns_of(list(rows))
    if not found:
        return rows
    return RowsInColumns({name: _as_column(*of) for name, of in found.items()})


def _as_column(kind: type | None, values: list[Any]) -> pa.Array | list[Any]:
    """Return values as an array if Arrow has one type for their class."""
    if kind in PLAIN_TYPES:
        with contextlib.suppress(*MISFITS):
            array = pa.array(values, PLAIN_TYPES[kind])
            return array if isinstance(array, pa.Array) else values
    return values


class _Message(bytes):
    """A `tf.train.Example` as protobuf serialized it."""


def call_on_rows(batch: Batch, function: RowFunction) -> Mapped:
    """Call `function` on each row of a batch."""
    rows = batch.data.to_pylist()
    results: list[Any] = []
    rejects: dict[int, Reject] = {}
    for index, row in enumerate(rows):
        try:
            results.append(function(row))
        except MemoryError:
            raise
        except Exception as error:
            rejects[index] = _reject_of(error, row, batch, index)
            results.append(None)
    if set(map(type, results)) == {dict}:
        return Mapped(results, np.arange(len(rows)), np.zeros(len(rows), np.int64), ())
    out: list[Any] = []
    sources: list[int] = []
    # Number of each result among those of its row.
    subs: list[int] = []
    for index, result in enumerate(results):
        try:
            outputs = list(outputs_of(result))
        except MemoryError:
            raise
        except Exception as error:
            rejects[index] = _reject_of(error, rows[index], batch, index)
            continue
        out += outputs
        sources += [index] * len(outputs)
        subs += range(len(outputs))
    for index in {sources[number] for number in _settle_examples(out)}:
        wrong = TypeError("a row function returned bytes that are not a tf.train.Example")
        rejects[index] = _reject_of(wrong, rows[index], batch, index)
    source_rows, numbers = np.array([sources, subs], np.int64)
    kept = ~np.isin(source_rows, list(rejects))
    good, in_order = itertools.compress(out, kept), [rejects[index] for index in sorted(rejects)]
    return Mapped(list(good), source_rows[kept], numbers[kept], tuple(in_order))


def _settle_examples(out: list[Any]) -> list[int]:
    """Put messages into canonical form; return the numbers of bytes that are no example."""
    numbers = [number for number, output in enumerate(out) if isinstance(output, bytes)]
    data, offsets, has = native.canonicalize(pa.array([out[n] for n in numbers], pa.large_binary()))
    forms, ends = data.tobytes(), offsets.tolist()
    for index, number in enumerate(numbers):
        if type(out[number]) is _Message:
            out[number] = forms[ends[index] : ends[index + 1]]
    return [numbers[index] for index in np.flatnonzero(~has)]


def outputs_of(result: Any) -> Iterable[Any]:
    """Return the result of a row function as dicts or serialized examples, yet to be checked."""
    if result is None:
        return ()
    if is_example_class(type(result)):
        return (_Message(result.SerializeToString()),)
    if isinstance(result, bytes):
        return (result,)
    if (row := as_row(result)) is not None:
        return (row,)
    if isinstance(result, list | tuple | Iterator):
        return [output for item in result for output in outputs_of(item)]
    raise TypeError(
        f"a row function returns a dict, None, a list, bytes or a tf.train.Example, "
        f"not {type(result).__name__}"
    )


def is_example_class(kind: Any) -> bool:
    """Return whether a class is `tf.train.Example`, of TensorFlow or built by other code."""
    return getattr(getattr(kind, "DESCRIPTOR", None), "full_name", "") == "tensorflow.Example"


def mapped_batch(batch: Batch, mapped: Mapped, schema: pa.Schema) -> Batch:
    """Return a batch of mapped rows; rows that do not fit the schema become rejects."""
    rejects = (*batch.rejects, *mapped.rejects)
    encoded = schema.equals(EXAMPLES_SCHEMA)
    numbers = None
    if encoded:
        data = pa.RecordBatch.from_arrays(
            [pa.array(mapped.rows, pa.large_binary())], schema=EXAMPLES_SCHEMA
        )
        fitting = np.arange(len(mapped.rows))
    else:
        (data, wide), fitting, misfits = _columns_of(batch, mapped, schema)
        rejects += misfits
        numbers = _numbers_of(batch, data, wide, mapped.source_rows[fitting])
    origin = _origin_of(batch, mapped.source_rows[fitting], mapped.sub[fitting])
    return batch.replace(
        data=data, origin=origin, rejects=rejects, encoded=encoded, numbers=numbers
    )


def _numbers_of(
    batch: Batch, data: pa.RecordBatch, wide: Mapping[str, pa.Array], sources: np.ndarray[Any, Any]
) -> pa.RecordBatch | None:
    """Return the `Batch.numbers` of mapped rows: exact values of the columns that are rounded."""
    rounded = {
        name: exact
        for name, exact in wide.items()
        if pc.any(pc.not_equal(exact, pc.cast(data.column(name), pa.float64()))).as_py()
    }
    returned = {name: wide.get(name, data.column(name)) for name in data.schema.names}
    known = batch.numbers_in(pa.RecordBatch.from_pydict(returned), sources)
    if known is not None:
        rounded |= {name: known.column(name) for name in known.schema.names}
    return pa.RecordBatch.from_pydict(rounded) if rounded else None


def _origin_of(
    batch: Batch, sources: np.ndarray[Any, Any], sub: np.ndarray[Any, Any]
) -> Origin | None:
    """Return the origin of mapped rows."""
    origin = batch.origin
    if origin is None:
        return None
    is_one_to_one = origin.sub is None and not sub.any()
    if is_one_to_one and len(sources) == batch.num_rows:
        return origin
    picked = origin.take(sources, batch.num_rows)
    if is_one_to_one:
        return picked
    # If results are mapped again, the factor keeps the numbers of both mappings apart. The number
    # of a row must not depend on other rows of its batch.
    before = 0 if picked.sub is None else picked.sub * 1_000_003
    return dataclasses.replace(picked, sub=before + sub)


def _columns_of(
    batch: Batch, mapped: Mapped, schema: pa.Schema
) -> tuple[_Columns, np.ndarray[Any, Any], tuple[Reject, ...]]:
    """Return the columns of the rows that fit the schema, their indices, and the rejects."""
    try:
        return _columns(mapped.rows, schema), np.arange(len(mapped.rows)), ()
    except TypeError:
        pass
    # At least one row does not fit: convert the rows one by one to find it.
    fitting, rejects = [], []
    for index, row in enumerate(mapped.rows):
        try:
            _columns([row], schema)
            fitting.append(index)
        except TypeError as error:
            rejects.append(_reject_of(error, row, batch, int(mapped.source_rows[index])))
    columns = _columns([mapped.rows[index] for index in fitting], schema)
    return columns, np.array(fitting, np.int64), tuple(rejects)


def _columns(rows: Sequence[Row], schema: pa.Schema) -> _Columns:
    """Return rows as columns, and the exact values of the columns that are rounded to float32."""
    rows = in_columns(rows)
    known = rows.columns if isinstance(rows, RowsInColumns) else None
    if known is None and any(not issubclass(kind, dict) for kind in set(map(type, rows))):
        raise TypeError("an example was returned, but the schema has columns")
    arrays, wide = [], {}
    for name, arrow in zip(schema.names, schema.types, strict=True):
        try:
            values, array = _array_of(_values(rows, name), arrow)
            arrays.append(array)
            if pa.types.is_float32(arrow):
                wide[name] = _exact(values, array)
        except MISFITS as error:
            raise TypeError(f"column {name!r} is {arrow}: {error}") from error
    names = itertools.chain.from_iterable(rows) if known is None else known
    if extra := set(names) - set(schema.names):
        raise TypeError(f"column {min(extra, key=str)!r} is not in the schema")
    return pa.RecordBatch.from_arrays(arrays, schema=schema), wide


def _values(rows: Sequence[Row], name: str) -> Sequence[Any] | pa.Array:
    if isinstance(rows, RowsInColumns):
        return rows.columns.get(name, [None] * len(rows))
    return [row.get(name) for row in rows]


def _array_of(
    values: Sequence[Any] | pa.Array, arrow: pa.DataType
) -> tuple[Sequence[Any] | pa.Array, pa.Array]:
    """Return `plain_values` of values, and these as an array."""
    if isinstance(values, pa.Array):
        pair = (values.type, arrow)
        if all(map(pa.types.is_integer, pair)) or pair == (pa.float64(), pa.float32()):
            return values, values.cast(arrow)
        if values.type == arrow:
            return values, values
        values = values.to_pylist()
    if not pa.types.is_nested(arrow):
        # Most values are plain, so look at them only if Arrow does not take them.
        with contextlib.suppress(*MISFITS):
            return values, to_array(values, arrow)
    values = plain_values(values)
    return values, to_array(values, arrow)


def _exact(values: Sequence[Any] | pa.Array, rounded: pa.Array) -> pa.Array:
    exact = values if isinstance(values, pa.Array) else pa.array(values, pa.float64())
    # Arrow silently turns a number that float32 cannot hold into infinity.
    if not pc.is_inf(rounded).equals(pc.is_inf(exact)):
        raise TypeError("a number is larger")
    return exact


def _reject_of(error: Exception, row: Any, batch: Batch, index: int) -> Reject:
    """Return the reject for a row; `index` is the index of its source row in the batch."""
    value = repr(row)[:MAX_VALUE_CHARS]
    return batch.reject(index, "map-error", error_text(error), value=value)


def error_text(error: Exception) -> str:
    """Return an error of the user's function as one line, with the line of code that raised it."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if is_users_file(frame.filename)]
    if not users:
        return text
    last = users[-1]
    code = f": {last.line}" if last.line else ""
    return f"{text} (at {os.path.basename(last.filename)}:{last.lineno} in {last.name}{code})"


def returned_schema(function: Callable[..., Any]) -> pa.Schema | None:
    """Return the schema of a function's return hint, if that is a class of rows.

    A class of rows is a TypedDict, NamedTuple or dataclass. The hints ``list[Hint]``,
    ``Iterator[Hint]`` and ``Hint | None``, for functions that turn a row into several or none, mean
    the same as ``Hint``.
    """
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return None
    return schema_of_hint(hint)


def schema_of_hint(hint: Any) -> pa.Schema | None:
    """Return the schema of a class of rows; None if `hint` is another hint."""
    is_rows = typing.is_typeddict(hint) or hasattr(hint, "_fields")
    if not (is_rows or dataclasses.is_dataclass(hint)):
        arguments = [one for one in typing.get_args(hint) if one is not types.NoneType]
        return schema_of_hint(arguments[0]) if len(arguments) == 1 else None
    try:
        hints = typing.get_type_hints(hint)
        return pa.schema([(name, _type_of_hint(one)) for name, one in hints.items()])
    except (KeyError, NameError, TypeError, AttributeError):
        return None


def _type_of_hint(hint: Any) -> pa.DataType:
    """Return the type for a hint such as ``int``, ``int | None`` or ``list[int]``, or raise."""
    origin = typing.get_origin(hint)
    inner = [one for one in typing.get_args(hint) if one is not types.NoneType]
    if origin is list:
        return pa.list_(_type_of_hint(inner[0]))
    is_optional = origin in (typing.Union, types.UnionType) and len(inner) == 1
    return _type_of_hint(inner[0]) if is_optional else _HINTS[hint]


@dataclasses.dataclass(frozen=True)
class RowTypes:
    """The types of the rows that a row function returned."""

    columns: Mapping[str, pa.DataType] = dataclasses.field(default_factory=dict)
    has_rows: bool = False
    has_examples: bool = False
    order: tuple[str, ...] = ()

    def merge(self, other: RowTypes) -> RowTypes:
        """Return the types of two parts of the data together; associative and commutative."""
        columns = dict(self.columns)
        for name, found in other.columns.items():
            columns[name] = _wider(name, columns.get(name, found), found)
        orders = {types.order for types in (self, other) if types.has_rows}
        return RowTypes(
            columns,
            self.has_rows or other.has_rows,
            self.has_examples or other.has_examples,
            orders.pop() if len(orders) == 1 else (),
        )

    def to_arrow(self, before: pa.Schema) -> pa.Schema:
        """Return the schema of the returned rows.

        Columns of `before` come first, in their order; a column keeps its type there if that holds
        all returned values. New columns have the order that all rows have, else that of names.
        """
        if self.has_rows and self.has_examples:
            raise DataError("the row function returns rows and examples: return one kind")
        if self.has_examples:
            return EXAMPLES_SCHEMA
        if not self.has_rows:
            return before
        order = self.order or sorted(self.columns)
        new = [name for name in order if name not in before.names]
        old = [name for name in before.names if name in self.columns]
        return pa.schema([self._field(name, before) for name in old + new])

    def _field(self, name: str, before: pa.Schema) -> pa.Field:
        """Return the field of a column; it keeps its type and metadata from `before` if it fits."""
        found = self.columns[name]
        if name in before.names:
            old = before.field(name)
            if _fits(found, old.type):
                return pa.field(name, old.type, metadata=old.metadata)
        return pa.field(name, pa.int64() if pa.types.is_signed_integer(found) else found)


def _fits(found: pa.DataType, arrow: pa.DataType) -> bool:
    """Return whether a column of type `arrow` holds all values that the function returned."""
    if isinstance(arrow, TensorType) and is_list(found):
        # Inference takes arrays of one axis for lists.
        has_one_axis = arrow.shape is not None and len(arrow.shape) == 1
        return bool(has_one_axis and found.value_type == item_type(arrow.dtype))
    python = python_type(arrow)
    return bool(join_types(python, found) == python)


def python_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that `infer_row_types` infers if a function returns values unchanged.

    Numbers keep their type, since `infer_row_types` infers at most that: it returns the narrowest
    type that holds them.
    """
    if pa.types.is_dictionary(arrow):
        return python_type(arrow.value_type)
    if is_text(arrow):
        return pa.string()
    if is_binary(arrow):
        return pa.binary()
    if is_list(arrow):
        item = python_type(arrow.value_type)
        wide = pa.int64() if pa.types.is_integer(item) else item
        return pa.list_(pa.float64() if pa.types.is_floating(item) else wide)
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", arrow.tz)
    return arrow


def infer_row_types(mapped: Sequence[Any]) -> RowTypes:
    """Infer the types of the results of a row function: dicts, or serialized examples."""
    rows = in_columns(mapped)
    if isinstance(rows, RowsInColumns):
        orders = {tuple(rows.columns)}
    else:
        rows = [row for row in mapped if isinstance(row, dict)]
        orders = set(map(tuple, rows))
    columns = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(orders)):
        if not isinstance(name, str):
            raise SchemaConflict(f"column name {name!r} is not text: give str keys")
        columns[name] = _type_of(name, _values(rows, name))
    order = orders.pop() if len(orders) == 1 else ()
    return RowTypes(columns, bool(rows), len(rows) < len(mapped), order)


def _type_of(name: str, values: Sequence[Any] | pa.Array) -> pa.DataType:
    if isinstance(values, pa.Array):
        return _narrowest(values)
    kinds = list(dict.fromkeys(map(type, values)))
    if not all(kind in PLAIN_TYPES for kind in kinds):
        values = plain_values(values)
        kinds = list(dict.fromkeys(map(type, values)))
    try:
        # Each kind apart, because integers among floats are narrowed as integers.
        types = [
            _type_of_kind(kind, [one for one in values if type(one) is kind] if kinds[1:] else values)
            for kind in kinds
        ]
    except Misfit as error:
        raise SchemaConflict(
            f"column {name!r} has values that have no type here ({error}): give numbers, text, "
            "bytes, times, arrays, or lists or dicts of these"
        ) from error
    return functools.reduce(functools.partial(_wider, name), types, pa.null())


def _wider(name: str, one: pa.DataType, other: pa.DataType) -> pa.DataType:
    try:
        return join(one, other)
    except Misfit as error:
        raise SchemaConflict(
            f"column {name!r} has values of two types, {one} and {other}: give them one type, or "
            "pass a schema"
        ) from error


def _type_of_kind(kind: type, values: Sequence[Any]) -> pa.DataType:
    arrow = PLAIN_TYPES.get(kind) or infer_type(values)
    if not (pa.types.is_integer(arrow) or pa.types.is_floating(arrow)):
        return arrow
    try:
        return _narrowest(pa.array(values, arrow))
    except MISFITS:
        return _narrowest(infer_column(values))


def _narrowest(values: pa.Array) -> pa.DataType:
    """Return the narrowest type that holds numbers exactly, or the type of other values."""
    if pa.types.is_integer(values.type):
        low, high = (value.as_py() for value in pc.min_max(values).values())
        for narrow in (np.int8, np.int16, np.int32):
            if np.iinfo(narrow).min <= low and high <= np.iinfo(narrow).max:
                return pa.from_numpy_dtype(narrow)
    elif pa.types.is_floating(values.type):
        numbers = values.drop_null().to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            narrowed = numbers.astype(np.float32)
        if np.array_equal(narrowed, numbers, equal_nan=True):
            return pa.float32()
    return values.type
