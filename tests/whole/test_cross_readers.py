"""Our datasets before the readers people use, and files of other writers before ours."""

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")
ROWS = [
    {"a": ["x", "yy"], "f": 0.5, "z": 1},
    {"a": [], "f": -(2.0**39), "z": -(2**40)},
    {"a": [""], "f": 1.5, "z": 3},
]


def examples():
    """Return the rows as TensorFlow's own messages."""

    def of(a, f, z):
        features = {
            "z": tf.train.Feature(int64_list=tf.train.Int64List(value=[z])),
            "a": tf.train.Feature(bytes_list=tf.train.BytesList(value=map(str.encode, a))),
            "f": tf.train.Feature(float_list=tf.train.FloatList(value=[f])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features))

    return [of(**row) for row in ROWS]


def serialized():
    return [example.SerializeToString(deterministic=True) for example in examples()]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_the_sources_of_tensorflow_and_beam(tmp_path, compression):
    bt.write(ROWS, tmp_path, compression=compression, shards=2)
    files = [str(path) for path in tmp_path.glob("data-*")]
    records = tf.data.TFRecordDataset(files, "GZIP" if compression == "gzip" else "")
    assert sorted(record.numpy() for record in records) == sorted(serialized())
    with bt.pipeline() as root:
        found = root | beam.io.ReadFromTFRecord(str(tmp_path / "data-*"))
        assert_that(found, equal_to(serialized()))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_of_tensorflow(tmp_path, suffix):
    path = str(tmp_path / f"x.tfrecord{suffix}")
    with tf.io.TFRecordWriter(path, "GZIP" if suffix else "") as writer:
        for example in serialized():
            writer.write(example)
    assert list(bt.load(path).rows()) == ROWS


def test_files_of_beam(tmp_path):
    with bt.pipeline() as root:
        records = root | beam.Create(serialized(), reshuffle=False)
        records | beam.io.WriteToTFRecord(str(tmp_path / "x.tfrecord"), num_shards=1)
    found = bt.load(tmp_path).rows()
    assert sorted(found, key=lambda row: row["z"]) == sorted(ROWS, key=lambda row: row["z"])
