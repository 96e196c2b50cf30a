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
from tests.helpers.formats import FORMATS, tar_file, workbook
from tests.helpers.records import example, framed, masked_crc
from tests.whole.hostile import run

LINES = b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n'
RECORDS = b"".join(framed(example(a=row)) for row in range(20))


def _made(suffix):
    return FORMATS[suffix](pa.Table.from_pylist(some_rows(20), SCHEMA))


def _tar(*names):
    return tar_file([(name, b"1") for name in names])


def _headers_only(size):
    """Return a tar file with a member of any size, of which nothing is there."""
    member = tarfile.TarInfo("big.bin")
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def _table(suffix, **columns):
    return FORMATS[f".{suffix}"](pa.table(columns))


def _unchecked(payload):
    return struct.pack("<Q", len(payload)) + bytes(4) + payload + bytes(4)


def _sequence():
    # A SequenceExample: its second field holds lists, which an Example does not have.
    context = example(a=1)
    return context + b"\x12\x00"


def _long(size):
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc(length)) + bytes(2**24)


# Name of the case: files, and what the only line of the error says.
FILES = {
    "UTF-16": ({"x.jsonl": LINES.decode().encode("utf-16")}, r"x\.jsonl looks like UTF-16"),
    "UTF-16 without a mark": (
        {"x.jsonl": LINES.decode().encode("utf-16-le")},
        r"x\.jsonl looks like UTF-16",
    ),
    "encodings that differ": (
        {"x.jsonl": LINES, "y.jsonl": LINES.decode().encode("utf-16")},
        r"y\.jsonl looks like UTF-16",
    ),
    "Latin-1": ({"x.jsonl": '{"b": "é"}\n'.encode("latin-1")}, r"x\.jsonl:1 is not UTF-8 \(byte 8"),
    "Parquet as JSON": (
        {"x.json": lambda: _made(".parquet")},
        r"JSON file \(it begins as a Parquet",
    ),
    "Arrow as JSON Lines": (
        {"x.jsonl": lambda: _made(".arrow")},
        r"JSON file \(it begins as an Arrow",
    ),
    "gzip as JSON Lines": (
        {"x.jsonl": gzip.compress(LINES, mtime=0)},
        r"x\.jsonl is not a valid JSON file \(it begins as a gzip file\)",
    ),
    "no gzip": ({"x.jsonl.gz": LINES}, r"cannot read x\.jsonl\.gz \("),
    "Excel as CSV": (
        {"x.csv": lambda: _made(".xlsx")},
        r"x\.csv is not a valid CSV file \(it begins as a zip archive, an E",
    ),
    "JSON as CSV": ({"x.csv": LINES}, r"x\.csv:1 is JSON, and not names of columns"),
    "a JSON array as CSV": ({"x.csv": b'[\n{"a": 1}\n]\n'}, r"x\.csv:1 is JSON, and not names of"),
    "JSON as Avro": ({"x.avro": LINES}, r"x\.avro is not a valid Avro file"),
    "ORC as Avro": ({"x.avro": lambda: _made(".orc")}, r"Avro file \(it begins as an ORC file\)"),
    "Avro as ORC": ({"x.orc": lambda: _made(".avro")}, r"ORC file \(it begins as an Avro file\)"),
    "Excel as Arrow": ({"x.arrow": lambda: _made(".xlsx")}, r"x\.arrow .* begins as a zip archive"),
    "JSON as a tar file": ({"x.tar": LINES}, r"x\.tar is not a valid tar file"),
    "a compressed tar file": (
        {"x.tar": gzip.compress(bytes(9999), mtime=0)},
        r"tar .* begins as a gzip file\): give it the suffix of what it is",
    ),
    "a compressed tar file with its suffix": (
        {"x.tar.gz": gzip.compress(bytes(9999), mtime=0)},
        r"x\.tar\.gz .* begins as a gzip file\): decompress it, or leave it out",
    ),
    "Excel as TFRecord": (
        {"x.tfrecord": lambda: _made(".xlsx")},
        r"TFRecord file \(it begins as a zip",
    ),
    "JSON as TFRecord": ({"x.tfrecord": LINES}, r"x\.tfrecord is not a valid TFRecord file"),
    "empty Avro": ({"x.avro": b""}, r"x\.avro is not a valid Avro file"),
    "empty ORC": ({"x.orc": b""}, r"x\.orc is not a valid ORC file"),
    "empty Arrow": ({"x.arrow": b""}, r"x\.arrow is not a valid Arrow file"),
    "empty tar file": ({"x.tar": b""}, r"x\.tar is damaged or cut off at byte 0"),
    "empty Excel": ({"x.xlsx": b""}, r"x\.xlsx is not a valid xlsx file"),
    "no checksums": (
        {"x.tfrecord": _unchecked(example(a=1))},
        r"TFRecord file \(it has no checksums",
    ),
    "no checksums later": (
        {"x.tfrecord": RECORDS + _unchecked(example(a=1))},
        r"x\.tfrecord is damaged at byte \d+ \(record 20\)",
    ),
    "another message": (
        {"x.tfrecord": RECORDS + framed(_sequence())},
        r"x\.tfrecord record 20: not a plain tf\.train\.Example",
    ),
    "any records": ({"x.tfrecord": framed(b"\xff" * 30)}, r"x\.tfrecord record 0: not a"),
    "a record without an end": (
        {"x.tfrecord": _long(2**40)},
        r"\(record 0\): it has [0-9,]+ bytes",
    ),
    "a sample twice": ({"x.tar": lambda: _tar("a.txt", "b.txt", "a.cls")}, "not next to each"),
    "a file twice": ({"x.tar": lambda: _tar("a.txt", "a.txt")}, r"x\.tar has 'a\.txt' twice"),
    "a file of 5 GB": ({"x.tar": _headers_only(5 * 2**30)}, r"x\.tar is cut off in 'big\.bin'"),
    "old Excel": ({"x.xlsx": b"\xd0\xcf\x11\xe0" + bytes(999)}, r"workbook that is old or has a p"),
    "a title above the names": (
        {"x.xlsx": workbook([["Sales"], ["a", "b"], [1, 2]])},
        r"cell B2 of sheet 'Sheet' in x\.xlsx has a value, but its column has no name",
    ),
    "two rows of names": (
        {"x.xlsx": workbook([["q"], ["a"], [1]])},
        r"column 'q' is string in cell A2 of sheet 'Sheet' in x\.xlsx but int64 in cell A3",
    ),
    "a formula without a value": (
        {"x.xlsx": workbook([["q"], ["=1+1"]])},
        r"cell A2 of sheet 'Sheet' in x\.xlsx is a formula without a value",
    ),
    "no names": ({"x.xlsx": workbook([])}, r"sheet 'Sheet' in x\.xlsx has no names of columns"),
    "JSON of another type": (
        {"x.jsonl": LINES, "y.jsonl": b'{"a": "z"}\n'},
        r"column 'a' is text in y\.jsonl:1 but an integer in x\.jsonl:1",
    ),
    "Excel of another type": (
        {"x.xlsx": workbook([["a"], [1]]), "y.xlsx": workbook([["a"], ["z"]])},
        r"column 'a' is string in y\.xlsx but int64 in x\.xlsx",
    ),
    "Avro without a column": (
        {"x.avro": _table("avro", a=[1], b=[2]), "y.avro": _table("avro", a=pa.array([], "int64"))},
        r"column 'b' is in x\.avro but not in y\.avro",
    ),
    "tar files of other columns": (
        {"x.tar": lambda: _tar("a.txt", "a.cls"), "y.tar": lambda: _tar("b.txt")},
        r"column 'cls' is in x\.tar but not in y\.tar",
    ),
    **{
        f"{suffix} {name}": (
            {
                f"x.{suffix}": _table(suffix, a=[1], b=[2]),
                f"y.{suffix}": _table(suffix, **columns),  # type: ignore[arg-type]
            },
            message,
        )
        for suffix in ("parquet", "orc", "arrow")
        for name, columns, message in (
            ("without a column", {"a": [1]}, rf"column 'b' is in x\.{suffix} but not in y\."),
            ("of another type", {"a": ["z"], "b": [2]}, rf"column 'a' is string in y\.{suffix}"),
        )
    },
}
OPTIONS = {
    ("--filter", "fair > 0"): r"column 'fair' of --filter is not in the input: did you mean 'fare'",
    ("--filter", "fare >"): r"--filter 'fare >' is not SQL",
    ("--filter", "city > 3"): r"--filter compares column 'city' \(text\) with 3",
    ("--sample", "200%"): r"--sample '200%' is not above 0 and at most 1",
    ("--columns", "fair"): r"column 'fair' is not in the input: did you mean 'fare'",
    ("--key", "fair"): r"column 'fair' of --key is not in the rows",
    ("--sheet", "x"): r"--sheet is not an option of json input",
    ("--limit", "0"): r"'--limit': 0 is not in the range",
}


def _refusal(lines):
    return "\n".join(line for line in lines if not re.match(r"(starting|scanning|reading) ", line))


@pytest.mark.slow_after(13)
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
    # Rejects have a line each, below that of the error.
    assert refusal.count("\n") == (3 if "rows cannot be written" in refusal else 0), refusal
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("option", OPTIONS, ids=" ".join)
def test_options_are_refused_in_one_line(option, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"fare": 1, "city": "x"}\n' * 9)
    ended = run("write", path, tmp_path / "out", *option, directory=tmp_path)
    assert (ended.code, ended.is_quiet) == (2, True), ended
    assert re.search(OPTIONS[option], _refusal(ended.lines))
    assert "\n" not in _refusal(ended.lines)


def test_a_sheet_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    (tmp_path / "x.xlsx").write_bytes(workbook([["a"], [1]]))
    ended = run(
        *("write", tmp_path / "x.xlsx", tmp_path / "out", "--sheet", "x"), directory=tmp_path
    )
    assert ended.code == 2
    assert _refusal(ended.lines) == "error: x.xlsx has no sheet 'x': it has Sheet"


def test_a_file_of_orc_without_rows_is_no_error(tmp_path):
    (tmp_path / "x.orc").write_bytes(_table("orc", a=pa.array([], pa.int64())))  # type: ignore[arg-type]
    assert bt.write(tmp_path / "x.orc", tmp_path / "out").examples == 0


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


def test_a_plan_refuses_a_column_without_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = _parquet_without_name()
    with pytest.raises(UsageError, match=r"^feature '' in the schema: it has no name"):
        bt.plan(path, "out")
    assert bt.plan(path, "out", columns=["b"])["input"]["rows"] == 1
