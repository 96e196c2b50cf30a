"""NumPy arrays: options and headers that make no sense, told in one line."""

import struct

import numpy as np
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources import numpy as columns
from beam_tfrecord.sources.numpy import Numpy


def _npy(shape, *, descr="'<i4'", data=b""):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + data


def _refusal(source):
    with pytest.raises((DataError, UsageError)) as caught:
        source.schema()
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestNames:
    """What `columns` and `types` name must be somewhere in the input."""

    @pytest.fixture
    def path(self, tmp_path):
        np.savez(tmp_path / "x.npz", a=np.arange(2), raw=np.zeros(2, "V2"), b=np.zeros(2))
        return tmp_path / "x.npz"

    def test_a_type_for_no_array_is_refused(self, path):
        types = {"raw": "bfloat16", "nope": "int32"}
        assert _refusal(Numpy(path, types=types)) == (
            "column 'nope' of --types is not in the input: the columns are a, raw, b"
        )

    def test_columns_of_fields_and_paths_are_listed(self, tmp_path):
        (tmp_path / "year=1").mkdir()
        array = np.zeros(2, [("x", "f4"), ("y", "f4")])
        np.save(tmp_path / "year=1" / "x.npy", array)
        source = Numpy(tmp_path, columns=["year", "nope"])
        assert _refusal(source).endswith("the columns are x, y, year")
        assert Numpy(tmp_path, columns=["year", "y"]).schema().names == ["year", "y"]


class TestRowsWithoutBytes:
    """Any number of them fits into a small file."""

    @pytest.mark.parametrize(
        ("shape", "descr"), [("(99999999999, 0)", "'<i4'"), ("(99999999999,)", "'|S0'")]
    )
    def test_too_many_are_refused(self, tmp_path, shape, descr):
        (tmp_path / "x.npy").write_bytes(_npy(shape, descr=descr))
        assert _refusal(Numpy(tmp_path / "x.npy")) == (
            f"array 'data' of x.npy has shape {shape}, more than 16,777,216 rows without bytes: "
            "correct it, or pass --example array"
        )
        assert Numpy(tmp_path / "x.npy", example="array").schema().names == ["data"]

    def test_as_many_as_the_bound_are_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(columns, "MAX_EMPTY_ROWS", 5)
        np.savez(tmp_path / "5.npz", a=np.zeros((5, 0)), b=np.zeros((5, 2, 0)))
        np.savez(tmp_path / "6.npz", a=np.zeros((6, 0)), b=np.zeros((6, 2, 0)))
        np.savez(tmp_path / "bytes.npz", a=np.zeros((6, 0)), b=np.zeros((6, 2), "u1"))
        assert sum(batch.num_rows for batch in Numpy(tmp_path / "5.npz").batches()) == 5
        assert sum(batch.num_rows for batch in Numpy(tmp_path / "bytes.npz").batches()) == 6
        assert "more than 5 rows without bytes" in _refusal(Numpy(tmp_path / "6.npz"))


class TestShapes:
    """A header may say shapes that no array of NumPy can have."""

    @pytest.mark.parametrize(
        "shape",
        [
            f"(1, {'0, ' * 65})",
            "(0, 99999999999999999999)",
            f"(0, {2**40}, {2**40})",
            f"({'-1, ' * 9999})",
        ],
    )
    @pytest.mark.parametrize("example", ["row", "array"])
    def test_what_numpy_cannot_hold_is_refused(self, tmp_path, shape, example):
        (tmp_path / "x.npy").write_bytes(_npy(shape))
        with pytest.raises(
            DataError, match=r"(cannot read|row of)? ?x\.npy .*: (write|cut)"
        ) as caught:
            list(Numpy(tmp_path / "x.npy", example=example).batches())
        assert "\n" not in str(caught.value)


class TestInMemory:
    """Arrays in memory are written to a file, by their names."""

    def test_they_take_no_types(self):
        with pytest.raises(UsageError, match="arrays in memory have dtypes of their own"):
            bt.ReadFromNumpy(np.arange(3), types={"data": "int8"})

    def test_what_has_no_one_meaning_is_refused_at_once(self):
        with pytest.raises(UsageError, match=r"Python objects .*: read them by ReadFromArrow"):
            bt.ReadFromNumpy({"a": np.array([{}])})

    @pytest.mark.parametrize("name", ["a\0b", "\ud800", "", "x" * 2**16])
    def test_a_name_that_a_zip_file_cannot_keep_is_refused(self, name):
        with pytest.raises(UsageError, match="cannot be the name of an array: pass a short text"):
            bt.ReadFromNumpy({name: np.arange(3)})
