import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import SchemaConflict, UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch, Origin
from tests.helpers.effort import examples
from tests.helpers.tf_example import Example


def encode(array, feature=None):
    feature = feature or Feature("c", array.type)
    arena = Arena(capacity_bytes=1, capacity_records=1)
    data = pa.RecordBatch.from_arrays([array], names=["c"])
    result = Encoder(Schema((feature,))).encode(Batch(data, Origin("u", 0, 0)), arena)
    payloads = []
    for start in arena.used_starts().tolist():
        size = int(arena.data[start : start + 8].view("<i8")[0])
        payloads.append(arena.data[start + 12 : start + 12 + size].tobytes())
    return result, payloads


def parse(payload):
    example = Example.FromString(payload)
    out = {}
    for name, feature in example.features.feature.items():
        out[name] = list(getattr(feature, feature.WhichOneof("kind")).value)
    return out


@pytest.mark.parametrize(
    ("array", "arrow", "expected"),
    [
        (pa.array(["12"]), pa.int64(), [12]),
        (pa.array([12]), pa.string(), [b"12"]),
        (pa.array([dt.date(1970, 1, 2)]), pa.timestamp("s"), [86400]),
        (pa.array(["00:00:02"]), pa.time32("s"), [2]),
    ],
)
def test_exact_conversions_are_done(array, arrow, expected):
    result, payloads = encode(array, Feature("c", arrow))
    assert result.rejects == []
    assert parse(payloads[0]) == {"c": expected}


@pytest.mark.parametrize(
    ("array", "arrow", "bad"),
    [
        (pa.array([1, 300, None]), pa.int8(), [1]),
        (pa.array(["1", "x", "y", None]), pa.int64(), [1, 2]),
        (pa.array([0.5, 0.1]), pa.float16(), [1]),
        (pa.array([1.0, 1.5]), pa.int64(), [1]),
        (pa.array([0, 1], pa.timestamp("s")), pa.date32(), [1]),
        (pa.array([[1, 2], [1], None]), pa.list_(pa.int64(), 2), [1]),
        (pa.array([{"a": 1}, {"a": 300}]), pa.struct({"a": pa.int8()}), [1]),
    ],
)
def test_inexact_values_are_rejects(array, arrow, bad):
    result, payloads = encode(array, Feature("c", arrow))
    assert [(r.row, r.column, r.code) for r in result.rejects] == [
        (row, "c", "bad-value") for row in bad
    ]
    assert result.rows.tolist() == [row for row in range(len(array)) if row not in bad]
    assert len(payloads) == len(array) - len(bad)


@pytest.mark.parametrize(
    ("array", "feature", "row", "code", "message"),
    [
        (
            pa.array([1, 2**64 - 1], pa.uint64()),
            None,
            1,
            "integer-overflow",
            "value 18446744073709551615 of column 'c' does not fit int64: "
            "store it as text in the schema",
        ),
        (pa.array([1e300]), None, 0, "float-overflow", "value 1e+300 of column 'c' is beyond"),
        (pa.array([[1], [None]]), None, 1, "null-in-list", "a list of column 'c' has a null"),
        (
            pa.array([[b"a"], [b"b", b"\xff"]]).view(pa.list_(pa.string())),
            None,
            1,
            "invalid-utf8",
            "text of column 'c' is not valid UTF-8",
        ),
        (
            pa.array([1, None]),
            Feature("c", pa.int64(), nullable=False),
            1,
            "missing-value",
            "column 'c' has no value",
        ),
    ],
)
def test_rejects_say_why(array, feature, row, code, message):
    result, _ = encode(array, feature)
    (reject,) = result.rejects
    assert (reject.row, reject.column, reject.code) == (row, "c", code)
    assert reject.message.startswith(f"u row {row}: {message}")


def test_rejected_value_is_cut():
    result, _ = encode(pa.array(["x" * 999]), Feature("c", pa.int64()))
    assert result.rejects[0].value == "x" * 200


def test_fill_replaces_nulls_in_lists():
    feature = Feature("c", pa.list_(pa.int64()), fill=-1)
    result, payloads = encode(pa.array([[1, None]]), feature)
    assert result.rejects == []
    assert parse(payloads[0]) == {"c": [1, -1]}


def test_a_fill_is_no_list():
    feature = Feature("c", pa.list_(pa.list_(pa.int64())), fill=-1)
    result, payloads = encode(pa.array([[[1, None]], [None]]), feature)
    assert parse(payloads[0]) == {"c": [1, -1], "c/row_lengths_1": [2]}
    (reject,) = result.rejects
    assert (reject.row, reject.code) == (1, "null-in-list")
    assert "put an empty one there" in reject.message


def test_observed_counts_only_what_was_written():
    result, _ = encode(pa.array([1, 300, None, -5]), Feature("c", pa.int8()))
    seen = result.observed["c"]
    assert (seen.missing, seen.min, seen.max) == (1, -5, 1)


def _structs_of_nulls(value):
    """Return whether a value reads as null, and whether it has a struct of nulls."""
    if not isinstance(value, dict):
        return value is None, False
    fields = [_structs_of_nulls(field) for field in value.values()]
    lacking = all(one for one, _ in fields)
    return lacking, lacking or any(one for _, one in fields)


INNER = pa.struct({"a": pa.int64(), "b": pa.list_(pa.string())})
OUTER = pa.struct({"in": INNER, "c": pa.float32(), "none": pa.null()})
inner = st.none() | st.fixed_dictionaries(
    {"a": st.none() | st.just(1), "b": st.sampled_from([None, [], ["x"], [None]])}
)
outer = st.none() | st.fixed_dictionaries(
    {"in": inner, "c": st.none() | st.just(0.0), "none": st.none()}
)


@settings(max_examples=examples(100))
@given(rows=st.lists(outer, max_size=6))
def test_structs_of_nulls_count_as_missing(rows):
    result, payloads = encode(pa.array(rows, OUTER))
    written = [rows[row] for row in result.rows]
    seen = result.observed["c"]
    assert seen.missing == sum(not parse(payload) for payload in payloads)
    assert seen.null_structs == sum(_structs_of_nulls(row)[1] for row in written)


def test_nan_is_counted_among_written_values():
    nan = float("nan")
    of_lists = encode(pa.array([[nan, 1.0], None, [nan], [float("inf"), 2.0]]))[0].observed["c"]
    assert (of_lists.missing, of_lists.min, of_lists.max, of_lists.nan) == (1, 1.0, 2.0, 2)
    alone = encode(pa.array([nan, None], pa.float32()))[0].observed["c"]
    assert (alone.missing, alone.min, alone.max, alone.nan) == (1, None, None, 1)
    # The second row is rejected: its NaN is not written.
    values = pa.array([nan, nan], pa.float64())
    feature = Feature("c", pa.float64())
    lists = pa.array([[1.0], [nan, None]], pa.list_(pa.float64()))
    assert encode(lists)[0].observed["c"].nan == 0
    assert encode(values, feature)[0].observed["c"].nan == 2


def test_a_column_of_another_nature_is_a_conflict():
    with pytest.raises(SchemaConflict, match=r"column 'c' is struct.* but int64 in the schema"):
        encode(pa.array([{"a": 1}]), Feature("c", pa.int64()))


def test_a_null_struct_hides_the_values_of_its_fields():
    fields = [pa.array([1, 2]), pa.array(["x", "y"])]
    array = pa.StructArray.from_arrays(fields, ["a", "b"], mask=pa.array([False, True]))
    assert list(map(parse, encode(array)[1])) == [{"c/a": [1], "c/b": [b"x"]}, {}]


@pytest.mark.parametrize("fill", [2.5, "x"])
def test_a_fill_of_another_type_is_refused(fill):
    feature = Feature("c", pa.list_(pa.int64()), fill=fill)
    with pytest.raises(UsageError, match=f"fill {fill!r} of column 'c' is not a value"):
        encode(pa.array([[1, None]]), feature)
