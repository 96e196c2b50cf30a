"""Calls the user's function on each row of a batch, and makes typed columns of its results.

This is the core of `MapRows`, without Beam. If the function returns a dict, it is one row; None is
no row, a list is several rows, and bytes or a `tf.train.Example` are a serialized example. If the
function raises an error, the row becomes a reject. Each result keeps the origin of its row: the
unit (part of the input) and the row number that it was read from.

`row_types` finds the types of the columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.base.text import cell, text_by
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.features.python_values import MISFITS, as_row, plain_values, to_array
from beam_tfrecord.records.row_types import RowsInColumns, in_columns, values_of
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA, MAX_VALUE_CHARS, Batch, Origin, Reject
from beam_tfrecord.rows.user_function import is_users_file

Row = Mapping[str, Any]
RowFunction = Callable[[dict[str, Any]], Any]
# Of the text of an error, which may have whole rows, and of a line of code.
_MAX_CHARACTERS = 300
_Columns = tuple[pa.RecordBatch, dict[str, pa.Array]]


@dataclasses.dataclass(frozen=True, eq=False)
class Mapped:
    """The results of a row function for the rows of a batch."""

    rows: Sequence[Any]
    source_rows: np.ndarray[Any, Any]
    sub: np.ndarray[Any, Any]
    rejects: tuple[Reject, ...]


class _Message(bytes):
    """A `tf.train.Example` as protobuf serialized it."""


def call_on_rows(batch: Batch, function: RowFunction) -> Mapped:
    """Call `function` on each row of a batch."""
    rows = python_rows(batch.data)
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
            values, array = _array_of(values_of(rows, name), arrow)
            arrays.append(array)
            if pa.types.is_float32(arrow):
                wide[name] = _exact(values, array)
        except MISFITS as error:
            raise TypeError(f"column {name!r} is {arrow}: {error}") from error
    names = itertools.chain.from_iterable(rows) if known is None else known
    if extra := set(names) - set(schema.names):
        raise TypeError(f"column {min(extra, key=str)!r} is not in the schema")
    return pa.RecordBatch.from_arrays(arrays, schema=schema), wide


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
    value = text_by(repr, row)[:MAX_VALUE_CHARS]
    return batch.reject(index, "map-error", error_text(error), value=value)


def error_text(error: Exception) -> str:
    """Return an error of the user's function as one line, with the line of code that raised it."""
    text = f"{type(error).__name__}: {cell(' '.join(text_by(str, error).split()), _MAX_CHARACTERS)}"
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if is_users_file(frame.filename)]
    if not users:
        return text
    last = users[-1]
    code = f": {cell(last.line, _MAX_CHARACTERS)}" if last.line else ""
    return f"{text} (at {os.path.basename(last.filename)}:{last.lineno} in {last.name}{code})"
