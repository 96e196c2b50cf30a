"""Hashes of keys and groups: equal values have equal ones, whatever their bytes."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.contract.schema import Feature, Schema
from beam_tfrecord.contract.tensors import TensorType, tensor_column
from beam_tfrecord.exchange import column_hashes
from beam_tfrecord.exchange.column_hashes import ColumnHashes
from beam_tfrecord.native import reference
from beam_tfrecord.records import encoding
from beam_tfrecord.records.arena import Arena
from beam_tfrecord.records.encoding import Encoder
from tests.datasets import ids

# NaNs of either sign, quiet and signalling, with payloads.
_NANS = {
    2: (0x7E00, 0xFE00, 0x7C01, 0xFFFF),
    4: (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF),
    8: (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 2**64 - 1),
}


def nans(width: int) -> np.ndarray:
    return np.array(_NANS[width], f"u{width}").view(f"f{width}")


def floats(width: int) -> pa.Array:
    """Two zeros, four NaNs, and two numbers that are different from all of them."""
    kind = np.dtype(f"f{width}")
    return pa.array(
        np.concatenate([np.array([0.0, -0.0], kind), nans(width), [1.5, -1.5]], dtype=kind)
    )


def columns() -> dict[str, pa.Array]:
    flat = floats(8)
    tensors = pa.fixed_shape_tensor(pa.float32(), [1])
    made = {f"float{8 * width}": floats(width) for width in (2, 4, 8)}
    ends = pa.array(range(9), pa.int32())
    made["list"] = pa.ListArray.from_arrays(ends, flat)
    made["large_list"] = pa.LargeListArray.from_arrays(pa.array(range(9), pa.int64()), floats(2))
    made["list_of_lists"] = pa.ListArray.from_arrays(ends, made["list"])
    made["fixed_size_list"] = pa.FixedSizeListArray.from_arrays(flat, 1)
    made["struct"] = pa.StructArray.from_arrays([floats(2), flat], ["a", "b"])
    made["map"] = pa.MapArray.from_arrays(ends, pa.array(["k"] * 8), flat)
    made["dictionary"] = pa.DictionaryArray.from_arrays(pa.array(range(8)), flat)
    made["tensor"] = pa.ExtensionArray.from_storage(
        tensors, pa.FixedSizeListArray.from_arrays(floats(4), 1)
    )
    for dtype in ("float16", "float64", ml_dtypes.bfloat16):
        with np.errstate(invalid="ignore"):
            rows = [np.asarray([value]).astype(dtype) for value in flat.to_numpy()]
        made[f"array of {np.dtype(dtype)}"] = tensor_column(rows, TensorType(dtype, (1,)))
        made[f"arrays of {np.dtype(dtype)}"] = tensor_column(rows, TensorType(dtype, None))
    complexes = [np.asarray([complex(0.5, value)]) for value in flat.to_numpy()]
    made["complex"] = tensor_column(complexes, TensorType("complex128", (1,)))
    return made


def hashes(column: pa.Array, schema: Schema | None = None) -> list[int]:
    batch = Batch(pa.RecordBatch.from_arrays([column], ["c"]))
    rows = np.arange(len(column))
    return ColumnHashes(schema).hashes(batch, ("c",), rows, 7).tolist()


@pytest.mark.parametrize("kernel", [native, reference])
@pytest.mark.parametrize("name", columns())
def test_zeros_and_nans_are_one_each(name, kernel, monkeypatch):
    monkeypatch.setattr(encoding, "native", kernel)
    monkeypatch.setattr(column_hashes, "native", kernel)
    found = hashes(columns()[name])
    assert found[0] == found[1]
    assert len(set(found[2:6])) == 1
    assert len(set(found)) == 4


@pytest.mark.parametrize("store", ["auto", "bytes", "text"])
def test_the_store_makes_no_difference(store):
    schema = Schema((Feature("c", pa.float64(), store=store),))
    found = hashes(floats(8), schema)
    assert len(set(found)) == 4
    texts = pa.array(["0.0", "-0.00", "nan", "-nan", "NaN", "nan", "1.5", "-1.50"])
    assert hashes(texts, schema) == found


def test_examples_stay_bit_exact():
    data = pa.RecordBatch.from_arrays([floats(4)], ["c"])
    arena = Arena()
    Encoder(Schema((Feature("c", pa.float32()),))).encode(Batch(data), arena)
    stored = arena.used_data().reshape(8, -1)[:, -8:-4].copy().view("u4")[:, 0]
    assert stored.tolist() == floats(4).to_numpy().view("u4").tolist()


@pytest.mark.parametrize("option", ["group", "key"])
def test_equal_values_stay_together(tmp_path, option):
    numbers = ["0.0", "-0.0", "nan", "-nan", "NaN"] * 20
    lines = [f"{row},{number}" for row, number in enumerate(numbers)]
    (tmp_path / "a.csv").write_text("\n".join(["id,x", *lines]) + "\n")
    splits = {f"s{index}": 0.1 for index in range(10)} if option == "group" else None
    bt.write(tmp_path / "a.csv", tmp_path / "out", splits=splits, **{option: ["x"]})
    if option == "group":
        for equal in ({"0.0", "-0.0"}, {"nan", "-nan", "NaN"}):
            parts = [{numbers[row] for row in ids(tmp_path / "out", name)} for name in splits]
            assert sum(bool(part & equal) for part in parts) == 1
    else:
        order = [numbers[row] in ("0.0", "-0.0") for row in ids(tmp_path / "out")]
        assert sum(one != other for one, other in zip(order[1:], order, strict=False)) == 1


def test_the_range_does_not_depend_on_the_order_of_zeros(tmp_path):
    found = []
    for order in (["0.0", "-0.0", "-0.0"], ["-0.0", "-0.0", "0.0"]):
        (tmp_path / "a.csv").write_text("\n".join(["x", *order]) + "\n")
        manifest = bt.write(tmp_path / "a.csv", tmp_path / "out", overwrite=True)
        observed = manifest.schema["x"].observed
        found.append(struct.pack("dd", observed.min, observed.max))
    assert found == [struct.pack("dd", 0.0, 0.0)] * 2
