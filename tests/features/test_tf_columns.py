import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import schema_tf_columns, tf_columns


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
