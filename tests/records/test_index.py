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
from beam_tfrecord.errors import DataError
from beam_tfrecord.records.index import IndexWriter, ShardIndex, index_name, ranges_of
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


@pytest.mark.slow
@given(st.data())
def test_damage_never_gives_another_record(tmp_path_factory, data):
    directory = tmp_path_factory.mktemp("index")
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=30, max_size=120))
    shard, records = made(sizes, directory / "idx")
    files = {"idx": bytearray((directory / "idx").read_bytes()), "shard": bytearray(shard)}
    name = data.draw(st.sampled_from(sorted(files)))
    place = data.draw(st.integers(0, len(files[name]) - 1))
    if data.draw(st.booleans()):
        files[name][place] ^= 1 << data.draw(st.integers(0, 7))
    elif data.draw(st.booleans()):
        del files[name][place:]
    else:
        del files[name][place : place + data.draw(st.integers(1, 64))]
    for file, content in files.items():
        (directory / file).write_bytes(content)
    try:
        index = ShardIndex.load(str(directory / "idx"))
    except DataError:
        return
    # Opening a shard compares these with the manifest.
    if (index.records, index.bytes) != (len(records), len(shard)):
        return
    with open(directory / "shard", "rb") as file:
        for number, record in enumerate(records):
            wanted = np.array([number], np.int64)
            try:
                found = native.read_records(
                    file.fileno(), index.entries, index.records, index.bytes, wanted
                )
            except ValueError as error:
                message = str(error)
            else:
                message = ""
            if message:
                assert message.startswith("at byte ")
                continue
            assert found.fault is not None or bytes(found.data) == record


def test_faults_say_where(tmp_path):
    shard, _ = made([100] * 50, tmp_path / "idx")
    index = ShardIndex.load(str(tmp_path / "idx"))
    of_index = (index.entries, index.records, index.bytes)

    def fault(content: bytes, record: int) -> tuple[int, int, str] | None:
        (tmp_path / "shard").write_bytes(content)
        with open(tmp_path / "shard", "rb") as file:
            wanted = np.array([record], np.int64)
            return native.read_records(file.fileno(), *of_index, wanted).fault

    broken = bytearray(shard)
    broken[116 * 11 + 20] ^= 1
    assert fault(bytes(broken), 11) == (11, 1276, "the checksum of the payload does not match")
    assert fault(bytes(broken), 12) is None
    broken[116 * 11] ^= 1
    assert fault(bytes(broken), 12) == (11, 1276, "the checksum of the length does not match")
    assert fault(shard[:-1], 49) == (45, 5799, "the file ends within the records")
    # Records of equal sizes in another order.
    other = (0, 0, "the records do not fit the index")
    assert fault(shard[116:] + shard[:116], 3) == other
    broken = bytearray(shard)
    broken[116 * 11 - 1] ^= 1
    assert fault(bytes(broken), 9) == (10, 1160, "the checksum of the payload does not match")


def test_an_index_is_small_and_has_its_own_name():
    assert index_name("train-00000-of-00004.tfrecord") == "_index/idx-train-00000-of-00004"
    assert index_name("part-00000-of-00001") == "_index/idx-part-00000-of-00001"


@pytest.mark.parametrize("size", [0, 16, 100, 1000, 100_000])
def test_an_index_has_at_most_a_fortieth_of_the_bytes(size, tmp_path):
    shard, _ = made([size] * 5000 if size < 5000 else [size] * 50, tmp_path / "idx")
    assert (tmp_path / "idx").stat().st_size <= len(shard) / 40 + 56


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 31, b"\0" * 24 + b"BTFRIDX2", b"y" * 100])
def test_other_files_are_not_indexes(content, tmp_path):
    (tmp_path / "idx").write_bytes(content)
    with pytest.raises(DataError, match="is not the index of a shard, or is cut off"):
        ShardIndex.load(str(tmp_path / "idx"))
    (tmp_path / "idx").write_bytes(b"x" + b"\0" * 24 + b"BTFRIDX1")
    with pytest.raises(DataError, match="its size is impossible"):
        ShardIndex.load(str(tmp_path / "idx"))
