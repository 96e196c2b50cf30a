"""Random columns of every type of the contract, in families, as hypothesis strategies."""

from __future__ import annotations

import datetime
import decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

Values = st.SearchStrategy[Any]


class Column(NamedTuple):
    """A column, and how the schema stores it."""

    array: pa.Array
    store: str = "auto"


class Plain(NamedTuple):
    """A plain type with the values it is filled with."""

    arrow: pa.DataType
    values: Values


def _ints(arrow):
    signed = pa.types.is_signed_integer(arrow)
    top = 2 ** min(arrow.bit_width - signed, 63) - 1
    return Plain(arrow, st.integers(-top - 1 if signed else 0, top))


INTS = [_ints(t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())]
INTS += [_ints(t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())]
INTS += [Plain(pa.bool_(), st.booleans())]
# Within float32: what overflows to infinity is a reject, not a value.
_DOUBLES = st.floats(-3e38, 3e38) | st.sampled_from([np.inf, -np.inf, np.nan, 1e-300, 0.1])
FLOATS = [
    Plain(pa.float16(), st.floats(width=16)),
    Plain(pa.float32(), st.floats(width=32)),
    Plain(pa.float64(), _DOUBLES),
]
_TEXT, _BINARY = st.text(max_size=20), st.binary(max_size=20)
TEXT = [Plain(t, _TEXT) for t in (pa.string(), pa.large_string(), pa.string_view())]
BINARY = [Plain(t, _BINARY) for t in (pa.binary(), pa.large_binary(), pa.binary_view())]
BINARY += [Plain(pa.binary(3), st.binary(min_size=3, max_size=3))]


def _decimals(arrow):
    digits = arrow.precision
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1)
    with decimal.localcontext() as context:
        context.prec = 100
        unit = decimal.Decimal(1).scaleb(-arrow.scale)

    def scaled(number):
        with decimal.localcontext() as context:
            context.prec = 100
            return number * unit

    return Plain(arrow, unscaled.map(scaled))


DECIMALS = [
    _decimals(arrow)
    for arrow in (
        *(pa.decimal128(18, 0), pa.decimal128(5, 0), pa.decimal128(10, 2), pa.decimal128(38, 10)),
        *(pa.decimal256(18, 0), pa.decimal256(60, 30), pa.decimal32(7, 3), pa.decimal64(15, 4)),
        *(pa.decimal128(29, -1), pa.decimal64(5, -2)),
    )
]


def _stored(arrow, bits, low=None, high=0):
    """Return a type whose values are drawn as its integers."""
    values = (
        st.integers(low, high)
        if low is not None
        else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return Plain(arrow, values)


_DAY = 24 * 3600
TIMES = [
    _stored(pa.date32(), 32, -700_000, 2_900_000),
    Plain(pa.date64(), st.integers(-700_000, 2_900_000).map(lambda day: day * _DAY * 1000)),
    *(_stored(pa.time32(u), 32, 0, _DAY * f - 1) for u, f in (("s", 1), ("ms", 1000))),
    *(_stored(pa.time64(u), 64, 0, _DAY * f - 1) for u, f in (("us", 10**6), ("ns", 10**9))),
    *(_stored(pa.timestamp(unit), 64) for unit in ("s", "ms", "us", "ns")),
    *(_stored(pa.timestamp(unit, "Asia/Tokyo"), 64) for unit in ("us", "ns")),
    *(_stored(pa.duration(unit), 64) for unit in ("s", "ms", "us", "ns")),
]
# In lists and structs: types that are built from Python values.
NESTED = [
    *INTS[:5],
    *FLOATS[:2],
    *TEXT,
    *BINARY,
    DECIMALS[0],
    Plain(pa.date32(), st.dates()),
    Plain(pa.timestamp("us"), st.datetimes(datetime.datetime(1900, 1, 1))),
    Plain(pa.duration("ms"), st.integers(-(2**40), 2**40)),
]


def _rows(values: Values) -> Values:
    return st.lists(st.none() | values, min_size=1, max_size=5)


@st.composite
def _plain_columns(draw, kinds):
    arrow, values = draw(st.sampled_from(kinds))
    rows = draw(_rows(values))
    if pa.types.is_temporal(arrow):
        storage = pa.int32() if arrow.bit_width == 32 else pa.int64()
        array = pa.array(rows, storage).view(arrow)
    elif pa.types.is_float16(arrow):
        array = pa.array([None if x is None else np.float16(x) for x in rows], arrow)
    else:
        array = pa.array(rows, arrow)
    stores = ["auto", "bytes"] if pa.types.is_float64(arrow) else ["auto"]
    return Column(array.slice(draw(st.integers(0, len(rows) - 1))), draw(st.sampled_from(stores)))


@st.composite
def _dictionaries(draw):
    arrow, values = draw(st.sampled_from([*TEXT[:2], *BINARY[:2], *INTS[:4]]))
    rows = draw(_rows(values))
    index = draw(st.sampled_from([pa.int8(), pa.int32(), pa.uint16()]))
    plain = pa.array(rows, arrow).dictionary_encode()
    return Column(plain.cast(pa.dictionary(index, arrow)))


def _list_makers():
    def of(make):
        return lambda item: Plain(make(item.arrow), st.lists(item.values, max_size=3))

    def two(item):
        return Plain(pa.list_(item.arrow, 2), st.lists(item.values, min_size=2, max_size=2))

    return [of(pa.list_), of(pa.large_list), two]


LISTS = _list_makers()


@st.composite
def _lists(draw, depth):
    kind = draw(st.sampled_from(NESTED))
    for _ in range(depth):
        kind = draw(st.sampled_from(LISTS))(kind)
    rows = draw(_rows(kind.values))
    return Column(pa.array(rows, kind.arrow).slice(draw(st.integers(0, len(rows) - 1))))


@st.composite
def _structs_and_maps(draw):
    a, b = draw(st.sampled_from(NESTED)), draw(st.sampled_from(NESTED))
    if draw(st.booleans()):
        b = draw(st.sampled_from(LISTS))(b)
    struct = Plain(
        pa.struct({"a": a.arrow, "b": b.arrow}),
        st.fixed_dictionaries({"a": a.values, "b": b.values}),
    )
    shape = draw(st.sampled_from(["struct", "list of structs", "map", "nulls inside"]))
    if shape == "map":
        entries = st.lists(st.tuples(_TEXT, b.values), max_size=3)
        struct = Plain(pa.map_(pa.string(), b.arrow), entries)
    elif shape == "list of structs":
        struct = Plain(pa.list_(struct.arrow), st.lists(struct.values, max_size=3))
    elif shape == "nulls inside":
        fields = {"a": st.none() | a.values, "b": st.none() | b.values}
        struct = Plain(struct.arrow, st.fixed_dictionaries(fields))
    return Column(pa.array(draw(_rows(struct.values)), struct.arrow))


@st.composite
def _tensors(draw):
    item = draw(st.sampled_from([pa.float32(), pa.int16(), pa.uint8(), pa.int64(), pa.float64()]))
    shape = draw(st.sampled_from([[2], [2, 3], [1, 2, 2]]))
    arrow = pa.fixed_shape_tensor(item, shape)
    size = int(np.prod(shape))
    numbers = st.lists(st.integers(0, 100), min_size=size, max_size=size)
    storage = pa.array(draw(_rows(numbers)), pa.list_(pa.int64(), size)).cast(arrow.storage_type)
    return Column(pa.ExtensionArray.from_storage(arrow, storage))


@st.composite
def _extensions(draw):
    kind = draw(st.sampled_from(["uuid", "json", "opaque", "bool8"]))
    if kind == "uuid":
        raw = pa.array(draw(_rows(st.binary(min_size=16, max_size=16))), pa.binary(16))
        return Column(pa.ExtensionArray.from_storage(pa.uuid(), raw))
    if kind == "json":
        text = pa.array(draw(_rows(st.sampled_from(['{"a": 1}', "[]", '"é"']))), pa.string())
        return Column(pa.ExtensionArray.from_storage(pa.json_(), text))
    if kind == "bool8":
        small = pa.array(draw(_rows(st.sampled_from([0, 1]))), pa.int8())
        return Column(pa.ExtensionArray.from_storage(pa.bool8(), small))
    opaque = pa.opaque(pa.binary(), "geometry", "a database")
    return Column(
        pa.ExtensionArray.from_storage(opaque, pa.array(draw(_rows(_BINARY)), pa.binary()))
    )


FAMILIES = {
    "ints": _plain_columns(INTS),
    "floats": _plain_columns(FLOATS),
    "text and binary": _plain_columns([*TEXT, *BINARY]),
    "dictionaries": _dictionaries(),
    "decimals": _plain_columns(DECIMALS),
    "dates and times": _plain_columns(TIMES),
    "lists": _lists(1),
    "nested lists": st.integers(2, 3).flatmap(_lists),
    "structs and maps": _structs_and_maps(),
    "tensors": _tensors(),
    "extensions": _extensions(),
}
