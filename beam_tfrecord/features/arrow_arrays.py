"""Opens Arrow lists, converts Arrow arrays to and from text, and rounds numbers exactly.

Arrow casts most types to text and back; this module adds what Arrow lacks or does differently, such
as times of day, durations and times with a zone.

A decimal number, or a number as text, has a nearest float64. To round this float64 to float32 would
round the number twice, and could return the wrong one of two neighbouring float32 values. Therefore
`round_text` and `round_decimals` return a second float64 for each number, which rounds to float32
as the number itself does. The distance between this float64 and the stored value is the loss. Both
float64 values are equal if the nearest one *stands for* the number, that is, has the same digits
(such as 0.1). Only if such a float64 lies halfway between two float32 values, the second one lies
two steps beside it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import decoded_type, time_unit
from beam_tfrecord.native._csv import Filler
from beam_tfrecord.native.kernel_types import (
    AS_DOUBLE,
    BoolArray,
    Float64Array,
    Int64Array,
    Target,
    UInt8Array,
)

# Positions of the 32 hexadecimal digits of a UUID in its 36 characters.
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])

_NUMBER = Target(0, AS_DOUBLE, 8)
_ONE_COLUMN = (ord(","), None, None, False)
_LINE_END = ord("\n")
# A float64 holds integers of 15 digits exactly, and powers of ten up to 10^22.
_FEW_DIGITS = 15
_EXACT_POWER = 22


class Layer(NamedTuple):
    """One level of lists in a list array."""

    offsets: Int64Array
    missing: BoolArray | None


def bare_array(array: pa.Array) -> pa.Array:
    """Return `array` without dictionary or run-end encoding."""
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def missing_of(array: pa.Array) -> BoolArray | None:
    """Return which values of `array` are null, shape `[n]`; None if none is."""
    if not array.null_count:
        return None
    missing: BoolArray = pc.is_null(array).to_numpy(zero_copy_only=False)
    return missing


def lacking_values(array: pa.Array) -> tuple[pa.BooleanArray, pa.BooleanArray]:
    """Return which values are null or structs of nulls, and which contain a struct of nulls."""
    array = bare_array(array)
    is_null = pc.is_null(array)
    if not pa.types.is_struct(array.type):
        return is_null, pa.repeat(False, len(array))
    # The fields of a null struct are null, and so are no structs of nulls.
    fields = [lacking_values(field) for field in array.flatten()]
    lacking = functools.reduce(pc.and_, (one for one, _ in fields), pa.repeat(True, len(array)))
    hollow = pc.and_not(lacking, is_null)
    return lacking, functools.reduce(pc.or_, (one for _, one in fields), hollow)


def with_nulls_at(array: pa.Array, rows: BoolArray | None) -> pa.Array:
    """Return `array` with nulls in the rows for which `rows` is true; None means no rows."""
    if rows is None:
        return array
    return pc.if_else(pa.array(rows), pa.scalar(None, array.type), array)


def list_offsets(lengths: Int64Array | BoolArray) -> Int64Array:
    """Return the offsets of lists of the given lengths, shape `[n + 1]`."""
    return np.concatenate([[0], np.cumsum(lengths)])


def open_list(array: pa.Array) -> tuple[Layer, pa.Array]:
    """Return the lists of a list array, and the values inside the lists.

    If the array is a slice, values outside of it are left out.
    """
    missing = missing_of(array)
    if pa.types.is_fixed_size_list(array.type):
        size, rows = array.type.list_size, len(array)
        values = array.values.slice(array.offset * size, rows * size)
        return Layer(np.arange(rows + 1, dtype=np.int64) * size, missing), values
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    return Layer(offsets - offsets[0], missing), values


def open_map(array: pa.Array) -> tuple[Layer, pa.Array, pa.Array]:
    """Return the lists of a map array, and the keys and the values inside the lists."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, count = offsets[0], offsets[-1] - offsets[0]
    layer = Layer(offsets - first, missing_of(array))
    return layer, array.keys.slice(first, count), array.items.slice(first, count)


def make_list(layer: Layer, values: pa.Array) -> pa.Array:
    """Return a large list array with the lists of `layer` over `values`."""
    mask = None if layer.missing is None else pa.array(layer.missing)
    return pa.LargeListArray.from_arrays(pa.array(layer.offsets), values, mask=mask)


def take_values(values: pa.Array, indices: pa.Array) -> pa.Array:
    """Return the values at `indices`; a null index gives a null."""
    if _has_nested_fixed_lists(values.type):
        values = pa.concat_arrays([values])
    try:
        return values.take(indices)
    except pa.ArrowNotImplementedError:
        return values.cast(decoded_type(values.type)).take(indices).cast(values.type)


def take_rows(rows: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    """Return the rows at `indices`."""
    if any(map(_has_nested_fixed_lists, rows.schema.types)):
        rows = pa.concat_batches([rows])
    try:
        return rows.take(indices)
    except pa.ArrowNotImplementedError:
        columns = [take_values(column, indices) for column in rows.columns]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _has_nested_fixed_lists(arrow: pa.DataType) -> bool:
    """Return whether Arrow 25 takes other values from a slice of this type: copy it before."""
    if isinstance(arrow, pa.BaseExtensionType):
        return _has_nested_fixed_lists(arrow.storage_type)
    inner = [arrow.field(number).type for number in range(arrow.num_fields)]
    is_fixed = pa.types.is_fixed_size_list
    return (is_fixed(arrow) and is_fixed(inner[0])) or any(map(_has_nested_fixed_lists, inner))


def fixed_binary(
    data: np.ndarray, width: int, missing: np.ndarray | None, *, rows: int | None = None
) -> pa.Array:
    """Return C-contiguous `data` as binary values of `width` bytes each, without a copy."""
    rows = rows if rows is not None else data.nbytes // width
    validity = None
    if missing is not None:
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(width), rows, [validity, pa.py_buffer(data)])


def to_text(values: pa.Array) -> pa.Array:
    """Return numbers, booleans or times as text: decimal digits, or ISO 8601.

    Timestamps with a zone are written in UTC, durations as their number of units.

    Raises:
        DataError: A time is before the year 0 or after 9999: Arrow writes a wrong text, or none.
    """
    arrow = values.type
    if pa.types.is_timestamp(arrow) or pa.types.is_date(arrow):
        _check_years(values)
    if pa.types.is_duration(arrow):
        values = values.view(pa.int64())
    elif pa.types.is_timestamp(arrow) and arrow.tz is not None:
        values = pc.cast(values, pa.timestamp(arrow.unit, "UTC"))
    elif pa.types.is_float16(arrow):
        values = pc.cast(values, pa.float32())
    return pc.cast(values, pa.string())


def _check_years(times: pa.Array) -> None:
    arrow = times.type
    unit = time_unit(arrow)
    if unit == "ns":
        # The years 1677 to 2262. Arrow cannot parse the first second.
        low, high = 10**9 - 2**63, 2**63
    else:
        low, high = (int(np.datetime64(f"{y}-01-01", unit).astype("i8")) for y in ("0000", "10000"))
    ends = pc.min_max(times.view(pa.int32() if arrow == pa.date32() else pa.int64())).as_py()
    if times.null_count < len(times) and (ends["min"] < low or ends["max"] >= high):
        raise DataError(
            f"a time of type {arrow} is outside of the years that text can have, 0 to 9999: leave "
            'out "store": "text" in --schema, or the type string'
        )


def from_text(text: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Parse text into values of type `arrow`; the inverse of `to_text`."""
    if pa.types.is_duration(arrow):
        return pc.cast(text, pa.int64()).view(arrow)
    if pa.types.is_time(arrow):
        return _times_from_text(text, arrow)
    made = pc.cast(text, arrow)
    if pa.types.is_decimal(arrow):
        # Arrow silently turns a number that is 39 digits finer than the type into 0.
        zeros = text.filter(pc.equal(pc.cast(made, pa.float64()), 0))
        if pc.any(pc.match_substring_regex(zeros, "^[^eE]*[1-9]")).as_py():
            raise pa.ArrowInvalid(f"a number is finer than {arrow}")
    return made


def _times_from_text(text: pa.Array, arrow: pa.DataType) -> pa.Array:
    # Arrow cannot parse a time of day, but a timestamp on 1970-01-01 has the same number of ticks.
    on_first_day = pc.binary_join_element_wise(
        pa.scalar("1970-01-01"), pc.cast(text, pa.string()), " "
    )
    ticks = pc.cast(on_first_day, pa.timestamp(arrow.unit)).view(pa.int64())
    is_32_bit = pa.types.is_time32(arrow)
    return (pc.cast(ticks, pa.int32()) if is_32_bit else ticks).view(arrow)


def uuid_to_text(storage: pa.Array) -> pa.Array:
    """Return 16-byte UUIDs as canonical text: lower-case hex digits, grouped 8-4-4-4-12."""
    rows = len(storage)
    if not rows:
        return pa.array([], pa.string())
    raw = np.frombuffer(storage.buffers()[1], np.uint8)
    raw = raw[storage.offset * 16 : (storage.offset + rows) * 16]
    digits = np.frombuffer(raw.tobytes().hex().encode(), np.uint8)
    text = np.full((rows, 36), ord("-"), np.uint8)
    text[:, _UUID_DIGITS] = digits.reshape(rows, 32)
    return pc.cast(fixed_binary(text, 36, missing_of(storage)), pa.string())


def uuid_from_text(text: pa.Array) -> pa.Array:
    """Return the 16 bytes of UUIDs written as text, in either case, with or without dashes."""
    digits = pc.replace_substring(pc.cast(text, pa.string()), "-", "")
    good = pc.match_substring_regex(digits, "^[0-9a-fA-F]{32}$")
    if pc.any(pc.invert(good)).as_py():
        first = text.filter(pc.invert(good))[0].as_py()
        raise pa.ArrowInvalid(f"{first!r} is not a uuid")
    joined = "".join(pc.fill_null(digits, "0" * 32).to_pylist())
    return fixed_binary(np.frombuffer(bytes.fromhex(joined), np.uint8), 16, missing_of(digits))


class Rounded(NamedTuple):
    """Numbers rounded to float64, in two ways; nulls stay null."""

    nearest: pa.Array
    exact: pa.Array

    @property
    def error(self) -> float:
        """The largest relative error of `nearest`; 0 if each value stands for its number."""
        if self.exact is self.nearest:
            return 0.0
        return relative_error(self.nearest, self.exact)


def relative_error(stored: pa.Array, exact: pa.Array) -> float:
    """Return the largest relative error of float64 values that are stored instead of exact ones.

    An exact value two steps beside the stored one only shows how the number rounds to float32: it
    does not count as an error.
    """
    one, other = stored.drop_null().to_numpy(), exact.drop_null().to_numpy()
    beside = np.nextafter(one, other)
    stands = (beside != other) & (np.nextafter(beside, other) == other)
    changed = np.flatnonzero((one != other) & ~stands & ~np.isnan(other))
    lengths = np.sort(np.abs([one[changed], other[changed]]), axis=0)
    errors = (lengths[1] - lengths[0]) / np.where(lengths[0], lengths[0], lengths[1])
    return float(errors.max(initial=0.0))


def round_text(text: pa.Array) -> Rounded:
    """Return numbers that are written as text, rounded to float64."""
    filled = pc.fill_null(pc.cast(text, pa.string()), "0")
    known = pc.cast(filled, pa.float64()).to_numpy()
    nearest, exact, bad = _parsed(pc.replace_substring_regex(filled, r"^\+", ""))
    # Arrow parses the rest: it knows some notations that the native kernel does not.
    nearest[bad] = exact[bad] = known[bad]
    if np.isinf(nearest[bad]).any():
        raise pa.ArrowInvalid("a number is too large for float64")
    return _rounded(text, nearest, exact)


def round_decimals(values: pa.Array) -> Rounded:
    """Return decimals rounded to float64."""
    filled = pc.fill_null(values, pa.scalar(0, values.type))
    scale = filled.type.scale  # Arrow gives another one in place of a negative scale
    digits = _short_digits(filled)
    if digits is None:
        nearest, exact, _ = _parsed(to_text(filled))
        return _rounded(values, nearest, exact)
    nearest = exact = digits / 10.0**scale if scale > 0 else digits * 10.0**-scale
    # Halfway between two float32 values, `exact` differs, unless the number equals the float64.
    halfway = nearest.view(np.int64) & 0x1FFFFFFF == 0x10000000
    if scale > 0:
        halfway &= digits % 5**scale != 0
    if halfway.any():
        exact = nearest.copy()
        nearest[halfway], exact[halfway], _ = _parsed(to_text(filled.filter(pa.array(halfway))))
    return _rounded(values, nearest, exact)


def _short_digits(values: pa.Array) -> Int64Array | None:
    """Return the unscaled integers of decimals of at most 15 digits; None if one has more."""
    scale = values.type.scale
    if abs(scale) > _EXACT_POWER:
        return None
    try:
        short = pc.cast(values, pa.decimal64(_FEW_DIGITS, scale))
    except pa.ArrowInvalid:
        return None
    digits: Int64Array = short.view(pa.int64()).to_numpy()
    return digits


def _parsed(text: pa.Array) -> tuple[Float64Array, Float64Array, list[int]]:
    """Parse numbers with the native kernel."""
    filler = Filler(
        _ONE_COLUMN, 1, [_NUMBER], keep_blank=True, nulls=[], always=[], capacity=max(1, len(text))
    )
    filler.feed(_lines(text), 0, True)
    bad = [fault.row for fault in filler.take_faults()]
    ((values, _, _, exact),) = filler.take()
    nearest = values.view(np.float64)
    return nearest, nearest.copy() if exact is None else exact, bad


def _lines(text: pa.Array) -> UInt8Array:
    """Return texts, which must not have nulls or line ends, as bytes with one line for each."""
    _, offsets, data = text.buffers()
    ends = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]
    return np.insert(np.frombuffer(data, np.uint8)[: ends[-1]], ends[1:], _LINE_END)[ends[0] :]


def _rounded(source: pa.Array, nearest: Float64Array, exact: Float64Array) -> Rounded:
    """Return `Rounded` numbers, which are null where `source` is."""
    missing = missing_of(source)
    first = pa.array(nearest, mask=missing)
    is_same = exact is nearest or np.array_equal(nearest, exact, equal_nan=True)
    return Rounded(first, first if is_same else pa.array(exact, mask=missing))
