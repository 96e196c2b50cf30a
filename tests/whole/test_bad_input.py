"""Input that is not what its name says, or options that do not fit it: one line, exit code 1 or 2.

How files are cut and bytes are flipped is in `tests/sources/test_damage.py`.
"""

from __future__ import annotations

import gzip
import re
import struct
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.testing import SCHEMA, some_rows
from tests.helpers.formats import FORMATS, workbook
from tests.helpers.records import example, framed, masked_crc
from tests.whole.hostile import run

LINES = b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n'


def _made(suffix):
    return FORMATS[suffix](pa.Table.from_pylist(some_rows(20), SCHEMA))


def _headers_only(size):
    """Return a tar file with a member of any size, of which nothing is there."""
    member = tarfile.TarInfo("big.bin")
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def _table(suffix, **columns):
    return FORMATS[f".{suffix}"](pa.table(columns))


def _long(size):
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc(length)) + bytes(2**24)


# Name of the case: files, and what the only line of the error says.
FILES = {
    "Parquet as JSON": (
        {"x.json": lambda: _made(".parquet")},
        r"JSON file \(it begins as a Parquet",
    ),
    "gzip as JSON Lines": (
        {"x.jsonl": gzip.compress(LINES, mtime=0)},
        r"x\.jsonl is not a valid JSON file \(it begins as a gzip file\)",
    ),
    "Excel as CSV": (
        {"x.csv": lambda: _made(".xlsx")},
        r"x\.csv is not a valid CSV file \(it begins as a zip archive, an E",
    ),
    "JSON as CSV": ({"x.csv": LINES}, r"x\.csv:1 is JSON, and not names of columns"),
    "ORC as Avro": ({"x.avro": lambda: _made(".orc")}, r"Avro file \(it begins as an ORC file\)"),
    "Avro as ORC": ({"x.orc": lambda: _made(".avro")}, r"ORC file \(it begins as an Avro file\)"),
    "a compressed tar file": (
        {"x.tar": gzip.compress(bytes(9999), mtime=0)},
        r"tar .* begins as a gzip file\): give it the suffix of what it is",
    ),
    "JSON as TFRecord": ({"x.tfrecord": LINES}, r"x\.tfrecord is not a valid TFRecord file"),
    "empty tar file": ({"x.tar": b""}, r"x\.tar is damaged or cut off at byte 0"),
    "empty Excel": ({"x.xlsx": b""}, r"x\.xlsx is not a valid xlsx file"),
    "a record without an end": (
        {"x.tfrecord": _long(2**40)},
        r"\(record 0\): it has [0-9,]+ bytes",
    ),
    "a file of 5 GB": ({"x.tar": _headers_only(5 * 2**30)}, r"x\.tar is cut off in 'big\.bin'"),
    "old Excel": ({"x.xlsx": b"\xd0\xcf\x11\xe0" + bytes(999)}, r"workbook that is old or has a p"),
    "two rows of names": (
        {"x.xlsx": workbook([["q"], ["a"], [1]])},
        r"column 'q' is string in cell A2 of sheet 'Sheet' in x\.xlsx but int64 in cell A3",
    ),
    "Excel of another type": (
        {"x.xlsx": workbook([["a"], [1]]), "y.xlsx": workbook([["a"], ["z"]])},
        r"column 'a' is string in y\.xlsx but int64 in x\.xlsx",
    ),
}


def _refusal(lines):
    return "\n".join(line for line in lines if not re.match(r"(starting|scanning|reading): ", line))


@pytest.mark.slow_after(8)
@pytest.mark.parametrize("case", FILES)
def test_files_are_refused_in_one_line(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files, message = FILES[case]
    (tmp_path / "in").mkdir()
    for name, data in files.items():
        (tmp_path / "in" / name).write_bytes(data if isinstance(data, bytes) else data())
    ended = run("write", tmp_path / "in", tmp_path / "out", directory=tmp_path)
    refusal = _refusal(ended.lines)
    assert (ended.code, ended.is_quiet) == (1, True), ended
    assert re.search(message, refusal), refusal
    assert "\n" not in refusal
    assert not (tmp_path / "out" / "manifest.json").exists()


def _bad_texts(suffix, rows):
    """Return a file of rows of which every tenth has a text that is not UTF-8."""
    texts = ["BAD" if row % 10 == 3 else f"text {row}" for row in range(rows)]
    data = _table(suffix, id=range(rows), s=texts)
    return data.replace(b"BAD", b"\xff\xfe\xfd")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("suffix", ["arrow", "avro", "jsonl"])
def test_rows_are_written_or_rejected_and_none_is_lost(suffix, tmp_path):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(_bad_texts(suffix, 200))
    ended = run(*("write", path, tmp_path / "out", "--max-rejects", "any"), directory=tmp_path)
    assert (ended.code, ended.is_quiet) == (0, True), ended
    manifest = bt.Manifest.load(tmp_path / "out")
    assert (manifest.examples, manifest.rejects["rows"]) == (180, 20)
    rejects = pq.read_table(tmp_path / "out" / "rejects").to_pylist()
    assert len(rejects) == 20
    assert all(path.name in reject["message"] for reject in rejects)
    ids = {row["id"] for row in bt.load(tmp_path / "out")}
    assert ids == {row for row in range(200) if row % 10 != 3}


def _rows_without_name(row: dict[str, int]) -> dict[str, int]:
    return {"": row["a"]}


def _examples_without_name():
    path = Path("odd.tfrecord")
    path.write_bytes(framed(example(**{"": 1, "b": 2})))
    return path


def _parquet_without_name():
    pq.write_table(pa.table({"": [1], "b": [2]}), "odd.parquet")
    return Path("odd.parquet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "options"),
    [
        (lambda: [{"": 1, "b": 2}], {}),
        (lambda: [{"a": 1}], {"map": _rows_without_name}),
        (_parquet_without_name, {}),
        (_examples_without_name, {}),
    ],
)
def test_a_column_without_a_name_replaces_no_dataset(tmp_path, monkeypatch, made, options):
    monkeypatch.chdir(tmp_path)
    bt.write([{"a": 1}, {"a": 2}], "good")
    before = sorted(Path("good").rglob("*"))
    message = "^feature '' in the schema: it has no name: rename the column, or leave it out$"
    with pytest.raises(UsageError, match=message):
        bt.write(made(), "good", overwrite=True, **options)
    assert sorted(Path("good").rglob("*")) == before
    assert sorted(row["a"] for row in bt.load("good").rows()) == [1, 2]
    if not options:
        with pytest.raises(UsageError, match=message):
            bt.schema(made())
        bt.write(made(), "named", columns=["b"])
        assert list(bt.load("named").rows()) == [{"b": 2}]
