"""Records and payloads of the kernel before TensorFlow."""

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord import native
from tests.helpers.lazy import Lazy
from tests.native.strategies import run_encode

tf = Lazy("tensorflow")


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_frame_writes_what_tensorflow_writes(arrow_type, tmp_path):
    payloads = [b"", b"one", b"x" * 5000]
    with tf.io.TFRecordWriter(str(tmp_path / "x")) as writer:
        for payload in payloads:
            writer.write(payload)
    array = pa.array([b"before", *payloads, b"after"], arrow_type).slice(1, 3)
    out, starts = np.zeros(4 + native.frame_bound(array), np.uint8), np.zeros(3, np.int64)
    size = native.frame(array, out, 4, starts)
    assert out[4 : 4 + size].tobytes() == (tmp_path / "x").read_bytes()
    assert starts.tolist() == [4, 20, 39]


def test_many_rows_and_columns_cross_every_block_edge(tmp_path):
    rows = 1500
    numbers = np.arange(rows, dtype=np.int64) * 7919 - 5_000_000
    columns = {
        "n": pa.array(numbers),
        "f": pa.array(numbers.astype(np.float32) / 8),
        "t": pa.array(["é" * (i % 90) for i in range(rows)]),
        "l": pa.array([list(range(i % 40)) for i in range(rows)]),
    }
    batch = pa.record_batch(list(columns.values()), list(columns))
    path = tmp_path / "x.tfrecord"
    path.write_bytes(run_encode(batch).data)
    spec = {
        "n": tf.io.FixedLenFeature([], tf.int64),
        "f": tf.io.FixedLenFeature([], tf.float32),
        "t": tf.io.FixedLenFeature([], tf.string),
        "l": tf.io.RaggedFeature(tf.int64),
    }
    serialized = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    parsed = tf.io.parse_example(serialized, spec)
    assert parsed["n"].numpy().tolist() == numbers.tolist()
    assert parsed["f"].numpy().tolist() == columns["f"].to_pylist()
    assert [t.decode() for t in parsed["t"].numpy()] == columns["t"].to_pylist()
    assert parsed["l"].to_list() == columns["l"].to_pylist()
