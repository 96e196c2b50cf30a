"""WebDataset shards: samples as Python's `tarfile` writes them; what is no sample is refused."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources import damaged_files
from beam_tfrecord.sources.choose import make_source
from beam_tfrecord.sources.webdataset import WebDataset
from beam_tfrecord.testing import Row, SourceConformance
from tests.helpers.formats import tar_file
from tests.helpers.reading import rows_at


class SmallUnits(WebDataset):
    """The source with units of some KB."""

    unit_bytes = 8192


def write_tar(path, members, format=tarfile.PAX_FORMAT):
    path.write_bytes(tar_file(members, format))
    return str(path)


def members_of(rows):
    return [
        (f"{row['__key__']}.{column}", value if isinstance(value, bytes) else str(value).encode())
        for row in rows
        for column, value in row.items()
        if column != "__key__" and value is not None
    ]


class TestConformance(SourceConformance):
    suffix = ".tar"
    schema = pa.schema(
        [
            pa.field("__key__", pa.string(), nullable=False),
            pa.field("jpg", pa.large_binary(), nullable=False),
            pa.field("cls", pa.int64()),
            pa.field("seg.txt", pa.string()),
        ]
    )
    damage_message = r"x\.tar is damaged or cut off at byte [0-9,]+"

    def rows(self, count: int, *, first: int = 0) -> list[Row]:
        return [
            {
                # Long names, and others than ASCII, have headers of their own.
                "__key__": f"dir/{'é' * 120 if n % 20 == 7 else ''}{n:06}",
                "jpg": bytes([n % 256]) * (n * 37 % 600),
                "cls": None if n % 5 == 3 else n - 50,
                "seg.txt": None if n % 7 == 4 else f"täxt {n}",
            }
            for n in range(first, first + count)
        ]

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        write_tar(path, members_of(rows))

    def open(self, paths: Any, **options: Any) -> WebDataset:
        return SmallUnits(paths, **options)

    def damage(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        with tarfile.open(path) as tar:
            data[tar.getmembers()[250].offset_data - 512 + 150] ^= 0xFF
        path.write_bytes(data)


@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_a_shard_becomes_a_dataset(tmp_path, format):
    rows = [{"__key__": f"{n:03}", "cls": n, "txt": f"t{n}"} for n in range(100)]
    path = write_tar(tmp_path / "a.tar", members_of(rows), format)
    assert bt.write(path, tmp_path / "out", shards=2, key="__key__").examples == 100
    found = sorted(bt.load(tmp_path / "out").rows(), key=lambda row: row["__key__"])
    assert found == rows


def test_columns_are_chosen_and_hidden_files_left_out(tmp_path):
    members = [("./d/._a.jpg", b"x"), ("d/a.jpg", b"1"), ("d/a.JSON", b"{}"), ("__meta.txt", b"y")]
    path = write_tar(tmp_path / "a.tar", members)
    assert rows_at(path) == [{"__key__": "d/a", "jpg": b"1", "json": "{}"}]
    assert rows_at(path, columns=["json"]) == [{"json": "{}"}]
    write_tar(tmp_path / "b.tar", [("d/b.jpg", b"2")])
    with pytest.raises(bt.BeamTFRecordError, match=r"'json' is in a\.tar but not in b\.tar"):
        rows_at(str(tmp_path))
    assert [row["json"] for row in rows_at(str(tmp_path), union=True)] == ["{}", None]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["a.jpg", "b.jpg", "a.cls"], "samples whose files are not next to each other"),
        (["a.jpg", "a.jpg"], "has 'a.jpg' twice"),
        (["d/noext"], "'d/noext' in x.tar has no extension"),
    ],
)
def test_what_is_no_sample_is_refused(tmp_path, members, message):
    path = write_tar(tmp_path / "x.tar", [(name, b"\xff") for name in members])
    with pytest.raises(DataError, match=message):
        rows_at(path)


@pytest.mark.slow
def test_a_value_that_is_not_of_its_type_rejects_its_row(tmp_path):
    good = [(f"{n}.{column}", b" 7\n") for n in range(9) for column in ("cls", "txt")]
    bad = {"2.cls": b"x", "4.cls": b"9" * 30, "5.txt": b"caf\xe9", "8.cls": b""}
    bad |= {"6.cls": b"1_000", "7.cls": "\u0663".encode()}
    path = write_tar(tmp_path / "x.tar", [(name, bad.get(name, data)) for name, data in good])
    source = make_source(path)
    scans = source.all_scans()
    (unit,) = source.all_units(scans)
    batches = list(source.read(unit, source.schema(scans), batch_rows=3))
    keys = [key for batch in batches for key in batch.data.column("__key__").to_pylist()]
    assert keys == [*"013"]
    rejects = [reject for batch in batches for reject in batch.rejects]
    found = [(reject.address, reject.column, reject.value) for reject in rejects]
    assert found == [
        ("x.tar row 2", "cls", "x"),
        ("x.tar row 4", "cls", "9" * 30),
        ("x.tar row 5", "txt", "caf\\xe9"),
        ("x.tar row 6", "cls", "1_000"),
        ("x.tar row 7", "cls", "\u0663"),
        ("x.tar row 8", "cls", ""),
    ]
    advice = "correct it, or leave it out with --columns"
    assert rejects[0].message == f"column 'cls' is x in x.tar row 2, which is not int64: {advice}"
    result = bt.write(path, tmp_path / "out", max_rejects="any")
    assert (result.examples, result.rejects["rows"]) == (3, 6)
    result = bt.write(path, tmp_path / "mapped", max_rejects="any", map=lambda row: row)
    assert (result.examples, result.rejects["rows"]) == (3, 6)


def test_a_file_that_is_too_large_is_refused_unless_it_is_not_read(tmp_path, monkeypatch):
    path = write_tar(tmp_path / "x.tar", [("a.txt", b"1"), ("a.bin", bytes(2000))])
    monkeypatch.setattr(damaged_files, "MOST_BYTES", 1999)
    message = (
        r"^'a\.bin' of x\.tar has 2,000 bytes, which are read at once: write the file again in"
    )
    with pytest.raises(DataError, match=message):
        rows_at(path)
    assert rows_at(path, columns=["txt"]) == [{"txt": "1"}]


def test_a_link_is_refused(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "b.jpg"
        tar.addfile(link)
    with pytest.raises(DataError, match=r"'a\.jpg' in x\.tar is a link"):
        rows_at(str(tmp_path / "x.tar"))


def test_samples_behind_the_end_are_not_lost_in_silence(tmp_path):
    path = Path(write_tar(tmp_path / "x.tar", [("a.txt", b"1")]))
    data = path.read_bytes()
    path.write_bytes(data + bytes(2**22))
    assert len(rows_at(str(path))) == 1
    for behind in (data, b"x", bytes(2**21) + b"x"):
        path.write_bytes(data + behind)
        with pytest.raises(DataError, match=r"at byte 1,024, or two tar files follow each other"):
            rows_at(str(path))
