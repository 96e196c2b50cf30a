"""Names of classes on their way from a column to the schema and back."""

import json

import pyarrow as pa

from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema

NAMES = ("cat", "日本", 'say "x"')


def test_a_schema_keeps_them_in_arrow_and_json():
    schema = Schema((Feature("label", pa.int64(), labels=NAMES), Feature("x", pa.int64())))
    assert Schema.from_arrow(schema.to_arrow()) == schema
    assert Schema.loads(schema.dumps()) == schema
    first, second = json.loads(schema.dumps())["features"]
    assert first["labels"] == list(NAMES)
    assert "labels" not in second


def test_a_schema_without_labels_takes_those_that_were_read():
    read = Schema((Feature("label", pa.int64(), labels=NAMES), Feature("y", pa.int64())))
    given = Schema((Feature("x", pa.int64()), Feature("label", pa.int32())))
    assert given.with_labels_of(read) == Schema(
        (Feature("x", pa.int64()), Feature("label", pa.int32(), labels=NAMES))
    )
    own = Schema((Feature("label", pa.int64(), labels=("a",)),))
    assert own.with_labels_of(read) == own
