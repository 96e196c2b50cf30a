import re

import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
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
        ("{", "schema is not JSON: line 1"),
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


def test_selecting_an_unknown_column_names_the_known_ones():
    with pytest.raises(UsageError, match="column 'c' is not in the schema: the columns are a, b"):
        SCHEMA.select(["c"])


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
