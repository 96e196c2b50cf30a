"""ORC files: stripes, types, and what is refused."""

import datetime
import decimal

import pyarrow as pa
import pyarrow.orc
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError
from beam_tfrecord.sources.orc import Orc
from beam_tfrecord.testing import some_rows
from tests.helpers.formats import orc_file
from tests.helpers.reading import read_all

_INSTANT = datetime.datetime(2020, 2, 29, 12, 30, 1, 123456, datetime.UTC)


def _many_types():
    return pa.table(
        {
            "tiny": pa.array([1, None], pa.int8()),
            "big": pa.array([-(2**63), None], pa.int64()),
            "float": pa.array([0.5, None], pa.float32()),
            "flag": pa.array([True, None]),
            "text": pa.array(["é", None]),
            "bytes": pa.array([b"\xff", None]),
            "day": pa.array([datetime.date(1, 1, 1), None]),
            "price": pa.array([decimal.Decimal("-1.50"), None], pa.decimal128(38, 2)),
            "when": pa.array([_INSTANT.replace(tzinfo=None), None], pa.timestamp("ns")),
            "instant": pa.array([_INSTANT, None], pa.timestamp("ns", "UTC")),
            "list": pa.array([[[1, None], []], None], pa.list_(pa.list_(pa.int64()))),
            "struct": pa.array([{"x": 1, "y.z": "b"}, None]),
            "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "struct.x": pa.array([2, None]),
        }
    )


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_every_type_comes_back_as_it_was_written(tmp_path, compression):
    table = _many_types()
    pa.orc.write_table(table, tmp_path / "a.orc", compression=compression)
    found = read_all(Orc(tmp_path / "a.orc"))
    assert found.schema.types == table.schema.types
    assert found.to_pylist() == table.to_pylist()
    one = read_all(Orc(tmp_path / "a.orc", columns=["struct"]))
    assert one.column("struct").to_pylist() == table.column("struct").to_pylist()


def test_a_timestamp_out_of_range_is_refused(tmp_path, monkeypatch):
    far = pa.array([[datetime.datetime(3000, 1, 1)]], pa.list_(pa.timestamp("us")))
    pa.orc.write_table(pa.table({"id": [1], "when": far}), tmp_path / "a.orc")
    with pytest.raises(DataError, match=r"^cannot read a\.orc from row 0 on \(ORC timestamp "):
        read_all(Orc(tmp_path / "a.orc"))
    assert read_all(Orc(tmp_path / "a.orc", columns=["id"])).num_rows == 1
    monkeypatch.setattr(pa, "__version__", "24.0.0")
    with pytest.raises(DataError, match=r"'when' of a\.orc holds timestamps, which pyarrow 24"):
        Orc(tmp_path / "a.orc").schema()
    assert Orc(tmp_path / "a.orc", columns=["id"]).schema().names == ["id"]


@pytest.mark.slow
def test_a_union_is_refused_by_its_name(tmp_path):
    ids = pa.array([0, 1], pa.int8())
    either = pa.UnionArray.from_sparse(ids, [pa.array([1, 2]), pa.array(["a", "b"])])
    pa.orc.write_table(pa.table({"id": [1, 2], "either": either}), tmp_path / "a.orc")
    with pytest.raises(BeamTFRecordError, match="column 'either' has values of type sparse_union"):
        bt.write(tmp_path / "a.orc", tmp_path / "out")
    assert bt.write(tmp_path / "a.orc", tmp_path / "out", columns=["id"]).examples == 2


def test_a_stripe_that_a_damaged_footer_does_not_list_is_noticed(tmp_path):
    path = tmp_path / "a.orc"
    path.write_bytes(
        orc_file(pa.Table.from_pylist(some_rows(60)), group_rows=20, compression="uncompressed")
    )
    orc, data = pa.orc.ORCFile(path), bytearray(path.read_bytes())
    # A footer begins with two numbers; then each stripe has a tag, a length and that many bytes.
    first = data.index(b"\x1a", len(data) - 1 - orc.file_postscript_length - orc.file_footer_length)
    second = first + 2 + data[first + 1]
    assert data[second] == data[first]
    data[second] = 0x7A  # the tag of a field that no reader knows
    path.write_bytes(data)
    message = (
        r"cannot read a\.orc from row 40 on \(its footer counts 60 rows but its stripes hold 40"
    )
    with pytest.raises(DataError, match=message):
        read_all(Orc(path))
