import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.features.tf_columns import schema_tf_columns, tf_columns

BYTES, FLOAT, INT64 = 1, 2, 3


def kinds(arrow, **options):
    return [(part.name, part.kind) for part in tf_columns(Feature("c", arrow, **options))]


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.bool_(), INT64),
        (pa.int8(), INT64),
        (pa.uint64(), INT64),
        (pa.float16(), FLOAT),
        (pa.float64(), FLOAT),
        (pa.string_view(), BYTES),
        (pa.binary(4), BYTES),
        (pa.dictionary(pa.int8(), pa.string()), BYTES),
        (pa.decimal128(18, 0), INT64),
        (pa.decimal128(19, 0), FLOAT),
        (pa.decimal128(5, 2), FLOAT),
        (pa.decimal128(5, -2), INT64),
        (pa.date32(), INT64),
        (pa.time64("ns"), INT64),
        (pa.timestamp("us", "UTC"), INT64),
        (pa.duration("s"), INT64),
        (pa.list_(pa.float32()), FLOAT),
        (pa.uuid(), BYTES),
        (pa.json_(), BYTES),
    ],
)
def test_plain_columns_are_one_feature(arrow, kind):
    assert kinds(arrow) == [("c", kind)]


@pytest.mark.parametrize(
    ("arrow", "expected"),
    [
        (pa.struct({"a": pa.int8(), "b": pa.string()}), [("c/a", INT64), ("c/b", BYTES)]),
        (pa.map_(pa.string(), pa.float32()), [("c/key", BYTES), ("c/value", FLOAT)]),
        (
            pa.list_(pa.list_(pa.list_(pa.float32()))),
            [("c", FLOAT), ("c/row_lengths_1", INT64), ("c/row_lengths_2", INT64)],
        ),
        (pa.list_(pa.list_(pa.int64(), 2), 3), [("c", INT64)]),
        (pa.list_(pa.list_(pa.int64(), 2)), [("c", INT64), ("c/row_lengths_1", INT64)]),
        (pa.fixed_shape_tensor(pa.int16(), [2, 3]), [("c", INT64)]),
    ],
)
def test_nested_columns_are_several_features(arrow, expected):
    assert kinds(arrow) == expected


def test_store_changes_the_kind():
    assert kinds(pa.decimal128(5, 2), store="text") == [("c", BYTES)]
    assert kinds(pa.float64(), store="bytes") == [("c", BYTES)]
    assert kinds(TensorType("int16", [2]), store="values") == [("c", INT64)]


@pytest.mark.parametrize(
    ("arrow", "options", "message"),
    [
        (pa.month_day_nano_interval(), {}, "column 'c'.*cast it to numbers"),
        (pa.dense_union([pa.field("a", pa.int8())]), {}, "column 'c'.*cast it to numbers"),
        (pa.null(), {}, "column 'c'.*give it a type in the schema"),
        (pa.struct([]), {}, "column 'c'.*holds no values"),
        (pa.int64(), {"store": "bytes"}, "only float64"),
        (pa.int64(), {"store": "values"}, "only tensors"),
        (pa.binary(), {"store": "text"}, "only numbers"),
    ],
)
def test_refusals_name_the_column_and_the_cure(arrow, options, message):
    with pytest.raises(UsageError, match=message):
        tf_columns(Feature("c", arrow, **options))


def test_one_feature_name_from_two_columns_is_refused():
    features = (Feature("a", pa.struct({"b": pa.int8()})), Feature("a/b", pa.int8()))
    with pytest.raises(UsageError, match="columns 'a' and 'a/b' both map to the example key 'a/b'"):
        schema_tf_columns(Schema(features))
