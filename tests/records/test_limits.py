"""A row is a reject if, and only if, Python's own comparison says that a value is not allowed."""

import dataclasses
import datetime as dt
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import schema_pbtxt
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch, Origin
from tests.helpers.effort import examples

PATTERNS = ("[a-c]*", "a|b", "a.", r"\d+", "", "(?i)A")
FLOATS = st.floats(-10, 10) | st.sampled_from([0.1, 0.3, 0.0, -0.0, float("nan"), float("inf")])
TEXTS = st.text("abcdA1é\n", max_size=3)
DATES = st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))
MOMENTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))


@dataclasses.dataclass
class Kind:
    """A type of values, how Python compares them as stored, and how JSON has a limit."""

    type: pa.DataType
    values: st.SearchStrategy
    stored: object = staticmethod(lambda value: value)
    json: object = staticmethod(lambda value: value)
    store: str = "auto"


KINDS = [
    Kind(pa.int64(), st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)),
    Kind(pa.int8(), st.integers(-128, 127)),
    Kind(pa.uint64(), st.integers(0, 2**63 - 1)),
    Kind(pa.int64(), st.integers(-5, 5), store="text"),
    Kind(pa.float64(), FLOATS, np.float32),
    Kind(pa.float32(), FLOATS.map(lambda x: float(np.float32(x))), np.float32),
    Kind(pa.float16(), FLOATS.map(lambda x: float(np.float16(x))), np.float16),
    Kind(pa.float64(), FLOATS, store="bytes"),
    Kind(pa.float64(), FLOATS, store="text"),
    Kind(pa.decimal128(9, 2), st.decimals(-10, 10, places=2), json=str),
    Kind(pa.date32(), DATES, json=dt.date.isoformat),
    Kind(pa.timestamp("us"), MOMENTS, json=dt.datetime.isoformat),
    Kind(
        pa.timestamp("us", "UTC"),
        MOMENTS.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
        json=lambda moment: moment.isoformat().replace("+00:00", "Z"),
    ),
    Kind(pa.string(), TEXTS),
    Kind(pa.large_string(), TEXTS),
    Kind(pa.string_view(), TEXTS),
]


def is_allowed(value, limits, kind):
    stored = kind.stored(value)
    if "min" in limits and not stored >= kind.stored(limits["min"]):
        return False
    if "max" in limits and not stored <= kind.stored(limits["max"]):
        return False
    if "values" in limits and value not in limits["values"]:
        return False
    return re.fullmatch(limits.get("pattern", "(?s).*"), str(value), re.ASCII) is not None


def leaves(value):
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list) else [value]


@st.composite
def columns(draw):
    kind = draw(st.sampled_from(KINDS))
    is_text, is_integer = kind.values is TEXTS, pa.types.is_integer(kind.type)
    keys = ["min", "max", *(["values"] if is_text or is_integer else [])]
    keys = draw(st.sets(st.sampled_from([*keys, *(["pattern"] if is_text else [])]), min_size=1))
    value = kind.values
    limits = {key: draw(value) for key in sorted(keys - {"values", "pattern"})}
    if "values" in keys:
        limits["values"] = draw(st.lists(value, max_size=4))
    if "pattern" in keys:
        limits["pattern"] = draw(st.sampled_from(PATTERNS))
    arrow, rows = kind.type, st.none() | value
    for depth in range(draw(st.integers(0, 2))):
        size = draw(st.sampled_from([-1, 2]))
        arrow = pa.list_(arrow, size)
        few = {"min_size": 0, "max_size": 3} if size < 0 else {"min_size": 2, "max_size": 2}
        rows = st.lists(value if depth == 0 else rows, **few)
    if pa.types.is_nested(arrow):
        rows = st.none() | rows
    return kind, arrow, limits, draw(st.lists(rows, max_size=6))


def codes(array, feature):
    data = pa.RecordBatch.from_arrays([array], names=[feature.name])
    made = Encoder(Schema((feature,))).encode(Batch(data, Origin("u", 0, 0)), Arena())
    return {reject.row: reject.code for reject in made.rejects}, made


def in_json(limits, kind):
    show = kind.json
    return {
        key: limit
        if key == "pattern"
        else [show(one) for one in limit]
        if key == "values"
        else show(limit)
        for key, limit in limits.items()
    }


@given(columns(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_a_row_is_a_reject_if_and_only_if_a_value_is_not_allowed(column, in_dictionary):
    kind, arrow, limits, rows = column
    array = pa.array(rows, arrow)
    if in_dictionary and not pa.types.is_nested(arrow) and not pa.types.is_string_view(arrow):
        array = array.dictionary_encode() if not pa.types.is_floating(arrow) else array
    feature = Feature("c", arrow, store=kind.store, allowed=in_json(limits, kind))
    expected = {
        row: "not-allowed"
        for row, value in enumerate(rows)
        if value is not None and not all(is_allowed(one, limits, kind) for one in leaves(value))
    }
    found, made = codes(array, feature)
    assert found == expected
    assert schema_pbtxt(Schema((feature,)))
    assert made.rows.tolist() == [row for row in range(len(rows)) if row not in expected]


def test_numbers_in_text_are_compared_as_numbers():
    array = pa.array(["9", "10", "11", None])
    for store in ("auto", "bytes", "text"):
        feature = Feature("c", "float64", store=store, allowed={"max": 10})
        assert codes(array, feature)[0] == {2: "not-allowed"}
    assert codes(array, Feature("c", "int64", allowed={"min": 10}))[0] == {0: "not-allowed"}
    assert codes(array, Feature("c", pa.decimal128(4, 1), allowed={"max": 10}))[0] == {
        2: "not-allowed"
    }


def test_a_reject_names_column_value_and_limit():
    feature = Feature("age", "int64", allowed={"max": 150})
    (reject,) = codes(pa.array([1, 200]), feature)[1].rejects
    assert (reject.row, reject.column, reject.value) == (1, "age", "200")
    assert reject.message == (
        "u row 1: value 200 of column 'age' is not allowed (max: 150): "
        "correct it, or change the schema"
    )


def test_a_row_has_one_reject():
    feature = Feature("c", "int8", allowed={"min": 3, "max": 1, "values": [7]})
    assert codes(pa.array([2, 300]), feature)[0] == {0: "not-allowed", 1: "bad-value"}


@pytest.mark.parametrize(
    ("arrow", "allowed"),
    [
        (pa.int64(), {"min": "x"}),
        (pa.int64(), {"min": 1.5}),
        (pa.uint8(), {"max": 300}),
        (pa.int64(), {"pattern": "a"}),
        (pa.list_(pa.struct({"a": pa.int64()})), {"max": 1}),
        (pa.string(), {"pattern": "a("}),
        (pa.string(), {"pattern": "a)(b"}),
        (pa.string(), {"pattern": r"\Qa.b"}),
        (pa.struct({"a": pa.int64()}), {"min": 1}),
        (pa.map_(pa.string(), pa.int64()), {"values": [1]}),
        (pa.fixed_shape_tensor(pa.uint8(), [2, 2]), {"max": 1}),
    ],
)
def test_limits_that_do_not_fit_the_type_are_refused(arrow, allowed):
    with pytest.raises(UsageError, match=r"'c'"):
        Encoder(Schema((Feature("c", arrow, allowed=allowed),)))


@pytest.mark.parametrize(
    ("json", "message"),
    [
        ('"allowed": {"mni": 1}', "invalid limit 'mni': 1 in 'allowed': the limits are min, max"),
        ('"allowed": {"min": [1]}', r"invalid limit 'min': \[1\]"),
        ('"allowed": {"values": "abc"}', "invalid limit 'values': 'abc'"),
        ('"allowed": {"max_null_share": 2}', "invalid limit 'max_null_share': 2"),
    ],
)
def test_wrong_limits_in_json_are_refused(json, message):
    with pytest.raises(UsageError, match=message):
        Schema.loads(f'{{"features": [{{"name": "c", "type": "string", {json}}}]}}')


def test_limits_may_stand_beside_the_type():
    limits = '"min": 0, "values": [0.1, 2], "max_null_share": 0.5'
    given = Schema.loads(f'{{"features": [{{"name": "c", "type": "double", {limits}}}]}}')
    assert given["c"].allowed == {"min": 0, "values": [0.1, 2], "max_null_share": 0.5}
    assert codes(pa.array([0.1, 2, 1.5]), given["c"])[0] == {2: "not-allowed"}
    assert Schema.loads(given.dumps()) == given


def test_limits_and_statistics_are_apart_in_json():
    text = (
        '{"features": [{"name": "c", "type": "int64", "missing": 0, "min": 1, "max": 2, '
        '"allowed": {"min": 0}}]}'
    )
    schema = Schema.loads(text)
    assert (schema["c"].allowed, schema["c"].observed.min) == ({"min": 0}, 1)
    assert Schema.loads(schema.dumps()) == schema
    assert schema.without_observed()["c"].allowed == {"min": 0}
    later = {"name": "c", "allowed": {"min": 0, "step": 2}}
    assert Feature.from_json(later, strict=False).allowed == {"min": 0}


def test_a_fill_keeps_to_the_limits():
    lists = pa.array([[1, None], [0]])
    feature = Feature("c", lists.type, fill=1, allowed={"min": 1})
    assert codes(lists, feature)[0] == {1: "not-allowed"}
    with pytest.raises(UsageError, match=r"fill 0 of column 'c' is not allowed \(min\)"):
        codes(lists, dataclasses.replace(feature, fill=0))


@pytest.mark.parametrize("arrow", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize("allowed", [{"pattern": "a|b"}, {"values": ["a"]}, {"min": "a"}])
def test_text_that_is_not_utf8_is_still_a_reject(arrow, allowed):
    raw = pa.array([b"a", b"\xff"], pa.large_binary())
    array = pa.LargeStringArray.from_buffers(2, *raw.buffers()[1:])
    assert set(codes(array, Feature("c", arrow, allowed=allowed))[0]) == {1}


def test_both_zeros_are_one_number():
    feature = Feature("c", "float32", allowed={"values": [0, 1]})
    assert codes(pa.array([0.0, -0.0, 0.5]), feature)[0] == {2: "not-allowed"}
