import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import schema_pbtxt
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.frameworks.reading_programs import feature_lines
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")

SCHEMA = Schema(
    (
        Feature("id", "int64", nullable=False),
        Feature("maybe", "float"),
        Feature("zip", "text", default='quote " and \\ and é'),
        Feature("day", "date32", default="1970-01-03"),
        Feature("rate", "double", default=0.1),
        Feature("pair", pa.list_(pa.float32(), 2), nullable=False),
        Feature("pair0", pa.list_(pa.float32(), 2), default=0),
        Feature("tags", pa.list_(pa.string())),
        Feature("deep", pa.list_(pa.list_(pa.list_(pa.int64())))),
        Feature("at", pa.struct({"lat": pa.float64()})),
        Feature("image", pa.fixed_shape_tensor(pa.uint8(), [2, 2]), nullable=False),
        Feature('odd "näme"\n', "bytes"),
    )
)


def ragged(dtype, name, *keys):
    parts = [tf.io.RaggedFeature.RowLengths(key) for key in keys]
    return tf.io.RaggedFeature(dtype, name, parts, row_splits_dtype=tf.int64)


def expected():
    return {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "maybe": tf.io.VarLenFeature(tf.float32),
        "zip": tf.io.FixedLenFeature([], tf.string, 'quote " and \\ and é'),
        "day": tf.io.FixedLenFeature([], tf.int64, 2),
        "rate": tf.io.FixedLenFeature([], tf.float32, 0.10000000149011612),
        "pair": tf.io.FixedLenFeature([2], tf.float32),
        "pair0": tf.io.FixedLenFeature([2], tf.float32, [0.0, 0.0]),
        "tags": ragged(tf.string, "tags"),
        "deep": ragged(tf.int64, "deep", "deep/row_lengths_1", "deep/row_lengths_2"),
        "at/lat": tf.io.VarLenFeature(tf.float32),
        "image": tf.io.FixedLenFeature([2, 2], tf.int64),
        'odd "näme"\n': tf.io.VarLenFeature(tf.string),
    }


def test_feature_spec():
    assert SCHEMA.feature_spec() == expected()
    assert eval("{" + feature_lines(SCHEMA) + "}", {"tf": tf}) == expected()


def test_lists_by_option_as_varlen():
    spec = SCHEMA.feature_spec(ragged=False)
    assert spec["tags"] == tf.io.VarLenFeature(tf.string)
    assert spec["deep/row_lengths_2"] == tf.io.VarLenFeature(tf.int64)


@pytest.mark.slow
def test_tft_reads_the_same_spec_from_the_text_proto():
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tensorflow_transform.tf_metadata import schema_utils

    proto = text_format.Parse(schema_pbtxt(SCHEMA), schema_pb2.Schema())
    assert schema_utils.schema_as_feature_spec(proto).feature_spec == expected()


@pytest.mark.slow
def test_tfx_bsl_decodes_with_the_text_proto():
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.coders import example_coder

    schema = Schema((Feature("id", "int64"), Feature("tags", pa.list_(pa.string()))))
    proto = text_format.Parse(schema_pbtxt(schema), schema_pb2.Schema())
    arena = Arena()
    data = pa.RecordBatch.from_pydict({"id": [5], "tags": [["a", "b"]]})
    Encoder(schema).encode(Batch(data), arena)
    decoder = example_coder.ExamplesToRecordBatchDecoder(proto.SerializeToString())
    decoded = decoder.DecodeBatch([arena.used_data()[12:-4].tobytes()])
    assert decoded.to_pydict() == {"id": [[5]], "tags": [[b"a", b"b"]]}


def test_defaults_that_cannot_be_read_are_refused():
    with pytest.raises(UsageError, match="default 'x' of column 'a' is not a value of type int64"):
        Schema((Feature("a", "int64", default="x"),)).feature_spec()
    with pytest.raises(UsageError, match="has several values"):
        Schema((Feature("a", pa.list_(pa.int64(), 2), default=[1, 2]),)).feature_spec()
