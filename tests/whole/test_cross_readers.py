"""A dataset of every type before the readers people use, and files of other writers before ours."""

from __future__ import annotations

import datetime
import decimal
import uuid
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import Arena
from beam_tfrecord.records.tfrecord import read_blocks
from tests.helpers.lazy import Lazy
from tests.helpers.made_datasets import make_dataset
from tests.whole.type_families import Column
from tests.whole.type_oracle import features_of
from tests.whole.type_readers import Written, check_tensorflow, check_wire

tf = Lazy("tensorflow")

_NOON = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_000)


def _tensors(item, rows):
    arrow = pa.fixed_shape_tensor(item, [2, 2])
    return pa.ExtensionArray.from_storage(arrow, pa.array(rows, arrow.storage_type))


def every_type():
    """Return three rows of every type of the contract, the last of each a null."""
    points = [{"x": 1.5, "tags": ["a", "b"]}, {"x": -2.0, "tags": []}, None]
    columns = {
        **{f"i{t}": pa.array([0, 100, None], t) for t in (pa.int8(), pa.int16(), pa.int32())},
        **{f"u{t}": pa.array([1, 200, None], t) for t in (pa.uint8(), pa.uint16(), pa.uint32())},
        "int64": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
        "uint64": pa.array([0, 2**63 - 1, None], pa.uint64()),
        "bool": pa.array([True, False, None]),
        "float16": pa.array([np.float16(1.5), np.float16("inf"), None], pa.float16()),
        "float32": pa.array([0.1, -0.0, None], pa.float32()),
        "float64": pa.array([0.1, 1e-300, None], pa.float64()),
        **{
            f"text {t}": pa.array(["", "größe 日本", None], t)
            for t in (pa.string(), pa.large_string(), pa.string_view())
        },
        **{
            f"bytes {t}": pa.array([b"", b"\x00\xff" * 9, None], t)
            for t in (pa.binary(), pa.large_binary(), pa.binary_view())
        },
        "fixed": pa.array([b"abc", b"\x00\x01\x02", None], pa.binary(3)),
        "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
        "decimal int": pa.array(
            [decimal.Decimal(7), decimal.Decimal(-12), None], pa.decimal128(18)
        ),
        "decimal": pa.array([decimal.Decimal("1.25"), decimal.Decimal("-0.5"), None]),
        "decimal256": pa.array([decimal.Decimal("0.25"), None, None], pa.decimal256(50, 20)),
        "date32": pa.array([_NOON.date(), datetime.date(1969, 12, 31), None], pa.date32()),
        "date64": pa.array([_NOON.date(), datetime.date(1969, 12, 31), None], pa.date64()),
        "time32": pa.array([datetime.time(1, 2, 3), datetime.time(0), None], pa.time32("s")),
        "time64": pa.array([datetime.time(1, 2, 3, 4), datetime.time(0), None], pa.time64("us")),
        "timestamp": pa.array([_NOON, datetime.datetime(1900, 1, 1), None], pa.timestamp("ms")),
        "zoned": pa.array([_NOON, _NOON, None], pa.timestamp("us", "Europe/Berlin")),
        "duration": pa.array(
            [datetime.timedelta(1), datetime.timedelta(-1), None], pa.duration("s")
        ),
        "list": pa.array([[1, 2, 3], [], None], pa.list_(pa.int64())),
        "large_list": pa.array([["a"], [], None], pa.large_list(pa.string())),
        "fixed_list": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int16(), 2)),
        "nested": pa.array([[[1], [2, 3]], [[], []], None], pa.list_(pa.list_(pa.int64()))),
        "deep": pa.array([[[[1], []]], [], None], pa.list_(pa.list_(pa.list_(pa.int8())))),
        "struct": pa.array(points, pa.struct({"x": pa.float32(), "tags": pa.list_(pa.string())})),
        "map": pa.array([[("k", 1), ("l", 2)], [], None], pa.map_(pa.string(), pa.int64())),
        "tensor": _tensors(pa.float32(), [[1, 2, 3, 4], [5, 6, 7, 8], None]),
        "uuid": pa.ExtensionArray.from_storage(
            pa.uuid(),
            pa.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2).bytes, None], pa.binary(16)),
        ),
        "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', "[]", None])),
    }
    return pa.table(columns)


TABLE = every_type()
EXPECTED = [
    {
        name: feature
        for column, array in zip(TABLE.column_names, TABLE.columns, strict=True)
        for name, feature in features_of(array[row], array.type, column).items()
    }
    for row in range(TABLE.num_rows)
]


@pytest.fixture(scope="module", params=["", "GZIP"])
def dataset(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("every-type")
    make_dataset(directory, TABLE, shards=2, compression=request.param)
    return directory


def files(dataset: Path) -> tuple[list[str], str]:
    manifest = Manifest.load(dataset)
    return [str(dataset / shard.path) for shard in manifest.shards], manifest.compression


def as_written(dataset, payloads):
    return Written(Column(pa.nulls(3)), Manifest.load(dataset).schema, payloads, EXPECTED, Arena())


def test_tf_data_and_parse_example_under_the_feature_spec(dataset):
    paths, compression = files(dataset)
    records = tf.data.TFRecordDataset(paths, compression_type=compression)
    written = as_written(dataset, [record.numpy() for record in records])
    check_wire(written)
    check_tensorflow(written)


def test_the_source_of_beam_and_protobuf(dataset):
    with bt.pipeline() as root:
        ids = (
            root
            | beam.io.ReadFromTFRecord(str(dataset / "data-*"))
            | beam.Map(tf.train.Example.FromString)
            | beam.Map(lambda one: list(one.features.feature["int64"].int64_list.value))
        )
        assert_that(ids, equal_to([[-(2**63)], [2**63 - 1], []]))


def _examples() -> list[tf.train.Example]:
    def of(value: int, words: list[bytes]) -> tf.train.Example:
        features = {
            "z": tf.train.Feature(int64_list=tf.train.Int64List(value=[value])),
            "a": tf.train.Feature(bytes_list=tf.train.BytesList(value=words)),
            "f": tf.train.Feature(float_list=tf.train.FloatList(value=[value / 2])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features))

    return [of(1, [b"x", b"yy"]), of(-(2**40), []), of(3, [b""])]


ROWS = [
    {"z": 1, "a": [b"x", b"yy"], "f": 0.5},
    {"z": -(2**40), "a": [], "f": -(2.0**39)},
    {"z": 3, "a": [b""], "f": 1.5},
]


def read_by_us(paths):
    types = {"z": pa.int64(), "a": pa.list_(pa.binary()), "f": pa.float32()}
    decoder = Decoder(Schema.from_arrow(pa.schema(types)))
    return [
        row
        for path in sorted(paths)
        for block in read_blocks(path)
        for row in decoder.decode(block.data, block.starts).to_pylist()
    ]


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_files_of_tensorflow(tmp_path, compression):
    path = tmp_path / "of-tensorflow"
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for example in _examples():
            writer.write(example.SerializeToString())
    assert read_by_us([path]) == ROWS


def test_files_of_beam(tmp_path):
    with bt.pipeline() as root:
        _ = (
            root
            | beam.Create([example.SerializeToString() for example in _examples()], reshuffle=False)
            | beam.io.WriteToTFRecord(str(tmp_path / "of-beam"), num_shards=1)
        )
    by_z = sorted(read_by_us(list(tmp_path.glob("of-beam*"))), key=lambda row: row["z"])
    assert by_z == sorted(ROWS, key=lambda row: row["z"])
