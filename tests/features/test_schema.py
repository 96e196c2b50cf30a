import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.cast_to_schema import same_values
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import schema_tf_columns
from beam_tfrecord.sources.csv.source import Csv

SCHEMA = Schema((Feature("a", "int64", nullable=False), Feature("b", "text", default="-")))


def test_json_text_is_one_line_a_feature_and_reads_back():
    assert SCHEMA.dumps() == (
        '{\n  "features": [\n'
        '    {"name": "a", "type": "int64", "nullable": false},\n'
        '    {"name": "b", "type": "string", "default": "-"}\n'
        "  ]\n}\n"
    )
    assert Schema.loads(SCHEMA.dumps()) == SCHEMA


def test_observed_merges_and_survives_json():
    seen = ColumnStats(1, 3, 5, 0.5).merge(ColumnStats(2, -1, None, 0.25))
    assert seen == ColumnStats(3, -1, 5, 0.5)
    written = SCHEMA.with_observed({"a": seen})
    assert written["a"].nullable
    assert not written["b"].nullable
    assert Schema.loads(written.dumps()) == written


def test_edit_replaces_adds_and_removes():
    edited = SCHEMA.edit(a=None, b=Feature(type="bytes"), z=Feature(type="bool"))
    assert [(f.name, f.type) for f in edited.features] == [("b", pa.binary()), ("z", pa.bool_())]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"schema is not JSON: .*: line 1 column 2"),
        ("[]", "it has no list of features"),
        (
            '{"features": [{"name": "a", "tpye": "int64"}]}',
            "unknown key 'tpye': did you mean 'type'?",
        ),
        ('{"features": [{"name": "a", "zzz": 1}]}', "unknown key 'zzz': the keys are name, store,"),
        ('{"features": [{"name": "a"}, {"name": "a"}]}', "two features are named 'a'"),
    ],
)
def test_wrong_schema_files_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        Schema.loads(text)


def test_an_unknown_column_cannot_be_removed_or_taken():
    with pytest.raises(UsageError, match="column 'aa' is not in the schema: did you mean 'a'"):
        SCHEMA.edit(aa=None)
    with pytest.raises(KeyError, match="column 'c' is not in the schema: the columns are a, b"):
        SCHEMA["c"]


def test_a_wrong_type_names_its_column_and_the_types():
    message = "column 'x': 'strng' is not a type: did you mean 'string'? the types are string, by"
    with pytest.raises(UsageError, match=re.escape(message)):
        Schema.loads('{"features": [{"name": "x", "type": "strng"}]}')
    with pytest.raises(UsageError, match=re.escape(message)):
        Csv("a.csv", types={"x": "strng"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("float", pa.list_(pa.list_(pa.float32(), 3), 2)),
        ({"list": {"list": "float"}}, pa.list_(pa.list_(pa.float32(), 3), 2)),
        ({"fixed_size_list": {"list": "float"}, "size": 2}, pa.list_(pa.list_(pa.float32(), 3), 2)),
    ],
)
def test_a_shape_fixes_the_sizes_of_lists(given, expected):
    feature = Feature.from_json({"name": "x", "type": given, "shape": [2, 3]})
    assert feature == Feature("x", given, shape=[2, 3])
    assert feature.type == expected
    assert Feature.from_json(feature.to_json()) == feature


@pytest.mark.parametrize(
    ("arrow", "shape"),
    [("int64", []), ("int64", [0]), ("int64", ["a"]), ({"list": "int64"}, [1, 2])],
)
def test_a_shape_that_does_not_fit(arrow, shape):
    with pytest.raises(UsageError, match="shape"):
        Feature("x", arrow, shape=shape)


_SCALARS = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.decimal128(9, -2)),
        *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(3), pa.uuid()),
        *(pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.duration("s")),
        *(pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("s", "+01:00")),
        *(pa.decimal32(4, 1), pa.bool8(), pa.month_day_nano_interval(), pa.null()),
        *(pa.fixed_shape_tensor(pa.int32(), [2, 3]), pa.dictionary(pa.int8(), pa.string())),
    ]
)
_TEXTS = st.text(max_size=5) | st.sampled_from(
    ["", "\0", "\n", '"', "\\", "\ud800", "a/b", "x" * 300]
)
_TYPES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.builds(pa.list_, inner),
        st.builds(lambda item, size: pa.list_(item, size), inner, st.integers(0, 3)),
        st.builds(pa.map_, st.just(pa.string()), inner),
        st.dictionaries(_TEXTS.filter(str.isprintable), inner, max_size=3).map(
            lambda fields: pa.struct(list(fields.items()))
        ),
    ),
    max_leaves=4,
)
_VALUES = (
    st.none()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.booleans()
    | _TEXTS
    | st.binary(max_size=2)
    | st.lists(st.integers(), max_size=2)
)
_FEATURES = st.builds(
    Feature,
    name=_TEXTS | st.just(5),
    type=_TYPES,
    nullable=st.booleans() | st.just(1),
    default=_VALUES,
    fill=_VALUES,
    store=st.sampled_from(["auto", "auto", "text", "bytes", "values"]),
    dtype=st.none() | st.just(3) | _TEXTS,
    labels=st.lists(_TEXTS | st.just(1), max_size=2).map(tuple),
    observed=st.none() | st.builds(ColumnStats, missing=st.integers(0), min=st.integers()),
)


@given(st.lists(_FEATURES, max_size=2, unique_by=lambda feature: feature.name))
def test_every_schema_that_can_be_written_is_read_back(features):
    schema = Schema(tuple(features))
    try:
        schema_tf_columns(schema)
    except UsageError:
        return
    read = Schema.loads(schema.dumps())
    assert read.dumps() == schema.dumps()
    assert read.names == schema.names
    for old, new in zip(schema.features, read.features, strict=True):
        assert same_values(old.type, new.type)
        assert (old.nullable, old.labels, old.observed) == (new.nullable, new.labels, new.observed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "feature '' in the schema: it has no name: rename the column, or leave it"),
        ({"default": b"-"}, "feature 'a' in the schema: JSON cannot hold its name or one of its"),
        ({"default": 10**5000}, "feature 'a' in the schema: JSON cannot hold its name or one of"),
        ({"name": "\ud800"}, "feature '\\\\ud800' in the schema: JSON cannot hold its name or one"),
        ({"labels": ("x", 1)}, r"feature 'a' in the schema: invalid value \['x', 1\] for 'labels'"),
        ({"name": 5}, "feature 5 in the schema: invalid value 5 for 'name'"),
    ],
)
def test_what_the_reader_would_refuse_is_not_written(options, message):
    schema = Schema((Feature(**{"name": "a"} | options),))
    with pytest.raises(UsageError, match=f"^{message}"):
        schema_tf_columns(schema)
