"""A split that has a share but gets no rows: every command and reader has it, with its types."""

import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")
torch = Lazy("torch")

TABLE = pa.table({"x": pa.array([1.5], pa.float32()), "y": pa.array([2], pa.int64())})


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("empty") / "out"
    bt.write(TABLE, path, splits={"train": 0.999999, "test": 1e-6, "none": 0})
    return path


@pytest.fixture
def test(path):
    return bt.load(path, split="test")


def test_it_is_loaded_with_its_types(path, test):
    assert bt.load(path).splits == {"train": 1, "test": 0}
    assert (len(test), list(test.rows())) == (0, [])
    assert {name: (of.dtype, of.shape) for name, of in test.numpy().items()} == {
        "x": (np.float32, (0,)),
        "y": (np.int64, (0,)),
    }
    assert test.arrow().schema.names == ["x", "y"]


def test_verify_and_repair_keep_it(path, tmp_path):
    assert not bt.verify(path).faults
    bt.repair(path, tmp_path / "repaired")
    assert bt.load(tmp_path / "repaired").splits == {"train": 1, "test": 0}


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.slow
def test_tensorflow_reads_no_batch(test, shuffle):
    batches = test.tf(2, shuffle=shuffle)
    assert batches.element_spec["y"].dtype == tf.int64
    assert list(batches) == []
    x, y = test.keras(label="y", batch_size=2, shuffle=shuffle).element_spec[:2]
    assert (x.dtype, y.dtype) == (tf.float32, tf.int64)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_pytorch_reads_no_batch(test, shuffle):
    assert torch.__name__
    batches = test.torch(2, shuffle=shuffle)
    assert (len(batches), list(batches), list(batches.loader())) == (0, [], [])
