"""Row functions over batches: call a Python function on every row, keep every origin.

`map_rows` is the pure function under `MapRows`. What the function returns decides what a row
becomes: a dict is one row, None is none, a list is several rows, and bytes or a
`tf.train.Example` is a serialized example. A row whose function raises is a reject.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.batch import EXAMPLES_SCHEMA, Batch, Reject
from beam_tfrecord.features.tensors import TensorType, tensor_column

Row = Mapping[str, Any]
RowFunction = Callable[[dict[str, Any]], Any]

VALUE_CHARACTERS = 200


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
    # Only rows that became several need numbers among themselves.
    subs: dict[int, int] = {}
    rejects: list[Reject] = []
    origin = batch.exact_origin
    numbers = None if origin is None else origin.row_numbers(batch.num_rows)
    for index, row in enumerate(to_rows(batch.data)):
        try:
            result = function(row)
            results = (result,) if type(result) is dict else list(outputs_of(result))
        except MemoryError:
            raise
        except Exception as error:
            number = -1 if numbers is None else int(numbers[index])
            rejects.append(_reject_of(error, row, batch, number))
            continue
        for sub, output in enumerate(results):
            if sub:
                subs[len(out)] = sub
            out.append(output)
            sources.append(index)
    sub_numbers = np.zeros(len(out), np.int64)
    sub_numbers[list(subs)] = list(subs.values())
    return Mapped(out, np.array(sources, np.int64), sub_numbers, tuple(rejects))


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


def mapped_batch(batch: Batch, mapped: Mapped, schema: pa.Schema) -> Batch:
    """Build the batch of mapped rows under a schema, each with its row's origin.

    Values that do not fit the schema are rejects.
    """
    rejects = (*batch.rejects, *mapped.rejects)
    encoded = schema.equals(EXAMPLES_SCHEMA)
    numbers = None
    if encoded:
        data = pa.RecordBatch.from_arrays(
            [pa.array(mapped.rows, pa.large_binary())], schema=EXAMPLES_SCHEMA
        )
        kept = np.arange(len(mapped.rows))
    else:
        (data, wide), kept, refused = _columns_of(batch, mapped, schema)
        rejects += refused
        numbers = _numbers_of(batch, data, wide, mapped.source_rows[kept])
    origin = _origin_of(batch, mapped, kept)
    return batch.replace(
        data=data, origin=origin, rejects=rejects, encoded=encoded, numbers=numbers
    )


def _numbers_of(
    batch: Batch, data: pa.RecordBatch, wide: Mapping[str, pa.Array], sources: np.ndarray[Any, Any]
) -> pa.RecordBatch | None:
    """Return the `Batch.numbers` of mapped rows.

    Args:
        batch: What was mapped.
        data: The mapped rows.
        wide: Their columns of float32 as float64, which is what Python gives.
        sources: Index in `batch` of each of them.
    """
    rounded = {
        name: exact
        for name, exact in wide.items()
        if pc.any(pc.not_equal(exact, pc.cast(data.column(name), pa.float64()))).as_py()
    }
    given = {name: wide.get(name, data.column(name)) for name in data.schema.names}
    known = batch.numbers_in(pa.RecordBatch.from_pydict(given), sources)
    if known is not None:
        rounded |= {name: known.column(name) for name in known.schema.names}
    return pa.RecordBatch.from_pydict(rounded) if rounded else None


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
) -> tuple[_Columns, np.ndarray[Any, Any], tuple[Reject, ...]]:
    everything = np.arange(len(mapped.rows))
    try:
        return _columns(mapped.rows, schema), everything, ()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        pass
    # Something does not fit: find the rows, one by one.
    kept, rejects = [], []
    origin = batch.exact_origin
    numbers = None if origin is None else origin.row_numbers(batch.num_rows)
    for index, row in enumerate(mapped.rows):
        try:
            _columns([row], schema)
            kept.append(index)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
            number = -1 if numbers is None else int(numbers[mapped.source_rows[index]])
            rejects.append(_reject_of(error, row, batch, number))
    good = np.array(kept, np.int64)
    return _columns([mapped.rows[i] for i in kept], schema), good, tuple(rejects)


class _Columns(NamedTuple):
    """Rows as columns, and those of float32 once more, as float64 before they are rounded."""

    data: pa.RecordBatch
    wide: dict[str, pa.Array]


def _columns(rows: Sequence[Row], schema: pa.Schema) -> _Columns:
    if any(type(row) is not dict and not isinstance(row, Mapping) for row in rows):
        raise TypeError("an example was returned where the schema has columns")
    arrays, wide = [], {}
    for field in schema:
        values = [row.get(field.name) for row in rows]
        arrays.append(_array_of(values, field))
        if pa.types.is_float32(field.type):
            wide[field.name] = pa.array(values, pa.float64())
    extra = set(itertools.chain.from_iterable(rows)).difference(schema.names)
    if extra:
        raise TypeError(f"column {min(extra)!r} is not in the schema")
    return _Columns(pa.RecordBatch.from_arrays(arrays, schema=schema), wide)


def _array_of(values: list[Any], field: pa.Field) -> pa.Array:
    # Arrow would cut 1.5 to 1 for a column of integers, without a word.
    if pa.types.is_integer(field.type) and any(
        issubclass(kind, float | np.floating) for kind in set(map(type, values))
    ):
        raise TypeError(f"column {field.name!r} is {field.type} but has a float")
    if isinstance(field.type, TensorType):
        return tensor_column(values, field.type)
    array = pa.array(values, field.type)
    if pa.types.is_float32(field.type) and not _same_infinities(array, values):
        raise TypeError(f"column {field.name!r} is {field.type} but has a larger number")
    if pa.types.is_decimal(field.type) and not _same_zeros(array, values):
        raise TypeError(f"column {field.name!r} is {field.type} but has a finer number")
    return array


def _same_zeros(array: pa.Array, values: list[Any]) -> bool:
    """Tell whether decimals are 0 where the values are: Arrow makes 0 of one 39 digits too fine."""
    zeros = pc.fill_null(pc.equal(array, pa.scalar(0, array.type)), False)
    return not any(values[row] for row in np.flatnonzero(zeros.to_numpy(zero_copy_only=False)))


def _same_infinities(array: pa.Array, values: list[Any]) -> bool:
    """Tell whether floats are infinite where the values are: Arrow makes that of what is larger."""
    infinite = pc.fill_null(pc.is_inf(array), False).to_numpy(zero_copy_only=False)
    return all(math.isinf(values[row]) for row in np.flatnonzero(infinite))


def _reject_of(error: Exception, row: Any, batch: Batch, number: int) -> Reject:
    unit = "" if batch.exact_origin is None else batch.exact_origin.unit
    where = f"{unit} row {number}: " if unit else ""
    return Reject(
        unit=unit,
        row=number,
        column="",
        code="map-error",
        message=f"{where}{type(error).__name__}: {error}{line_of(error)}",
        value=repr(row)[:VALUE_CHARACTERS],
    )


def line_of(error: Exception) -> str:
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
