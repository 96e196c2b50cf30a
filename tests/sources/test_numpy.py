"""The NumPy source: what files become, column by column."""

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources import numpy as numpy_arrays
from beam_tfrecord.sources.numpy import Numpy
from tests.helpers.reading import rows_of


def saved(path, *arrays, **named):
    np.save(path, *arrays) if arrays else np.savez(path, **named)
    return path


def _types(source):
    return {field.name: str(field.type) for field in source.schema()}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_archives_are_read_whether_compressed_or_not(tmp_path, save, order, monkeypatch):
    monkeypatch.setattr(numpy_arrays.Numpy, "unit_bytes", 100)
    monkeypatch.setattr(numpy_arrays, "BATCH_BYTES", 50)
    array = np.arange(60, dtype="f4").reshape(10, 3, 2)
    save(tmp_path / "x.npz", a=np.asarray(array, order=order), b=np.arange(10))
    source = Numpy(tmp_path / "x.npz")
    units = source.all_units(source.all_scans())
    assert len(units) == (1 if save is np.savez_compressed or order == "F" else 4)
    rows = rows_of(source)
    assert [row["a"].tolist() for row in rows] == array.tolist()
    assert [row["b"] for row in rows] == list(range(10))


def test_a_structured_dtype_is_a_column_a_field(tmp_path):
    dtype = [("id", "i4"), ("at", [("x", ">f4"), ("y", ">f4")]), ("box", "u1", (2,))]
    array = np.array([(1, (2, 3), (4, 5)), (6, (7, 8), (9, 10))], dtype)
    source = Numpy(saved(tmp_path / "x.npy", array))
    assert _types(source) == {
        "id": "int32",
        "at/x": "float",
        "at/y": "float",
        "box": "tensor<uint8>[2]",
    }
    rows = [{**row, "box": row["box"].tolist()} for row in rows_of(source)]
    assert rows == [
        {"id": 1, "at/x": 2.0, "at/y": 3.0, "box": [4, 5]},
        {"id": 6, "at/x": 7.0, "at/y": 8.0, "box": [9, 10]},
    ]
    named = Numpy(saved(tmp_path / "x.npz", points=array), columns=["points/at/y", "points/id"])
    assert rows_of(named) == [
        {"points/at/y": 3.0, "points/id": 1},
        {"points/at/y": 8.0, "points/id": 6},
    ]


@pytest.mark.parametrize(
    ("dtype", "arrow", "notes"),
    [
        ("bool", "bool", {}),
        ("float16", "halffloat", {}),
        ("float64", "double", {b"beam_tfrecord.store": b"bytes"}),
        ("uint64", "tensor<uint64>[]", {}),
        ("complex64", "tensor<complex64>[]", {}),
        ("<U5", "string", {b"beam_tfrecord.dtype": b"<U5"}),
        ("S3", "binary", {b"beam_tfrecord.dtype": b"|S3"}),
        ("datetime64[ms]", "timestamp[ms]", {}),
        ("timedelta64[ns]", "duration[ns]", {}),
        ("datetime64[D]", "int64", {b"beam_tfrecord.dtype": b"datetime64[D]"}),
        ("timedelta64[25s]", "int64", {b"beam_tfrecord.dtype": b"timedelta64[25s]"}),
    ],
)
def test_types_of_single_values(tmp_path, dtype, arrow, notes):
    (field,) = Numpy(saved(tmp_path / "x.npy", np.zeros(3, dtype))).schema()
    assert (str(field.type), field.metadata or {}) == (arrow, notes)


def test_values_are_stored_as_numbers_where_there_are_any(tmp_path):
    path = saved(
        tmp_path / "x.npz",
        a=np.zeros((2, 3)),
        b=np.zeros(2),
        c=np.zeros((2, 1), "c8"),
        u=np.zeros(2, "u8"),
    )
    fields = {field.name: field for field in Numpy(path, store="values").schema()}
    assert fields["a"].metadata == {b"beam_tfrecord.store": b"values"}
    assert {name: fields[name].metadata for name in "bcu"} == {"b": None, "c": None, "u": None}
    assert (fields["b"].type, fields["u"].type) == (pa.float64(), pa.uint64())


def test_text_keeps_zeros_inside_and_is_any_unicode(tmp_path):
    texts = ["a\0b", "\0", "naïve 🦊", "", "日本"]
    path = saved(
        tmp_path / "x.npz", u=np.array(texts), s=np.array([b"a\0b", b"\0x", b"", b"abc", b"\xff"])
    )
    assert [row["u"] for row in rows_of(Numpy(path))] == ["a\0b", "", "naïve 🦊", "", "日本"]
    assert [row["s"] for row in rows_of(Numpy(path))] == [b"a\0b", b"\0x", b"", b"abc", b"\xff"]


def test_characters_beyond_unicode_are_refused(tmp_path):
    path = saved(tmp_path / "x.npy", np.array([0x110000], np.uint32).view("<U1"))
    with pytest.raises(DataError, match=r"cannot read x\.npy from row 0 on \(invalid max"):
        rows_of(Numpy(path))


def test_a_missing_time_is_null(tmp_path):
    path = saved(tmp_path / "x.npy", np.array(["2020-01-01", "NaT"], "M8[s]"))
    assert [row["data"] is None for row in rows_of(Numpy(path))] == [False, True]


def test_raw_bytes_are_typed_by_name(tmp_path):
    array = np.array([[1.5, -2], [0, 3]], ml_dtypes.bfloat16)
    path = saved(tmp_path / "x.npy", array)
    with pytest.raises(
        DataError, match=r"holds raw bytes \(\|V2\) without a type: name it with --types"
    ):
        Numpy(path).schema()
    rows = rows_of(Numpy(path, types={"data": "bfloat16"}))
    assert [row["data"].astype("f4").tolist() for row in rows] == [[1.5, -2], [0, 3]]
    small = saved(tmp_path / "y.npy", np.array([[1, 2]], ml_dtypes.float8_e5m2).view("V1"))
    (row,) = rows_of(Numpy(small, types={"data": "float8_e5m2"}))
    assert row["data"].dtype == ml_dtypes.float8_e5m2
    with pytest.raises(
        UsageError, match=r"--types cannot make float32: --types applies only to raw bytes"
    ):
        Numpy(path, types={"data": "float32"}).schema()
    with pytest.raises(UsageError, match="'bfloat17' is not a dtype"):
        Numpy(path, types={"data": "bfloat17"})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1, "a", None], object), "Python objects, which only pickle could read: save it"),
        (np.array([(1, [])], [("a", "i4"), ("b", "O")]), "'b' of x.npy holds Python objects"),
        (np.zeros(2, "V3"), "raw bytes"),
        (np.zeros(2, np.longdouble), "which differs from machine to machine: cast it"),
    ],
)
def test_what_has_no_one_meaning_is_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=message) as caught:
        Numpy(tmp_path / "x.npy").schema()
    assert "\n" not in str(caught.value)


def test_arrays_of_other_lengths_are_refused_by_name(tmp_path):
    path = saved(tmp_path / "x.npz", a=np.zeros((10, 2)), b=np.zeros(1200))
    with pytest.raises(DataError) as caught:
        Numpy(path).schema()
    assert str(caught.value) == (
        "array 'b' of x.npz has 1,200 rows but 'a' has 10: leave it out with --columns, or pass "
        "--example array"
    )
    assert _types(Numpy(path, example="array")) == {
        "a": "tensor<float64>[10, 2]",
        "b": "tensor<float64>[1200]",
    }


def test_a_single_value_has_no_rows(tmp_path):
    path = saved(tmp_path / "x.npy", np.float32(3.5))
    with pytest.raises(DataError, match=r"is a single value and has no rows: .*--example"):
        Numpy(path).schema()
    assert rows_of(Numpy(path, example="array")) == [{"data": 3.5}]


def test_a_row_that_no_example_holds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(numpy_arrays, "_MAX_ROW_BYTES", 99)
    path = saved(tmp_path / "x.npy", np.zeros((2, 100), "u1"))
    with pytest.raises(DataError) as caught:
        Numpy(path).schema()
    assert str(caught.value) == (
        "a row of x.npy has 100 bytes, more than an example can hold: cut its arrays into smaller "
        "rows, or leave some out with --columns"
    )


def test_columns_of_paths_alone_have_all_rows(tmp_path):
    (tmp_path / "year=1").mkdir()
    saved(tmp_path / "year=1" / "x.npy", np.zeros((3, 2)))
    assert rows_of(Numpy(tmp_path, columns=["year"])) == [{"year": 1}] * 3


def test_an_array_in_fortran_order_is_read_row_by_row(tmp_path, monkeypatch):
    monkeypatch.setattr(numpy_arrays.Numpy, "unit_bytes", 100)
    array = np.asfortranarray(np.arange(60, dtype="f4").reshape(10, 3, 2))
    for name, rows in (("x.npy", array), ("empty.npy", array[:0])):
        path = saved(tmp_path / name, rows)
        assert [row["data"].tolist() for row in rows_of(Numpy(path))] == rows.tolist()
        (row,) = rows_of(Numpy(path, example="array"))
        assert row["data"].tolist() == rows.tolist()
