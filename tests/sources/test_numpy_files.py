"""Files of NumPy arrays: several of them, and those that are damaged."""

import io
import random
import struct
import zipfile

import numpy as np
import pytest

from beam_tfrecord.errors import BeamTFRecordError, DataError, SchemaConflict, UsageError
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.sources.numpy import Numpy
from tests.helpers.reading import rows_of
from tests.sources.test_numpy import saved


class TestManyFiles:
    @pytest.fixture
    def two(self, tmp_path):
        saved(tmp_path / "a.npy", np.zeros((2, 3), "f4"))
        saved(tmp_path / "b.npy", np.ones((1, 3), "f4"))
        return tmp_path

    def test_what_an_example_is_must_be_said(self, two):
        with pytest.raises(UsageError) as caught:
            Numpy(two).schema()
        assert str(caught.value) == (
            "a.npy and b.npy are several files of arrays: pass --example row for an example from "
            "each row, or --example array for one from each file"
        )
        assert Numpy(two / "a.npy").schema().types == [TensorType("float32", (3,))]

    @pytest.mark.parametrize(
        ("shapes", "joined"),
        [
            ([(4, 2), (4, 2)], (4, 2)),
            ([(4, 2), (5, 2)], (None, 2)),
            ([(4, 2), (4, 3)], (4, None)),
            ([(4, 2), (4,)], None),
            ([(), (4,)], None),
        ],
    )
    def test_shapes_are_as_open_as_they_differ(self, tmp_path, shapes, joined):
        for number, shape in enumerate(shapes):
            saved(tmp_path / f"{number}.npy", np.full(shape, number, "u1"))
        source = Numpy(tmp_path, example="array")
        assert source.schema().types == [TensorType("uint8", joined)]
        assert [row["data"].shape for row in rows_of(source)] == shapes

    def test_rows_of_files_with_other_shapes(self, tmp_path):
        saved(tmp_path / "a.npy", np.zeros((2, 3), "f4"))
        saved(tmp_path / "b.npy", np.ones((1, 5), "f4"))
        rows = rows_of(Numpy(tmp_path, example="row"))
        assert [row["data"].tolist() for row in rows] == [[0] * 3, [0] * 3, [1] * 5]

    def test_other_dtypes_are_refused_with_both_files(self, tmp_path):
        saved(tmp_path / "a.npy", np.zeros(2, "i4"))
        saved(tmp_path / "b.npy", np.zeros(2, "i8"))
        with pytest.raises(SchemaConflict) as caught:
            Numpy(tmp_path, example="row").schema()
        assert str(caught.value) == (
            "column 'data' is tensor<int64>[] in b.npy but tensor<int32>[] in a.npy: save both "
            "with one dtype"
        )

    def test_an_array_that_a_file_lacks_is_refused_or_null(self, tmp_path):
        saved(tmp_path / "a.npz", x=np.arange(2), y=np.ones((2, 2), "f4"))
        saved(tmp_path / "b.npz", x=np.arange(1))
        with pytest.raises(
            SchemaConflict, match=r"'y' is in a\.npz but not in b\.npz: pass --union"
        ):
            Numpy(tmp_path, example="row").schema()
        rows = rows_of(Numpy(tmp_path, example="row", union=True))
        assert [row["y"] is None for row in rows] == [False, False, True]


def _npy(header, data=b"", *, version=(1, 0)):
    width = "<H" if version == (1, 0) else "<I"
    text = header.encode()
    return b"\x93NUMPY" + bytes(version) + struct.pack(width, len(text)) + text + data


GOOD = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}"


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_header_is_read(tmp_path, version):
    path = tmp_path / "x.npy"
    path.write_bytes(_npy(GOOD, b"\1\0\2\0", version=version))
    assert rows_of(Numpy(path)) == [{"data": 1}, {"data": 2}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "(EOF: reading magic string, expected 8 bytes got 0)"),
        (_npy(GOOD, b"\1\0\2"), "x.npy has 3 bytes of values but its header says 4"),
        (_npy(GOOD, version=(3, 1)), "(its version, or its names of fields"),
        (_npy(GOOD.replace("(2,)", "(-2,)")), "(a dtype with a shape, or a neg"),
    ],
)
def test_a_damaged_file_is_told_in_one_line(tmp_path, content, message):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        Numpy(path).schema()
    assert str(caught.value).startswith("x.npy ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "header",
    ["(((", "__import__('os')", GOOD.replace("'<i2'", "'<q9'"), "[" * 3000, "{'descr': [1]}"],
)
def test_a_header_is_never_run_nor_trusted(tmp_path, header):
    path = tmp_path / "x.npy"
    path.write_bytes(_npy(header))
    with pytest.raises(DataError, match=r"^x\.npy is not a valid NumPy file \(") as caught:
        Numpy(path).schema()
    assert "\n" not in str(caught.value)


def test_a_huge_header_is_not_parsed(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(_npy("[" * 2**21, version=(2, 0)))
    with pytest.raises(DataError, match=r"Header info length \(2097152\) is large"):
        Numpy(path).schema()


def test_a_file_that_shrinks_while_it_is_read_does_not_kill_the_process(tmp_path):
    path = saved(tmp_path / "x.npy", np.zeros((100, 1000)))
    source = Numpy(path)
    scans = source.all_scans()
    (unit,), schema = source.all_units(scans), source.schema(scans)
    with path.open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(DataError, match=r"x\.npy has 4,872 bytes of values but its header"):
        list(source.read(unit, schema))


def _archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("_npy", ".npy"), data)


def _bytes_of(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {},
            "x.npz is not a valid NumPy file (Invalid position): write the file again, or leave "
            "it out",
        ),
        (
            {"a_npy": _bytes_of(np.zeros(3))[:-1]},
            "'a.npy' of x.npz has 23 bytes of values but its header says 24: write it again, or "
            "leave it out",
        ),
    ],
)
def test_an_odd_archive_is_told_in_one_line(tmp_path, members, message):
    _archive(tmp_path / "x.npz", **members)
    with pytest.raises(DataError) as caught:
        Numpy(tmp_path / "x.npz").schema()
    assert str(caught.value) == message


def _refusal(path):
    """Return why a file of 300 rows is refused; None where it is read."""
    try:
        rows = rows_of(Numpy(path))
    except BeamTFRecordError as error:
        return str(error)
    assert len(rows) == 300
    return None


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_cut_and_flipped_archives_never_crash(tmp_path, save):
    path = tmp_path / "x.npz"
    save(path, a=np.arange(300), b=np.arange(600, dtype="f4").reshape(300, 2))
    whole, draw = path.read_bytes(), random.Random(7)
    refused = 0
    for trial in range(120):
        data = bytearray(whole)
        if trial % 2:
            del data[draw.randrange(2, len(data)) :]
        else:
            data[draw.randrange(2, len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        message = _refusal(path)
        refused += message is not None
        assert message is None or ("x.npz" in message and "\n" not in message)
    assert refused >= 60
