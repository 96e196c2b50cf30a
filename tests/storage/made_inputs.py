"""The same rows as a file of each format that is read from remote filesystems."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from pathlib import Path

from beam_tfrecord.testing import some_rows
from tests.sources.behaviour import CASES

ROWS = 200


def _tar(_: Path) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for row in range(ROWS):
            for suffix, data in (("txt", f"é{row}".encode()), ("cls", str(row % 7).encode())):
                member = tarfile.TarInfo(f"{row:04d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return sink.getvalue()


def _case(kind):
    def made(path: Path) -> bytes:
        CASES[kind].write(path, some_rows(ROWS))
        return path.read_bytes()

    return made


def _compressed(kind, compress):
    return lambda path: compress(_case(kind)(path))


# By suffix: what makes the bytes of a file, given a path that may be overwritten.
FORMATS = {
    ".csv": _case("csv"),
    ".csv.gz": _compressed("csv", gzip.compress),
    ".jsonl": _case("json"),
    ".jsonl.bz2": _compressed("json", bz2.compress),
    ".jsonl.xz": _compressed("json", lzma.compress),
    ".parquet": _case("parquet"),
    ".arrow": _case("arrow"),
    ".arrows": _case("arrow stream"),
    ".orc": _case("orc"),
    ".avro": _case("avro"),
    ".xlsx": _case("excel"),
    ".tar": _tar,
    ".tfrecord": _case("tfrecord"),
    ".tfrecord.gz": _compressed("tfrecord", gzip.compress),
}


def made(suffix: str, directory: Path) -> bytes:
    """Return the bytes of a file; `directory` gets a file, which is there only for the time."""
    path = directory / f"made{suffix}"
    data = FORMATS[suffix](path)
    path.unlink(missing_ok=True)
    return data
