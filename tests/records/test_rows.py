from __future__ import annotations

import dataclasses
import datetime
import decimal
import itertools
import random
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.records.examples import canonical_examples
from beam_tfrecord.records.mapped_rows import call_on_rows, mapped_batch
from beam_tfrecord.records.row_types import RowTypes, infer_row_types
from beam_tfrecord.rows.batch import EXAMPLES_SCHEMA, Batch, Origin, Reject
from tests.helpers.effort import examples
from tests.helpers.records import example
from tests.helpers.tf_example import OTHER_MESSAGES, Example
from tests.whole.type_families import FAMILIES

X = pa.schema([("x", pa.int64())])


def batch(values, origin=None):
    return Batch(pa.record_batch({"x": pa.array(values, pa.int64())}), origin or Origin("u", 0, 10))


def mapped(of, function, schema=X):
    return mapped_batch(of, call_on_rows(of, function), schema)


def where(of):
    assert of.origin is not None
    sub = np.zeros(of.num_rows, int) if of.origin.sub is None else of.origin.sub
    numbers = of.origin.row_numbers(of.num_rows)
    return list(zip(numbers.tolist(), sub.tolist(), strict=True))


class Pair(NamedTuple):
    x: int


@dataclasses.dataclass
class Place:
    x: int


def test_a_function_decides_what_a_row_becomes():
    def by_value(row: dict) -> Any:
        return {
            0: row,
            1: None,
            2: [row, {"x": -2}],
            3: (),
            4: Pair(40),
            5: iter([{"x": 50}]),
            6: [Place(60), beam.Row(x=61)],
        }[row["x"]]

    after = mapped(batch([0, 1, 2, 3, 4, 5, 6]), by_value)
    assert after.data.to_pydict() == {"x": [0, 2, -2, 40, 50, 60, 61]}
    assert where(after)[:5] == [(10, 0), (12, 0), (12, 1), (14, 0), (15, 0)]
    assert where(after)[5:] == [(16, 0), (16, 1)]
    assert after.rejects == ()


def test_a_row_whose_function_raises_is_a_reject_with_the_line():
    def invert(row: dict) -> dict:
        return {"x": 6 // row["x"]}

    after = mapped(batch([1, 0, 3]), invert)
    assert after.data.to_pydict() == {"x": [6, 2]}
    assert where(after) == [(10, 0), (12, 0)]
    [reject] = after.rejects
    assert (reject.unit, reject.row, reject.code) == ("u", 11, "map-error")
    assert reject.message.startswith("u row 11: ZeroDivisionError: integer division or modulo by")
    assert "(at test_rows.py:" in reject.message
    assert 'return {"x": 6 // row["x"]}' in reject.message
    assert reject.value == "{'x': 0}"


class NoText(ValueError):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


@settings(max_examples=examples(80), deadline=None)
@given(st.text() | st.text(st.characters(categories=["Cs", "Cc", "Zl", "L"])), st.integers(1, 4000))
def test_any_error_is_one_line_that_is_cut(text, times):
    def fail(row: dict) -> dict:
        raise error

    for error in (ValueError(text * times), NoText(text)):
        [reject] = mapped(batch([1]), fail).rejects
        assert reject.message.isprintable()
        assert f"{type(error).__name__}: " in reject.message
        assert reject.message.endswith("in fail: raise error)")
        assert len(reject.message) < 1000
    [reject] = mapped(batch([1]), lambda row: {"x": NoText()}).rejects
    assert reject.value == "(repr of it raises RuntimeError)"
    assert len(Reject("", -1, "", "", text * times * 1000).message) < 3000


def test_a_generator_that_fails_halfway_gives_no_row():
    def half(row: dict) -> Iterator[dict]:
        yield row
        raise RuntimeError("enough")

    after = mapped(batch([1]), half)
    assert after.num_rows == 0
    assert len(after.rejects) == 1


@pytest.mark.parametrize(
    "result", [3, "text", object, {1, 2}, [1], *(kind() for kind in OTHER_MESSAGES)], ids=str
)
def test_other_results_are_rejects(result):
    [reject] = mapped(batch([1]), lambda _: result).rejects
    assert "TypeError: a row function returns a dict, None, a list, bytes or" in reject.message


@pytest.mark.parametrize(
    "result", [{"x": "text"}, {"x": 2**63}, {"x": 1.5}, {"x": 1.0}, {"x": 1, "y": 2}, example(x=1)]
)
def test_what_does_not_fit_the_schema_is_a_reject_of_its_row(result):
    after = mapped(batch([0, 1, 2]), lambda row: result if row["x"] == 1 else row)
    assert after.data.to_pydict() == {"x": [0, 2]}
    assert where(after) == [(10, 0), (12, 0)]
    assert [(reject.row, reject.code) for reject in after.rejects] == [(11, "map-error")]


_KEYS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
_NESTS = [
    (lambda x: x, lambda of: of),
    (lambda x: [None, {}, x], pa.list_),
    (lambda x: {"k": [x]}, lambda of: pa.map_(pa.string(), pa.list_(of))),
    (lambda x: ({"s": x},), lambda of: pa.list_(pa.struct({"s": of}))),
]


@settings(max_examples=examples(80), deadline=None)
@given(_KEYS, st.sampled_from([dict, beam.Row]))
@pytest.mark.parametrize(("nest", "within"), _NESTS)
def test_a_key_that_a_struct_does_not_have_is_a_reject(nest, within, keys, kind):
    arrow = within(pa.struct({"a": pa.int64(), "b": pa.int64()}))
    after = mapped(batch([1]), lambda _: {"x": nest(kind(**keys))}, pa.schema([("x", arrow)]))
    assert len(after.rejects) == ("c" in keys)
    for reject in after.rejects:
        assert f"column 'x' is {arrow}: 'c' is no field of struct" in reject.message


@pytest.mark.parametrize("number", [1.5, np.float32(1.5), decimal.Decimal("1.5"), np.array(1.5)])
@pytest.mark.parametrize(
    ("nest", "arrow"),
    [
        (lambda x: x, pa.int64()),
        (lambda x: np.array([x]), pa.list_(pa.int8())),
        (lambda x: {"a": [None, x]}, pa.struct([("a", pa.list_(pa.int64()))])),
        (lambda x: {"k": x}, pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_fraction_is_never_cut_to_an_integer(number, nest, arrow):
    after = mapped(batch([1]), lambda _: {"x": nest(number)}, pa.schema([("x", arrow)]))
    (reject,) = after.rejects
    assert f"column 'x' is {arrow}: " in reject.message


_TEXTS = pa.list_(pa.string())
_PAIR = pa.struct({"a": pa.int64(), "b": _TEXTS})


@pytest.mark.parametrize(
    ("value", "arrow"),
    [
        ({"b", "a"}, _TEXTS),
        (type("Tags", (set,), {})("ab"), pa.large_list(pa.string())),
        ([["c"], {"b", "a"}], pa.list_(_TEXTS)),
        ([None, np.array([None, {"b", "a"}], object)], pa.list_(pa.list_(_TEXTS))),
        ({"a": 1, "b": {"b", "a"}}, _PAIR),
        ([("a", 1), ("b", {"b", "a"})], _PAIR),
        ({"k": {"b", "a"}}, pa.map_(pa.string(), _TEXTS)),
        ({("k", 1), ("l", 2)}, pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_set_is_a_reject_of_its_row_at_any_depth(value, arrow):
    schema = pa.schema([("x", arrow)])
    after = mapped(batch([1, 2]), lambda row: {"x": value if row["x"] == 1 else None}, schema)
    assert after.data.to_pydict() == {"x": [None]}
    (reject,) = after.rejects
    assert reject.row == 10
    assert f"column 'x' is {arrow}: a set has no order: give a sorted list" in reject.message


@pytest.mark.parametrize(
    "nest", [lambda x: x, lambda x: [None, x], lambda x: [{"x": 0}, x], lambda x: {"k": [x]}]
)
@pytest.mark.parametrize("kind", [Pair, Place, beam.Row])
def test_rows_inside_a_row_are_structs(kind, nest):
    rows = [{"v": nest(kind(x=one))} for one in (1, None)]
    plain = [{"v": nest({"x": one})} for one in (1, None)]
    found = infer_row_types(rows)
    assert found == infer_row_types(plain)
    schema = found.to_arrow(pa.schema([]))
    after = mapped(batch([0, 1]), lambda row: rows[row["x"]], schema)
    assert after.rejects == ()
    assert after.data.equals(mapped(batch([0, 1]), lambda row: plain[row["x"]], schema).data)


# {"a": nothing, "b": nothing}, with the features out of order.
ODD_EXAMPLE = bytes.fromhex("0a0e0a050a016212000a050a01611200")
SORTED_EXAMPLE = bytes.fromhex("0a0e0a050a016112000a050a01621200")


def test_messages_become_canonical_and_bytes_stay_as_they_are():
    def by_value(row: dict) -> Any:
        return {
            0: ODD_EXAMPLE,
            1: Example.FromString(ODD_EXAMPLE),
            2: [Example.FromString(ODD_EXAMPLE), b"no example"],
            3: [example(x=1), Example.FromString(ODD_EXAMPLE)],
        }[row["x"]]

    after = mapped(batch([0, 1, 2, 3, 4]), by_value, EXAMPLES_SCHEMA)
    assert after.encoded
    expected = [ODD_EXAMPLE, SORTED_EXAMPLE, example(x=1), SORTED_EXAMPLE]
    assert after.data.column(0).to_pylist() == expected
    assert where(after) == [(10, 0), (11, 0), (13, 0), (13, 1)]
    assert [(reject.row, reject.value) for reject in after.rejects] == [
        (12, "{'x': 2}"),
        (14, "{'x': 4}"),
    ]
    wrong = "TypeError: a row function returned bytes that are not a tf.train.Example"
    assert after.rejects[0].message == f"u row 12: {wrong}"


def test_only_examples_without_unknown_fields_are_changed():
    unknown = ODD_EXAMPLE + b"\x38\x01"
    values = [ODD_EXAMPLE, b"", unknown, b"\xff", SORTED_EXAMPLE]
    expected = pa.array([SORTED_EXAMPLE, b"\x0a\x00", *values[2:]], pa.large_binary())
    assert canonical_examples(values).equals(expected)
    assert canonical_examples([]).equals(expected[:0])


@st.composite
def messages(draw):
    """Draw a message of any type with some bytes of another, or of none, in it."""
    kind = draw(st.sampled_from([*OTHER_MESSAGES, Example]))
    raw = draw(st.sampled_from([example(x=1), example(s="a", f=1.5), b"", draw(st.binary())]))
    raw += draw(st.sampled_from([b"", raw, draw(st.binary(max_size=4))]))
    try:
        return kind.FromString(raw)
    except DecodeError:
        return kind()


@settings(max_examples=examples(400), deadline=None)
@given(messages(), st.booleans())
def test_no_message_loses_a_field(message, is_bytes):
    serialized = message.SerializeToString()
    try:
        expected = Example.FromString(serialized)
        before = expected.ByteSize()
        expected.DiscardUnknownFields()
        fits = before == expected.ByteSize() and (is_bytes or isinstance(message, Example))
    except DecodeError:
        fits = False
    result = serialized if is_bytes else message
    after = mapped(batch([1]), lambda _: result, EXAMPLES_SCHEMA)
    assert len(after.rejects) == (not fits)
    kept = [Example.FromString(one).features for one in after.data.column(0).to_pylist()]
    assert kept == ([expected.features] if fits else [])


def test_rows_without_origin_stay_without():
    plain = Batch(pa.record_batch({"x": [1, 2]}))
    after = mapped(plain, lambda row: [row, 1 // (row["x"] - 1) and row])
    assert after.origin is None
    assert [reject.row for reject in after.rejects] == [-1]


def expand(row: dict) -> Any:
    """Make two rows of an odd one."""
    return [row, {"x": row["x"] * 10 + 1}] if row["x"] % 2 else row


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_numbers_of_rows_do_not_depend_on_batches(values, data):
    cut = data.draw(st.integers(0, len(values)))
    whole = batch(values)
    parts = [whole.slice(0, cut), whole.slice(cut, len(values))]
    for _ in range(3):
        whole = mapped(whole, expand)
        parts = [mapped(part, expand) for part in parts]
    assert where(whole) == where(parts[0]) + where(parts[1])
    assert len(set(where(whole))) == whole.num_rows


def types(of, function=lambda row: row):
    return infer_row_types(call_on_rows(Batch(of), function).rows, of.schema)


def check_unchanged(array):
    before = pa.record_batch([array], ["c"])
    mapped = call_on_rows(Batch(before), dict)
    after = mapped_batch(Batch(before), mapped, types(before).to_arrow(before.schema)).data
    assert after.schema.equals(before.schema)
    assert after.column(0).to_string(window=100) == array.to_string(window=100)


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"dates and times"}))
def test_a_function_that_changes_nothing_changes_no_column(family):
    @settings(max_examples=examples(160))
    @given(FAMILIES[family])
    def check(column):
        array = column.array
        check_unchanged(array)

    check()


def test_nor_does_it_change_a_column_that_arrow_has_trouble_with():
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 2, 3)))
    identifiers = _nested(pa.array([uuid.uuid4()], pa.uuid()))
    for array in (tensors, pa.nulls(2, pa.decimal128(5, -2)), *identifiers):
        check_unchanged(array)


def test_new_columns_get_the_type_of_their_values_in_order_of_the_rows():
    before = pa.record_batch({"b": pa.array([1], pa.int8()), "a": ["x"]})
    after = types(before, lambda row: {"z": 1, "c": 0.1, "a": "y", "b": 1000, "d": True})
    old, z = [("b", pa.int64()), ("a", pa.string())], ("z", pa.int64())
    new = [("c", pa.float64()), ("d", pa.bool_())]
    assert after.to_arrow(before.schema) == pa.schema([*old, z, *new])
    # Rows of other orders, in whatever batches, make it the order of names.
    other = infer_row_types([{"c": 0.1, "d": True}])
    for joined in (after.merge(other), other.merge(RowTypes()).merge(after)):
        assert joined.to_arrow(before.schema) == pa.schema([*old, *new, z])


# Values that Arrow joins in one way in one array, and in another way over several.
MIXED = (
    *(1, 300, 70_000, 2**40, 2**53 + 1, 1.5, 0.1, float("nan"), None, True, "x", b"x"),
    *(np.float32(1.5), np.int16(300), np.array([1, 2]), np.array([1.5], np.float32)),
    *([1], [1.5], [2**53 + 1], [], [None], [[1.5], []], {"a": 1, "b": None}, {"a": 1.5, "b": "x"}),
    *({"b": None, "a": 1}, {"b": "x"}, {"c": [1], "a": None}, [{"c": 1}], [{"a": 1.5}]),
    *(decimal.Decimal("1.5"), decimal.Decimal("0.05"), decimal.Decimal(1000)),
    *(datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)),
    *([("a", 1)], [("a", None)], [("a", "b")]),
)
PAIRS = pa.schema([("x", pa.map_(pa.string(), pa.int32()))])


@pytest.mark.parametrize("count", [2, 3])
def test_types_do_not_depend_on_which_rows_are_in_one_batch(count):
    draw = random.Random(count)
    every = list(itertools.product(MIXED, repeat=count))
    for values in draw.sample(every, min(len(every), examples(3000))):
        rows = [{"x": value} for value in values]
        for before in (pa.schema([]), PAIRS):
            found = {_types_in_batches(rows, size, before) for size in range(1, count + 1)}
            assert len(found) == 1, (values, found)


def _types_in_batches(rows, size, before):
    joined = RowTypes()
    try:
        for first in range(0, len(rows), size):
            joined = joined.merge(infer_row_types(rows[first : first + size], before))
        return str(joined.to_arrow(before))
    except SchemaConflict:
        return "conflict"


def test_integers_and_floats_are_the_float_that_holds_both():
    for integer, number, expected in (
        (1, 1.5, pa.float32()),
        (70_000, 1.5, pa.float64()),
        (1, 0.1, pa.float64()),
        ([1], [1.5], pa.list_(pa.float64())),
        (decimal.Decimal("1.5"), decimal.Decimal("0.05"), pa.decimal128(3, 2)),
    ):
        assert infer_row_types([{"x": integer}, {"x": number}]).columns == {"x": expected}


def test_values_of_no_single_type_are_a_conflict():
    two = "column 'x' has values of two types, float and string: give them one type"
    with pytest.raises(SchemaConflict, match=two):
        infer_row_types([{"x": 1}, {"x": 1.5}, {"x": None}, {"x": "a"}])
    with pytest.raises(SchemaConflict, match="of two types, int8 and list"):
        infer_row_types([{"x": 3}, {"x": [1]}])
    for value in (frozenset("ab"), 2**70, [1, "a"]):
        with pytest.raises(
            SchemaConflict, match=r"column 'x' has values that have no type here \("
        ):
            infer_row_types([{"x": value}])
    with pytest.raises(SchemaConflict, match="column 'x' has values of two types, int8 and string"):
        infer_row_types([{"x": 1}]).merge(infer_row_types([{"x": "a"}]))
    with pytest.raises(SchemaConflict, match="column name 1 is not text: give str keys"):
        infer_row_types([{1: "a"}])


def test_rows_and_examples_do_not_mix():
    assert infer_row_types([b"a"]).to_arrow(X) == EXAMPLES_SCHEMA
    assert infer_row_types([]).to_arrow(X) == X
    with pytest.raises(DataError, match="returns rows and examples: return one kind"):
        infer_row_types([{"x": 1}, b"a"]).to_arrow(X)


def test_a_function_gets_python_values():
    data = pa.record_batch(
        {
            "i": pa.array([2**62 + 1, None], pa.int64()),
            "h": pa.array([0.5, None], pa.float16()),
            "f": pa.array([0.5, None], pa.float32()),
            "s": ["a", None],
        }
    )
    expected = [
        {"i": 4611686018427387905, "h": 0.5, "f": 0.5, "s": "a"},
        {"i": None, "h": None, "f": None, "s": None},
    ]
    seen: list[dict[str, Any]] = []
    call_on_rows(Batch(data), seen.append)
    call_on_rows(Batch(data.select([])), seen.append)
    assert seen == [*expected, {}, {}]
    assert [type(value) for value in seen[0].values()] == [int, float, float, str]


def _nested(times):
    """Return times, lists of them, and structs of them."""
    lists = pa.ListArray.from_arrays([*range(len(times)), len(times)], times)
    return times, lists, pa.StructArray.from_arrays([times], ["t"])


@given(FAMILIES["dates and times"])
def test_a_function_that_changes_nothing_changes_no_time(column):
    times = column.array.filter(column.array.is_valid())
    width = pa.int32() if times.type.bit_width == 32 else pa.int64()
    if times.type.bit_width == 64:
        # The least number is NumPy's NaT, and Arrow takes no timedelta of the last second.
        near = pc.divide(times.view(width), 2**62)
        times = times.filter(pc.equal(near, 0))
    # NumPy's times, by which far ones are given, have no zones and no such dates.
    may_change = pa.types.is_date64(times.type) or getattr(times.type, "tz", None)
    for array in _nested(times):
        batch = Batch(pa.record_batch([array], ["c"]))
        mapped = call_on_rows(batch, dict)
        out = mapped_batch(batch, mapped, types(batch.data).to_arrow(batch.data.schema))
        assert not out.rejects
        (found,) = out.data.columns
        assert may_change or found.type == array.type
        if len(times):
            inner = found if array is times else found.flatten()
            inner = inner[0] if isinstance(inner, list) else inner
            assert inner.view(width).equals(times.view(width))


@given(st.datetimes(), st.sampled_from(["s", "ms"]))
def test_a_time_that_is_finer_than_its_column_is_no_value_of_it(time, unit):
    batch = Batch(pa.record_batch([pa.array([0], pa.timestamp(unit))], ["c"]))
    out = mapped_batch(batch, call_on_rows(batch, lambda _: {"c": time}), batch.data.schema)
    if time.microsecond % {"s": 10**6, "ms": 1000}[unit]:
        assert "a time is finer than" in out.rejects[0].message
    else:
        assert out.data.column(0)[0].as_py() == time
