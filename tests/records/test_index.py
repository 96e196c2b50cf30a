"""Indexes of shards, against records that plain Python finds, and damaged in all ways."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from beam_tfrecord.records.shard_index import IndexWriter, ShardIndex, ranges_of
from tests.helpers.records import framed

SIZES = st.lists(st.one_of(st.integers(0, 40), st.integers(900, 1100), st.just(5000)), max_size=200)


def made(sizes: list[int], path: Path, batch: int = 7) -> tuple[bytes, list[bytes]]:
    """Write the index of records of some sizes; return the shard and each framed record."""
    records = [framed(bytes([number % 256]) * size) for number, size in enumerate(sizes)]
    shard = b"".join(records)
    writer = IndexWriter(str(path))
    for first in range(0, len(records), batch):
        some = records[first : first + batch]
        lengths = np.array([len(one) for one in some], np.int64)
        writer.add(np.frombuffer(b"".join(some), np.uint8), np.cumsum(lengths) - lengths)
    writer.close(xxhash.xxh64_hexdigest(shard))
    return shard, records


def expected(records):
    """Return the index of records, by the words of docs/format.md alone."""
    at, cells = 0, {}
    for number, record in enumerate(records):
        entry = cells.setdefault(at // 1024, [number, at, 0])
        crc = int.from_bytes(record[-4:], "little")
        entry[2] = (entry[2] * 0x9E3779B97F4A7C15 + crc) % 2**64
        at += len(record)
    entries = b"".join(struct.pack("<QQQ", *entry) for entry in cells.values())
    digest = xxhash.xxh64_intdigest(b"".join(records))
    return entries + struct.pack("<QQQ", len(records), at, digest) + b"BTFRIDX1"


@given(SIZES, st.integers(1, 50))
def test_the_file_is_as_documented(tmp_path_factory, sizes, batch):
    path = tmp_path_factory.mktemp("index") / "idx"
    shard, records = made(sizes, path, batch)
    assert path.read_bytes() == expected(records)
    index = ShardIndex.load(str(path))
    assert (index.records, index.bytes) == (len(sizes), len(shard))


@given(SIZES.filter(len), st.data())
def test_any_records_are_read_from_a_file_and_from_memory(tmp_path_factory, sizes, data):
    directory = tmp_path_factory.mktemp("index")
    shard, records = made(sizes, directory / "idx")
    (directory / "shard").write_bytes(shard)
    numbers = st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=50)
    wanted = np.sort(np.array(data.draw(numbers), np.int64))
    index = ShardIndex.load(str(directory / "idx"))
    of_index = (index.entries, index.records, index.bytes)
    with open(directory / "shard", "rb") as file:
        read = native.read_records(file.fileno(), *of_index, wanted)
    blocks = native.find_blocks(*of_index, wanted)
    starts, lengths, positions = ranges_of(blocks, data.draw(st.integers(0, 5000)))
    part = b"".join(shard[a : a + n] for a, n in zip(starts, lengths, strict=True))
    assert len(part) <= len(shard)
    picked = native.pick_records(part, positions, blocks, wanted)
    for found in (read, picked):
        assert found.fault is None
        ends = np.append(found.starts[1:], len(found.data))
        got = [bytes(found.data[a:b]) for a, b in zip(found.starts, ends, strict=True)]
        assert got == [records[number] for number in wanted]


@pytest.mark.parametrize("size", [0, 16, 100, 1000, 100_000])
def test_an_index_has_at_most_a_fortieth_of_the_bytes(size, tmp_path):
    shard, _ = made([size] * 5000 if size < 5000 else [size] * 50, tmp_path / "idx")
    assert (tmp_path / "idx").stat().st_size <= len(shard) / 40 + 56
