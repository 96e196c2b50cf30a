"""Encoding: golden bytes, Arrow's values and protobuf."""

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from tests.helpers.tf_example import Example
from tests.native.strategies import RELAXED, batches, payloads, run_encode

# Half way from the greatest float32 to what would be the next.
LARGEST_FLOAT = float(np.finfo(np.float32).max) + 2.0**103 - 2.0**75


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([5], pa.int64()), "0a0c0a0a0a017812051a030a0105"),
        (pa.array([-1], pa.int8()), "0a150a130a0178120e1a0c0a0affffffffffffffffff01"),
        (pa.array([1.5], pa.float32()), "0a0f0a0d0a0178120812060a040000c03f"),
        (pa.array([1.5], pa.float64()), "0a0f0a0d0a0178120812060a040000c03f"),
        (pa.array(["ab"]), "0a0d0a0b0a017812060a040a026162"),
        (pa.array([""]), "0a0b0a090a017812040a020a00"),
        (pa.array([None], pa.int64()), "0a00"),
        (pa.array([[]], pa.list_(pa.int64())), "0a090a070a017812021a00"),
        (pa.array([[]], pa.list_(pa.string())), "0a090a070a017812020a00"),
        (pa.array([[1, 300]], pa.list_(pa.int64())), "0a0e0a0c0a017812071a050a0301ac02"),
        (pa.array([["a", ""]], pa.list_(pa.string())), "0a0e0a0c0a017812070a050a01610a00"),
    ],
)
def test_golden_payloads(array, expected):
    written = run_encode(pa.record_batch([array], ["x"]))
    assert payloads(written)[0].hex() == expected


def values_of(cell):
    """Return the values in a cell of Arrow, text as bytes; None if it is null."""
    if not cell.is_valid:
        return None
    items = list(cell.values) if isinstance(cell, pa.ListScalar) else [cell]
    return [
        item.as_buffer().to_pybytes()
        if item.is_valid and isinstance(item, pa.BinaryScalar)
        else item.as_py()
        for item in items
    ]


def fault_of(values, is_text):
    """Return the code of the fault of a cell, or 0."""
    if None in values:
        return native.NULL_IN_LIST
    for value in values:
        if isinstance(value, int) and value >= 2**63:
            return native.INTEGER_OVERFLOW
        if isinstance(value, float) and math.isfinite(value) and abs(value) > LARGEST_FLOAT:
            return native.FLOAT_OVERFLOW
        if is_text and "\ufffd" in value.decode(errors="replace"):
            return native.INVALID_UTF8
    return 0


def features_in(payload):
    """Return the values of each feature as protobuf reads them."""
    features = Example.FromString(payload).features.feature
    return {
        name: list(getattr(feature, feature.WhichOneof("kind")).value)
        for name, feature in sorted(features.items())
    }


@RELAXED
@given(batches(max_rows=5), st.data())
def test_every_row_is_written_as_arrow_has_it_or_rejected(batch, data):
    marks = st.lists(st.booleans(), min_size=batch.num_rows, max_size=batch.num_rows)
    skip = data.draw(marks)
    texts = [str(column.type).find("string") >= 0 for column in batch.columns]
    expected, rejects = [], []
    for row in range(batch.num_rows):
        cells = [values_of(column[row]) for column in batch.columns]
        faults = map(fault_of, [values or [] for values in cells], texts)
        fault = next(((column, code) for column, code in enumerate(faults) if code), None)
        if skip[row]:
            continue
        if fault:
            rejects.append((row, *fault))
            continue
        features = zip(batch.schema.names, map(as_stored, cells), strict=True)
        expected.append((row, dict(sorted(one for one in features if one[1] is not None))))
    written = run_encode(batch, 5, np.array(skip, bool))
    found = list(zip(written.rows, map(features_in, payloads(written, 5)), strict=True))
    # As text, in which one NaN equals another.
    assert repr(found) == repr(expected)
    assert written.encoded.rejects == rejects


def as_stored(values):
    """Return values as an Example holds them: bools as numbers, floats as float32."""
    if values is None:
        return None
    return [
        float(np.float32(value))
        if isinstance(value, float)
        else int(value)
        if isinstance(value, bool)
        else value
        for value in values
    ]


def test_of_two_names_the_beginning_of_the_other_comes_first():
    batch = pa.record_batch([pa.array([1]), pa.array([2])], ["ab", "a"])
    payload = payloads(run_encode(batch))[0].hex()
    assert payload == "0a19" + "0a0a0a016112051a030a0102" + "0a0b0a02616212051a030a0101"


def test_the_first_column_of_the_batch_is_blamed_not_the_first_name():
    bad = pa.array([2**63], pa.uint64())
    infinite = pa.array([1e39], pa.float64())
    written = run_encode(pa.record_batch([infinite, bad], ["z", "a"]))
    assert written.encoded.rejects == [(0, 0, native.FLOAT_OVERFLOW)]


def test_infinities_and_nan_payloads_pass():
    nan = pa.py_buffer(struct.pack("<I", 0x7F812345))
    batch = pa.record_batch([pa.Array.from_buffers(pa.float32(), 1, [None, nan])], ["x"])
    assert payloads(run_encode(batch))[0][-4:] == bytes.fromhex("4523817f")
    batch = pa.record_batch([pa.array([float("-inf")], pa.float64())], ["x"])
    assert payloads(run_encode(batch))[0][-4:] == bytes.fromhex("000080ff")


def test_rounding_is_reported_for_each_column():
    columns = [pa.array([1.0, 0.1]), pa.array([0.5, 2.0]), pa.array([1e-60, 1.0])]
    written = run_encode(pa.record_batch(columns, ["a", "b", "c"]))
    # 0.1 rounds to 13421773 / 2^27; 1e-60 is lost whole.
    assert written.encoded.max_relative_error.tolist() == [1.4901161138336505e-08, 0.0, 1.0]


def test_rows_that_are_not_written_do_not_count_as_rounded():
    batch = pa.record_batch([pa.array([0.1, 1.0])], ["a"])
    written = run_encode(batch, skip=np.array([1, 0], np.uint8))
    assert written.rows == [1]
    assert written.encoded.max_relative_error.tolist() == [0.0]


def test_bad_arguments_are_refused():
    batch = pa.record_batch([pa.array([1])], ["x"])
    out, one = np.zeros(20, np.uint8), np.zeros(1, np.int64)
    with pytest.raises(BufferError, match="out is too short"):
        native.encode(batch, out, 0, one, one.copy())
    with pytest.raises(ValueError, match="room for 1 rows"):
        native.encode(batch, out, 0, one[:0], one)
    with pytest.raises(TypeError, match="column 'x' is date32"):
        run_encode(pa.record_batch([pa.array([0], pa.date32())], ["x"]))
    with pytest.raises(ValueError, match="column 'x' is there twice"):
        run_encode(pa.record_batch([pa.array([1]), pa.array([2])], ["x", "x"]))


def test_a_payload_above_2_gib_is_too_large():
    piece = pa.array([b"x" * (1 << 24)], pa.binary_view())
    views = pa.py_buffer(piece.buffers()[1].to_pybytes() * 128)
    values = pa.Array.from_buffers(pa.binary_view(), 128, [None, views, piece.buffers()[2]])
    lists = pa.ListArray.from_arrays(pa.array([0, 128, 128], pa.int32()), values)
    out, starts, rows = np.zeros(200, np.uint8), np.zeros(2, np.int64), np.zeros(2, np.int64)
    encoded = native.encode(pa.record_batch([lists], ["x"]), out, 0, starts, rows)
    assert encoded.rejects == [(0, native.WHOLE_ROW, native.TOO_LARGE)]
    assert (encoded.records, rows[0]) == (1, 1)
