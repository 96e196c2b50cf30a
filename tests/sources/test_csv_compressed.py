"""Compressed CSV files: every stream of a file is read to its end, or the file is refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.text_files import open_text


def by_arrow(codec):
    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()

    return compress


COMPRESSORS = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": by_arrow("zstd"),
    ".lz4": by_arrow("lz4"),
}
SUFFIXES = pytest.mark.parametrize("suffix", COMPRESSORS)
# The others are often written without a checksum of what they hold.
CHECKED = pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
ONE, TWO = (b"".join(b"%d,%d\n" % (row, part) for row in range(60)) for part in (1, 2))


def read(path: Path, data: bytes) -> bytes:
    """Return what a compressed file holds."""
    path.write_bytes(data)
    text = b""
    with open_text(InputFile(str(path), path.name, len(data)), "utf-8", 0, len(data)) as stream:
        while piece := stream.read(100):
            text += piece
    return text


@SUFFIXES
def test_all_streams_of_a_file_are_read(tmp_path, suffix):
    compress = COMPRESSORS[suffix]
    path = tmp_path / f"x.csv{suffix}"
    assert read(path, compress(ONE) + compress(TWO)) == ONE + TWO
    assert read(path, compress(b"")) == b""


@SUFFIXES
@pytest.mark.parametrize(
    "held",
    [(b"", ONE), (ONE, b""), (ONE, b"", b"", b"", TWO), (b"", ONE, b"", TWO, b""), (b"",) * 5_000],
    ids=lambda held: "".join("-" if part else "0" for part in held[:9]),
)
def test_streams_may_hold_nothing(tmp_path, suffix, held):
    stream = {part: COMPRESSORS[suffix](part) for part in set(held)}
    compressed = b"".join(stream[part] for part in held)
    assert read(tmp_path / f"x.csv{suffix}", compressed) == b"".join(held)


@SUFFIXES
def test_a_file_that_is_cut_is_refused(tmp_path, suffix):
    compress = COMPRESSORS[suffix]
    first, whole = compress(ONE), compress(ONE) + compress(TWO)
    for length in range(len(whole)):
        if length == len(first):
            # Nothing tells such a file from one that was never longer.
            assert read(tmp_path / f"x.csv{suffix}", whole[:length]) == ONE
            continue
        with pytest.raises(
            DataError, match=rf"cannot read x.csv{suffix} \(.*\): check that the file"
        ):
            read(tmp_path / f"x.csv{suffix}", whole[:length])


@CHECKED
def test_one_damaged_byte_loses_nothing_silently(tmp_path, suffix):
    compress = COMPRESSORS[suffix]
    whole = compress(ONE) + compress(b"") + compress(TWO)
    refused = 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        try:
            # A flag or a time of a header may be another one.
            assert read(tmp_path / f"x.csv{suffix}", bytes(damaged)) == ONE + TWO, at
        except DataError:
            refused += 1
    assert refused > len(whole) * 0.8


@SUFFIXES
@pytest.mark.parametrize("behind", [b"x", b"\x5d\0\0\0\0", b"garbage behind the end", ONE])
def test_what_follows_the_last_stream_is_refused(tmp_path, suffix, behind):
    with pytest.raises(
        DataError, match=rf"cannot read x.csv{suffix} \(.*\): check that the file is"
    ):
        read(tmp_path / f"x.csv{suffix}", COMPRESSORS[suffix](ONE) + behind)


@pytest.mark.parametrize("zeros", [1, 4, 2**16])
def test_padding_of_xz_streams_is_refused(tmp_path, zeros):
    one, padding = lzma.compress(ONE), bytes(zeros)
    for padded in (one + padding, one + padding + one, padding + one):
        with pytest.raises(DataError, match=r"cannot read x\.csv\.xz"):
            read(tmp_path / "x.csv.xz", padded)


def test_an_xz_file_with_other_checks_is_read(tmp_path):
    for check in (lzma.CHECK_NONE, lzma.CHECK_CRC32, lzma.CHECK_SHA256):
        data = lzma.compress(ONE, check=check) + lzma.compress(TWO)
        assert read(tmp_path / "x.csv.xz", data) == ONE + TWO
    alone = lzma.compress(ONE, format=lzma.FORMAT_ALONE)
    assert read(tmp_path / "x.csv.xz", alone) == ONE


@SUFFIXES
@pytest.mark.parametrize("others", [0, 1])
def test_a_compressed_file_without_bytes_is_refused(tmp_path, suffix, others):
    source = tmp_path / "in"
    source.mkdir()
    for number in range(others):
        (source / f"{number}.csv").write_bytes(b"a,b\n" + ONE)
    (source / f"x.csv{suffix}").touch()
    said = rf"^cannot read x.csv{suffix} \(it has no bytes, so it is not valid"
    with pytest.raises(DataError, match=said if others else f"x.csv{suffix}' is empty: check"):
        bt.write(source, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("encoding", ["base64", "rot13", "undefined", "idna", "none", "a\0b", ""])
def test_an_encoding_that_is_not_of_text_is_refused(tmp_path, encoding):
    (tmp_path / "x.csv").write_bytes(b"a,b\n" + ONE)
    with pytest.raises(
        bt.BeamTFRecordError, match="is not known: pass a name such as utf-8, latin"
    ):
        bt.write(tmp_path / "x.csv", tmp_path / "out", source_options={"encoding": encoding})
