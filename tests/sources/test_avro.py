"""Avro files: blocks, codecs, types; fastavro's own reader says what a file holds."""

from __future__ import annotations

import bz2
import datetime
import decimal
import io
import lzma
import math
import struct
import uuid
import zlib

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources import damaged_files
from beam_tfrecord.sources.avro import Avro
from tests.helpers.effort import examples
from tests.helpers.reading import read_all

SYNC = bytes(range(100, 116))


def write_avro(path, fields, rows, **options):
    """Write rows of some fields, each with its Avro type."""
    listed = [{"name": name, "type": of} for name, of in fields.items()]
    schema = {"type": "record", "name": "row", "fields": listed}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, sync_marker=SYNC, **options)
    return path


def with_blocks(path, data, *, rows, codec="null"):
    """Let a file that `write_avro` wrote have one block of `data`."""
    header = path.read_bytes().partition(SYNC)[0]
    header = header.replace(b"\x08null", bytes([2 * len(codec)]) + codec.encode())
    path.write_bytes(header + SYNC + varint(rows) + varint(len(data)) + data + SYNC)


def varint(number: int) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, "long", number)
    return sink.getvalue()


ROWS = [{"id": number, "name": f"n{number}"} for number in range(200)]
FIELDS = {"id": "long", "name": ["null", "string"]}


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_codecs_of_other_libraries_are_read_by_pyarrow(tmp_path, codec):
    path = write_avro(tmp_path / "a.avro", {"x": "long"}, [{"x": 1}])
    plain = b"".join(map(varint, range(100)))
    name = {"zstandard": "zstd"}.get(codec, codec)
    data = pa.compress(plain, name, asbytes=True)
    if codec == "snappy":
        data += struct.pack(">I", zlib.crc32(plain))
    with_blocks(path, data, rows=100, codec=codec)
    assert read_all(Avro(path)).column("x").to_pylist() == list(range(100))
    if codec == "snappy":
        with_blocks(path, data[:-1] + b"\0", rows=100, codec=codec)
        with pytest.raises(
            DataError, match=r"a\.avro from row 0 on \(the checksum of a block differs\)"
        ):
            read_all(Avro(path))


_WHEN = datetime.datetime(2020, 2, 29, 12, 30, 1, 123456)
_LOGICAL = {
    "date": ("int", pa.date32(), datetime.date(1, 1, 1)),
    "time-millis": ("int", pa.time32("ms"), datetime.time(1, 2, 3, 4000)),
    "time-micros": ("long", pa.time64("us"), datetime.time(1, 2, 3, 4)),
    "timestamp-millis": (
        "long",
        pa.timestamp("ms", "UTC"),
        _WHEN.replace(microsecond=0, tzinfo=datetime.UTC),
    ),
    "timestamp-micros": ("long", pa.timestamp("us", "UTC"), _WHEN.replace(tzinfo=datetime.UTC)),
    "local-timestamp-millis": ("long", pa.timestamp("ms"), _WHEN.replace(microsecond=0)),
    "local-timestamp-micros": ("long", pa.timestamp("us"), _WHEN),
}


def test_logical_types_are_those_of_arrow(tmp_path):
    fields = {name: {"type": kind, "logicalType": name} for name, (kind, _, _) in _LOGICAL.items()}
    row = {name: value for name, (_, _, value) in _LOGICAL.items()}
    found = read_all(Avro(write_avro(tmp_path / "a.avro", fields, [row])))
    assert found.schema == pa.schema(
        [pa.field(name, of, nullable=False) for name, (_, of, _) in _LOGICAL.items()]
    )
    assert found.to_pylist() == [row]


def test_values_that_python_cannot_hold_are_exact(tmp_path):
    nan = struct.unpack("<f", b"\x01\x00\x80\x7f")[0]
    fields = {
        "nanos": {"type": "long", "logicalType": "timestamp-nanos"},
        "local": {"type": "long", "logicalType": "local-timestamp-nanos"},
        "far": {"type": "long", "logicalType": "timestamp-micros"},
        "float": "float",
        "double": "double",
    }
    raw = {**dict.fromkeys(fields, "long"), "float": "float", "double": "double"}
    path = tmp_path / "a.avro"
    write_avro(path, fields, [])
    sink = io.BytesIO()
    schema = {"type": "record", "name": "r", "fields": []}
    schema["fields"] = [{"name": name, "type": of} for name, of in raw.items()]
    values = {"nanos": 2**63 - 1, "local": -(2**63), "far": 2**62, "float": nan, "double": -0.0}
    fastavro.schemaless_writer(sink, schema, values)
    data = sink.getvalue()[:-12] + b"\x01\x00\x80\x7f" + sink.getvalue()[-8:]
    with_blocks(path, data, rows=1)
    found = read_all(Avro(path))
    assert found.schema.types[:3] == [
        pa.timestamp("ns", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("us", "UTC"),
    ]
    assert [found.column(n).cast("int64")[0].as_py() for n in ("nanos", "local", "far")] == [
        2**63 - 1,
        -(2**63),
        2**62,
    ]
    # Of a NaN, every bit; of a zero, the sign.
    assert found.column("float").chunk(0).buffers()[1].to_pybytes()[:4] == b"\x01\x00\x80\x7f"
    assert math.copysign(1, found.column("double")[0].as_py()) == -1


def test_decimals_are_exact_or_refused(tmp_path):
    def of(kind, precision, scale):
        base = {"type": kind} if isinstance(kind, str) else kind
        return {**base, "logicalType": "decimal", "precision": precision, "scale": scale}

    fixed = {"type": "fixed", "name": "f", "size": 6}
    fields = {
        "short": of("bytes", 5, 2),
        "fixed": of(fixed, 10, 0),
        "long": of("bytes", 60, 30),
        "list": {"type": "array", "items": ["null", of("bytes", 38, 38)]},
    }
    row = {
        "short": decimal.Decimal("-123.45"),
        "fixed": decimal.Decimal(-1),
        "long": decimal.Decimal("1" * 30 + "." + "2" * 30),
        "list": [None, decimal.Decimal("0." + "9" * 38)],
    }
    path = write_avro(tmp_path / "a.avro", fields, [row])
    found = read_all(Avro(path))
    assert found.schema.field("long").type == pa.decimal256(60, 30)
    assert found.to_pylist() == [row]
    # fastavro would round a value that has more digits than the type says.
    path = write_avro(tmp_path / "b.avro", {"x": of("bytes", 3, 0)}, [])
    with_blocks(path, varint(2) + (1234).to_bytes(2, "big"), rows=1)
    with pytest.raises(DataError, match=r"^cannot read b\.avro from row 0 on \(.*1234"):
        read_all(Avro(path))


@pytest.mark.parametrize(
    ("avro", "problem"),
    [
        (["null", "long", "string"], "holds values of several types"),
        (
            {"type": "fixed", "size": 12, "name": "d", "logicalType": "duration"},
            "holds durations in months, days and milliseconds",
        ),
        ({"type": "array", "items": ["int", "string"]}, "holds values of several types"),
    ],
)
def test_a_type_that_no_column_holds_is_refused_by_column(tmp_path, avro, problem):
    path = write_avro(tmp_path / "a.avro", {"id": "int", "x": avro, "y": "int"}, [])
    with pytest.raises(
        DataError, match=rf"^column 'x' of a\.avro {problem}.*: leave it out with --"
    ):
        Avro(path).schema()
    values = {"fixed": bytes(12)}.get(avro["type"], [1, "a"]) if isinstance(avro, dict) else 7
    write_avro(path, {"id": "int", "x": avro, "y": "int"}, [{"id": 1, "x": values, "y": 2}] * 3)
    assert read_all(Avro(path, columns=["y", "id"])).to_pylist() == [{"y": 2, "id": 1}] * 3


def test_a_record_inside_itself_is_refused(tmp_path):
    node = {
        "type": "record",
        "name": "node",
        "fields": [{"name": "next", "type": ["null", "node"]}],
    }
    path = write_avro(tmp_path / "a.avro", {"id": "int", "x": node}, [])
    message = (
        r"^a\.avro is not .* \(it holds records of type node inside themselves\): write the file"
    )
    with pytest.raises(DataError, match=message):
        Avro(path, columns=["id"]).schema()


def test_names_may_be_used_again(tmp_path):
    point = {
        "type": "record",
        "name": "p",
        "namespace": "n",
        "fields": [{"name": "x", "type": "int"}],
    }
    fields = {"a": point, "b": ["null", "n.p"], "c": {"type": "array", "items": "n.p"}}
    row = {"a": {"x": 1}, "b": {"x": 2}, "c": [{"x": 3}]}
    assert read_all(Avro(write_avro(tmp_path / "a.avro", fields, [row]))).to_pylist() == [row]


def test_types_of_the_rest(tmp_path):
    fields = {
        "enum": {"type": "enum", "name": "e", "symbols": ["A", "B"]},
        "text": {"type": "string", "logicalType": "uuid"},
        "uuid": {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
        "fixed": {"type": "fixed", "name": "g", "size": 3},
        "map": {"type": "map", "values": ["null", "long"]},
        "unknown": {"type": "string", "logicalType": "of another program"},
        "nothing": "null",
    }
    one = uuid.UUID(int=7)
    row = {"enum": "B", "text": one, "uuid": one.bytes, "fixed": b"abc", "map": {"a": None, "b": 1}}
    path = write_avro(tmp_path / "a.avro", fields, [{**row, "unknown": "x", "nothing": None}])
    found = read_all(Avro(path))
    assert found.schema.types == [
        *(pa.string(), pa.string(), pa.uuid(), pa.binary(3)),
        *(pa.map_(pa.string(), pa.int64()), pa.string(), pa.null()),
    ]
    assert found.to_pylist() == [
        {
            **row,
            "text": str(one),
            "uuid": one,
            "map": [("a", None), ("b", 1)],
            "unknown": "x",
            "nothing": None,
        }
    ]


def test_a_key_that_is_twice_in_a_map_is_not_lost(tmp_path):
    path = write_avro(tmp_path / "a.avro", {"m": {"type": "map", "values": "int"}}, [])
    with_blocks(path, varint(2) + b"\x02a\x02" + b"\x02a\x04" + b"\0", rows=1)
    assert read_all(Avro(path)).to_pylist() == [{"m": [("a", 1), ("a", 2)]}]


def test_a_block_with_other_bytes_or_rows_is_refused(tmp_path):
    path = write_avro(tmp_path / "a.avro", {"x": "int"}, [])
    for data, rows, why in (
        (b"\x02\x04\x06", 2, "1 bytes follow the records of a block"),
        (b"\x02\x04", 3, ".*"),
        (b"\xff" * 20, 1, ".*"),
    ):
        with_blocks(path, data, rows=rows)
        with pytest.raises(
            DataError, match=rf"^cannot read a\.avro from row [02] on \({why}\): write"
        ):
            read_all(Avro(path))


@pytest.mark.parametrize("size", [2**31, 2**45, 2**62])
def test_damage_that_states_any_size_is_refused(tmp_path, size):
    path = write_avro(tmp_path / "a.avro", {"x": "int"}, [])
    data = path.read_bytes()
    path.write_bytes(data + varint(1) + varint(size) + b"\x02" + SYNC)
    with pytest.raises(DataError, match=r"^cannot read a\.avro from row 0 on \("):
        read_all(Avro(path))
    at = data.index(b"avro.schema") - 1
    path.write_bytes(data[:at] + varint(size) + data[at + 1 :])
    with pytest.raises(DataError, match=r"^a\.avro is not a valid Avro file \("):
        read_all(Avro(path))


def test_a_marker_inside_a_block_loses_nothing(tmp_path, monkeypatch):
    rows = [{"x": SYNC * 40}] * 5
    path = write_avro(tmp_path / "a.avro", {"x": "bytes"}, rows)
    assert read_all(Avro(path)).to_pylist() == rows
    monkeypatch.setattr(Avro, "unit_bytes", 500)
    assert read_all(Avro(path)).to_pylist() == rows


def test_a_block_that_is_too_large_is_refused(tmp_path, monkeypatch):
    path = write_avro(tmp_path / "a.avro", FIELDS, ROWS)
    monkeypatch.setattr(damaged_files, "MOST_BYTES", 1000)
    with pytest.raises(
        DataError, match=r"^piece 0 of a\.avro has [0-9,]+ bytes, which are read at once: w"
    ):
        Avro(path).schema()


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_a_block_that_becomes_too_large_is_refused(tmp_path, monkeypatch, codec):
    path = tmp_path / "a.avro"
    write_avro(path, {"x": "bytes"}, [{"x": b""}])
    plain = varint(600_000) + bytes(600_000)
    compressed = {
        "deflate": lambda: zlib.compress(plain)[2:-4],
        "bzip2": lambda: bz2.compress(plain),
        "xz": lambda: lzma.compress(plain),
        "snappy": lambda: (
            pa.compress(plain, codec="snappy", asbytes=True) + zlib.crc32(plain).to_bytes(4, "big")
        ),
        "zstandard": lambda: pa.compress(plain, codec="zstd", asbytes=True),
    }[codec]()
    assert len(compressed) < 50_000
    with_blocks(path, compressed, rows=1, codec=codec)
    assert len(read_all(Avro(path))["x"][0].as_py()) == 600_000
    monkeypatch.setattr("beam_tfrecord.sources.avro.MOST_BYTES", 300_000)
    message = (
        r"^cannot read a\.avro from row 0 on \((a block has more than 300,000 bytes|Output buf)"
    )
    with pytest.raises(DataError, match=message):
        read_all(Avro(path))


# Strategies of an Avro type with its values; named types get their names below.
_SCALARS = [
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("float", st.floats(width=32, allow_nan=False)),
    ("double", st.floats(allow_nan=False)),
    ("boolean", st.booleans()),
    ("string", st.text(max_size=5)),
    ("bytes", st.binary(max_size=5)),
    ({"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
    ({"type": "enum", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    ({"type": "int", "logicalType": "date"}, st.dates()),
]


@st.composite
def _typed(draw, depth=2):
    """Draw an Avro type, and the strategy of its values."""
    kind = draw(st.sampled_from(["scalar", "null"] + ["array", "map", "record"] * (depth > 0)))
    if kind == "scalar":
        return draw(st.sampled_from(_SCALARS))
    if kind == "record":
        fields = {name: draw(_typed(depth - 1)) for name in draw(st.sampled_from(["a", "ab"]))}
        listed = [{"name": name, "type": of} for name, (of, _) in fields.items()]
        values = st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})
        return {"type": "record", "fields": listed}, values
    if kind == "array":
        of, values = draw(_typed(depth - 1))
        return {"type": "array", "items": of}, st.lists(values, max_size=3)
    if kind == "map":
        of, values = draw(_typed(depth - 1))
        return {"type": "map", "values": of}, st.dictionaries(
            st.text(max_size=2), values, max_size=2
        )
    of, values = draw(st.sampled_from(_SCALARS))
    return draw(st.sampled_from([["null", of], [of, "null"]])), st.none() | values


def _named(of, numbers):
    if isinstance(of, list):
        return [_named(one, numbers) for one in of]
    if not isinstance(of, dict):
        return of
    name = {"name": f"n{next(numbers)}"} if of["type"] in ("fixed", "enum", "record") else {}
    inside = {key: _named(of[key], numbers) for key in ("items", "values") if key in of}
    if "fields" in of:
        inside["fields"] = [{**f, "type": _named(f["type"], numbers)} for f in of["fields"]]
    return {**of, **name, **inside}


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_any_type_is_read_as_fastavro_reads_it(data, tmp_path_factory):
    numbers = iter(range(1000))
    columns = {name: data.draw(_typed()) for name in "xy"}
    fields = {name: _named(of, numbers) for name, (of, _) in columns.items()}
    rows = data.draw(
        st.lists(st.fixed_dictionaries({name: of for name, (_, of) in columns.items()}), max_size=9)
    )
    path = tmp_path_factory.mktemp("avro") / "a.avro"
    write_avro(path, fields, rows, sync_interval=data.draw(st.sampled_from([1, 20, 16000])))
    with path.open("rb") as file:
        expected = list(fastavro.reader(file))
    source = Avro(path)
    schema = source.schema()
    found = pa.Table.from_batches([batch.data for batch in source.batches()], schema)
    assert found.to_pylist(maps_as_pydicts="strict") == expected
