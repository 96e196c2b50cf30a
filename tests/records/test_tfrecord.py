"""Record files: against TensorFlow's reader and writer, and every way a file can be damaged."""

from __future__ import annotations

import gzip
import os

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.records.tfrecord import GzipCompressor, ShardStream, read_blocks
from tests.helpers.records import framed

RECORDS = [b"", b"abc", bytes(range(256)) * 500, b"\x00"]
STREAM = b"".join(framed(record) for record in RECORDS)


def payloads_of(path, **options):
    """Return the payloads of a file; `options` are those of `read_blocks`."""
    blocks = read_blocks(path, **options)
    return [payload for block in blocks for payload in block.payloads()]


def write_shard_of(path, records, *, compression=""):
    """Write a file of records as datasets have them."""
    shard = ShardStream(str(path), compression)
    for record in records:
        shard.write(framed(record))
    shard.close()


@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_tensorflow_reads_our_files_and_we_read_its(tmp_path, compression):
    import tensorflow as tf

    write_shard_of(tmp_path / "ours", RECORDS, compression=compression)
    read = tf.data.TFRecordDataset(str(tmp_path / "ours"), compression_type=compression)
    assert [record.numpy() for record in read] == RECORDS
    with tf.io.TFRecordWriter(str(tmp_path / "tf"), options=compression) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(payloads_of(tmp_path / "tf")) == RECORDS


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_shard_tells_size_and_hash_of_its_record_stream(tmp_path, compression):
    shard = ShardStream(str(tmp_path / "shard"), compression)
    shard.write(STREAM[:7])
    shard.write(memoryview(STREAM)[7:])
    assert os.listdir(tmp_path) != ["shard"]
    assert shard.close() == (len(STREAM), f"{xxhash.xxh64_intdigest(STREAM):016x}")
    # Abort after close removes nothing.
    shard.abort()
    stored = (tmp_path / "shard").read_bytes()
    assert (gzip.decompress(stored) if compression else stored) == STREAM


def test_gzip_has_no_name_and_no_time_and_ignores_how_data_came():
    data = os.urandom(1_500_000) + bytes(2_000_000)

    def compressed(piece_bytes):
        codec = GzipCompressor()
        out = b""
        for start in range(0, len(data), piece_bytes):
            out += b"".join(codec.compress(data[start : start + piece_bytes]))
        return out + codec.flush()

    whole = compressed(len(data))
    assert whole[:8] == bytes.fromhex("1f8b080000000000")
    assert gzip.decompress(whole) == data
    assert compressed(70_001) == whole
    assert compressed(1_048_577) == whole


@given(records=st.lists(st.binary(max_size=300), max_size=20), block_bytes=st.integers(1, 400))
def test_blocks_of_any_size_hold_every_record_once(tmp_path_factory, records, block_bytes):
    path = tmp_path_factory.mktemp("blocks") / "file"
    stream = b"".join(framed(record) for record in records)
    path.write_bytes(stream)
    blocks = list(read_blocks(path, block_bytes=block_bytes))
    assert [payload for block in blocks for payload in block.payloads()] == records
    assert b"".join(block.data.tobytes() for block in blocks) == stream
    passed = 0
    for block in blocks:
        assert block.first_record == passed
        assert stream[block.position :].startswith(block.data.tobytes())
        passed += len(block.starts)


def test_several_gzip_members_are_one_file(tmp_path):
    half = len(STREAM) // 2
    (tmp_path / "file").write_bytes(gzip.compress(STREAM[:half]) + gzip.compress(STREAM[half:]))
    assert list(payloads_of(tmp_path / "file")) == RECORDS


def test_a_plain_file_may_begin_like_gzip(tmp_path):
    # A payload of 0x088b1f bytes has the magic number of gzip as its length.
    record = bytes(0x088B1F)
    (tmp_path / "file").write_bytes(framed(record))
    assert list(payloads_of(tmp_path / "file")) == [record]


def _damaged(at):
    data = bytearray(STREAM)
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (_damaged(28), r"at byte 16 \(record 1\): the checksum of the payload does not match"),
        (_damaged(16), r"at byte 16 \(record 1\): the checksum of the length does not match"),
        (STREAM[:-1], r"record 3\): the file ends within this record, after 16 bytes of it"),
        (STREAM[:21], r"at byte 16 \(record 1\): the file ends within this record, after 5 bytes"),
        # A time in the bytes would be in the names of the tests, and differ between workers.
        (gzip.compress(STREAM, mtime=0)[:-4], r"the gzip stream is damaged: Compressed file ended"),
        (
            gzip.compress(STREAM, mtime=0)[:-8] + bytes(8),
            r"the gzip stream is damaged: CRC check failed",
        ),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 60, r"record 0\): the gzip stream is damaged"),
    ],
)
@pytest.mark.parametrize("block_bytes", [20, 10**6])
def test_damage_is_named_by_file_byte_and_record(tmp_path, data, message, block_bytes):
    (tmp_path / "shard").write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        list(read_blocks(tmp_path / "shard", block_bytes=block_bytes))
    assert str(caught.value).startswith(f"{str(tmp_path / 'shard')!r} is damaged at byte ")


def test_reading_goes_on_after_a_damaged_payload_but_not_after_a_damaged_length(tmp_path):
    def read(data: bytes) -> tuple[list[bytes], list[tuple[int, int]]]:
        (tmp_path / "shard").write_bytes(data)
        faults = []
        blocks = read_blocks(
            tmp_path / "shard", on_fault=lambda fault: faults.append((fault.position, fault.record))
        )
        return [payload for block in blocks for payload in block.payloads()], faults

    assert read(_damaged(28)) == ([RECORDS[0], *RECORDS[2:]], [(16, 1)])
    assert read(_damaged(16)) == (RECORDS[:1], [(16, 1)])
    twice = bytearray(_damaged(28))
    twice[60] ^= 1
    assert read(bytes(twice)) == ([RECORDS[0], RECORDS[3]], [(16, 1), (35, 2)])


def test_a_length_that_no_file_could_have_is_a_fault(tmp_path):
    length = (2**64 - 8).to_bytes(8, "little")
    header = length + framed(length)[-4:]
    (tmp_path / "shard").write_bytes(header + bytes(100))
    with pytest.raises(DataError, match="record 0"):
        list(payloads_of(tmp_path / "shard"))


def test_a_missing_file_and_an_unknown_compression_are_told(tmp_path):
    with pytest.raises(DataError, match="nowhere' is missing"):
        list(payloads_of(tmp_path / "nowhere"))
    (tmp_path / "file").write_bytes(b"")
    assert list(payloads_of(tmp_path / "file")) == []
    with pytest.raises(UsageError, match="compression 'ZLIB' is not known"):
        list(payloads_of(tmp_path / "file", compression="ZLIB"))
