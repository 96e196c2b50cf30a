"""Hashes of keys and groups: equal values have equal ones, whatever their bytes."""

import struct
from decimal import Decimal

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType, tensor_column
from beam_tfrecord.records.encoding import Arena, ColumnHashes, Encoder
from beam_tfrecord.rows.batch import Batch
from tests.helpers.datasets import ids

# NaNs of either sign, quiet and signalling, with payloads.
_NANS = {
    2: (0x7E00, 0xFE00, 0x7C01, 0xFFFF),
    4: (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF),
    8: (0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 2**64 - 1),
}


def nans(width):
    return np.array(_NANS[width], f"u{width}").view(f"f{width}")


def floats(width):
    """Two zeros, four NaNs, and two numbers that are different from all of them."""
    kind = np.dtype(f"f{width}")
    return pa.array(
        np.concatenate([np.array([0.0, -0.0], kind), nans(width), [1.5, -1.5]], dtype=kind)
    )


def columns():
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


def hashes(column, schema=None):
    batch = Batch(pa.RecordBatch.from_arrays([column], ["c"]))
    rows = np.arange(len(column))
    return ColumnHashes(schema).hashes(batch, ("c",), rows, 7).tolist()


@pytest.mark.parametrize("name", columns())
def test_zeros_and_nans_are_one_each(name):
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


# Five numbers whose float32 is a zero, and two whose float32 is none.
_TINY = [0.0, -0.0, 1e-50, -1e-50, -(2.0**-150), 1.5e-45, -1.5e-45]
_TINY_TEXTS = ["0", "-0", "1e-60", "-1e-50", "-7e-46", "1.5e-45", "-1.5e-45"]


def columns_of_float32():
    """Columns of the tiny numbers whose examples hold float32, and their features if not plain."""
    flat, ends = pa.array(_TINY), pa.array(range(len(_TINY) + 1), pa.int32())
    tensors = [np.array([value]) for value in _TINY]
    dense, open_ = TensorType("float64", (1,)), TensorType("float64", None)
    fixed = pa.fixed_shape_tensor(pa.float64(), [1])
    storage = pa.FixedSizeListArray.from_arrays(flat, 1)
    texts = pa.array(_TINY_TEXTS)
    decimals = pa.array([Decimal(text) for text in _TINY_TEXTS], pa.decimal256(76, 60))
    lists = pa.ListArray.from_arrays(ends, flat)
    return {
        "float64": (flat, None),
        "as float32": (flat, Feature("c", pa.float32())),
        "list": (lists, None),
        "list_of_lists": (pa.ListArray.from_arrays(ends, lists), None),
        "struct": (pa.StructArray.from_arrays([flat], ["a"]), None),
        "map": (pa.MapArray.from_arrays(ends, pa.array(["k"] * len(flat)), flat), None),
        "dictionary": (pa.DictionaryArray.from_arrays(pa.array(range(len(flat))), flat), None),
        "decimal": (decimals, Feature("c", pa.float64())),
        "decimal kept": (decimals, None),
        "text": (texts, Feature("c", pa.float64())),
        "text as float32": (texts, Feature("c", pa.float32())),
        "tensor": (pa.ExtensionArray.from_storage(fixed, storage), None),
        "array": (tensor_column(tensors, dense), values_of(dense)),
        "arrays": (tensor_column(tensors, open_), values_of(open_)),
    }


def values_of(arrow):
    return Feature("c", arrow, store="values")


@pytest.mark.parametrize("name", columns_of_float32())
def test_what_is_stored_as_zero_is_zero(name):
    column, feature = columns_of_float32()[name]
    found = hashes(column, Schema((feature,)) if feature else None)
    assert len(set(found[:5])) == 1
    assert len(set(found)) == 3


@pytest.mark.parametrize("store", ["bytes", "text"])
def test_a_store_that_keeps_float64_keeps_tiny_numbers(store):
    found = hashes(pa.array(_TINY), Schema((Feature("c", pa.float64(), store=store),)))
    assert found[0] == found[1]
    assert len(set(found)) == len(_TINY) - 1


def test_a_number_beyond_float32_is_no_zero():
    numbers = pa.array([1.0, 1e300, -1e300, float("inf")])
    batch = Batch(pa.RecordBatch.from_arrays([numbers], ["c"]))
    assert Encoder(Schema((Feature("c", pa.float64()),)), merge_equal_floats=True).encode(
        batch, Arena()
    ).rows.tolist() == [0, 3]


def test_examples_stay_bit_exact():
    data = pa.RecordBatch.from_arrays([floats(4)], ["c"])
    arena = Arena()
    Encoder(Schema((Feature("c", pa.float32()),))).encode(Batch(data), arena)
    stored = arena.used_data().reshape(8, -1)[:, -8:-4].copy().view("u4")[:, 0]
    assert stored.tolist() == floats(4).to_numpy().view("u4").tolist()


@pytest.mark.parametrize("tiny", ["-1e-50", "-1e-400"])
def test_groups_do_not_straddle_by_a_sign_that_is_rounded(tmp_path, tiny):
    lines = [
        f"{2 * group + side},{group},{(0, tiny)[side]}" for group in range(50) for side in (0, 1)
    ]
    (tmp_path / "a.csv").write_text("\n".join(["id,g,x", *lines]) + "\n")
    bt.write(tmp_path / "a.csv", tmp_path / "out", splits="a=0.5,b=0.5", group=["x", "g"])
    groups = [{row // 2 for row in ids(tmp_path / "out", name)} for name in "ab"]
    assert all(groups)
    assert not groups[0] & groups[1]
    assert not bt.verify(tmp_path / "out").faults


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


@pytest.mark.slow
def test_the_range_does_not_depend_on_the_order_of_zeros(tmp_path):
    found = []
    for order in (["0.0", "-0.0", "-0.0"], ["-0.0", "-0.0", "0.0"]):
        (tmp_path / "a.csv").write_text("\n".join(["x", *order]) + "\n")
        manifest = bt.write(tmp_path / "a.csv", tmp_path / "out", overwrite=True)
        observed = manifest.schema["x"].observed
        found.append(struct.pack("dd", observed.min, observed.max))
    assert found == [struct.pack("dd", 0.0, 0.0)] * 2
