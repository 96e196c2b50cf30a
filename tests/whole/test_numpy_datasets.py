"""Whole datasets of NumPy arrays: written by commands and pipelines, read by us and TensorFlow."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import beam_tfrecord as bt
from beam_tfrecord.check.show import render_rows
from beam_tfrecord.errors import UsageError
from beam_tfrecord.frameworks.reading_programs import reading_code
from beam_tfrecord.loading.value_text import json_text


@pytest.fixture(scope="module")
def features():
    random = np.random.default_rng(5)
    dtypes = ["?", "u1", "i2", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ml_dtypes.bfloat16]
    return {
        f"{np.dtype(dtype).name}_{rank}": random.integers(0, 2, (5, 2, 3)[:rank]).astype(dtype)
        for dtype in dtypes
        for rank in (1, 3)
    } | {"empty": np.zeros((5, 0, 2), "f4"), "when": np.arange(10).view("M8[s]").reshape(5, 2)}


@pytest.fixture(scope="module")
def dataset(features, tmp_path_factory):
    path = tmp_path_factory.mktemp("numpy")
    with bt.pipeline() as p:
        p | bt.ReadFromNumpy(features) | bt.WriteToTFRecord(f"{path}/", shuffle=False)
    return path


class TestDatasets:
    """By `write` and by a pipeline."""

    def test_arrays_in_memory_come_back(self, features, dataset):
        found = bt.load(dataset).numpy()
        assert found.keys() == features.keys()
        for name, array in features.items():
            assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
            assert found[name].tobytes() == array.tobytes(), name
        assert bt.verify(dataset).ok

    @pytest.mark.xdist_group("tensorflow")
    def test_tensorflow_decodes_them(self, features, dataset):
        batch = next(iter(bt.load(dataset).tf(5)))
        singles = list(bt.load(dataset).tf())
        assert batch.keys() == features.keys()
        for name, array in features.items():
            array = array.view("i8") if array.dtype.kind == "M" else array
            found = batch[name].numpy()
            assert np.array_equal(found, array), name
            assert np.array_equal(np.stack([single[name].numpy() for single in singles]), array)
            # An Example has no narrower numbers than int64 and float32: single values come so.
            assert found.dtype == array.dtype or array.ndim == 1, name
            assert batch[name].shape == array.shape

    @pytest.mark.xdist_group("tensorflow")
    def test_printed_code_decodes_them(self, features, dataset, capsys):
        names = {"__name__": "printed"}
        exec(reading_code(bt.load(dataset).manifest, "tf", dataset), names)
        batch = next(iter(names["read"]("data")))
        for name in ("float32_3", "complex64_3", "bool_3", "float64_1"):
            assert np.array_equal(batch[name].numpy(), features[name])

    @pytest.mark.xdist_group("tensorflow")
    def test_first_axes_that_differ_are_ragged(self, tmp_path):
        for rows in (2, 0, 3):
            np.save(tmp_path / f"{rows}.npy", np.full((rows, 2), rows, "u2"))
        bt.write(tmp_path, tmp_path / "out", shuffle=False, source_options={"example": "array"})
        lists = [[], [[2, 2], [2, 2]], [[3, 3]] * 3]
        dataset = bt.load(tmp_path / "out")
        assert [array.tolist() for array in dataset.numpy()["data"]] == lists
        assert next(iter(dataset.tf(3)))["data"].to_list() == lists
        assert [single["data"].numpy().tolist() for single in dataset.tf()] == lists

    @pytest.mark.xdist_group("tensorflow")
    def test_other_shapes_are_single_examples(self, tmp_path):
        np.save(tmp_path / "a.npy", np.ones((2, 2)))
        np.save(tmp_path / "b.npy", np.ones(3))
        bt.write(tmp_path, tmp_path / "out", shuffle=False, source_options={"example": "array"})
        dataset = bt.load(tmp_path / "out")
        assert [single["data"].shape.as_list() for single in dataset.tf()] == [[2, 2], [3]]
        with pytest.raises(UsageError, match="'data' have different shapes: leave out batch_size"):
            dataset.tf(2)

    def test_arrays_are_shown(self, dataset):
        rows = list(bt.load(dataset, columns=["int16_3"]).rows())[:1]
        assert render_rows(rows) == "int16_3\n<int16[2, 3]>"
        assert len(list(map(json_text, bt.load(dataset).rows()))) == 5

    def test_functions_on_rows_take_and_give_arrays(self, tmp_path):
        x, v = np.arange(12, dtype="f4").reshape(2, 3, 2), np.arange(6, dtype="i2").reshape(2, 3)
        np.savez(tmp_path / "x.npz", x=x, v=v, c=v * 1j, f=np.array([0.1, 0.2]))

        def mapped(row: dict[str, Any]) -> dict[str, Any]:
            return {**row, "crop": row["x"][:2], "sum": float(row["x"].sum())}

        bt.write(tmp_path / "x.npz", tmp_path / "out", shuffle=False, map=mapped)
        found = bt.load(tmp_path / "out").numpy()
        for name, array in {"x": x, "v": v, "c": v * 1j, "crop": x[:, :2]}.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
        assert found["f"].tolist() == [0.1, 0.2]
        assert found["sum"].tolist() == [15, 51]


class TestInMemory:
    def test_the_pipeline_does_not_hold_the_bytes(self, tmp_path):
        read = bt.ReadFromNumpy({"data": np.zeros((1000, 1000))}, temp_dir=str(tmp_path))
        (directory,) = tmp_path.iterdir()
        assert sum(batch.num_rows for batch in read.batches()) == 1000
        assert [file.name for file in directory.iterdir()] == ["arrays.npz"]
        assert len(pickle.dumps(read.source)) < 2000
