"""Writes and loads the index of a shard, by which one record is read without those before it.

``docs/format.md`` describes the file. The shard is divided into cells of 1,024 bytes. The index has
the number and the position of the first record that begins in each cell, and a hash of the payload
checksums of all records that begin there. So it has at most 2.4 % of the bytes of the shard, and a
reader walks over at most one cell to find a record, and notices the records of another shard.
"""

from __future__ import annotations

import dataclasses
import os
import struct

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array, UInt64Array
from beam_tfrecord.storage import WholeFile, is_remote, read_bytes

# Spark ignores directories that begin with an underscore. Patterns such as `**/train-*` and
# `**/*.tfrecord*` do not match the names of the files.
INDEX_DIRECTORY = "_index"
_MAGIC = b"BTFRIDX1"
# Number of records, size and XXH64 of the record stream, magic.
_TRAILER = struct.Struct("<QQQ8s")
_ENTRY_BYTES = 24


def index_name(shard: str) -> str:
    """Return the path of the index of a shard, relative to the same directory."""
    directory, name = os.path.split(shard)
    return os.path.join(directory, INDEX_DIRECTORY, f"idx-{name.removesuffix('.tfrecord')}")


class IndexWriter:
    """Writes the index of one shard while the shard is written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = WholeFile(path)
        self._hash = native.XXH64(0)
        self._records = self._bytes = self._size = 0
        self._state = np.zeros(4, np.uint64)

    def add(self, data: UInt8Array, starts: Int64Array) -> None:
        """Add records that follow each other in `data`; each begins at one of `starts`."""
        entries = native.index_records(data, starts, self._records, self._bytes, self._state)
        if len(entries):
            self._write(entries)
        self._records += len(starts)
        self._bytes += len(data)

    def _write(self, data: object) -> None:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._hash.update(view)
        self._file.write(view)
        self._size += len(view)

    def close(self, xxh64: str) -> tuple[int, str]:
        """Finish the index of a shard whose record stream has the hash `xxh64`, 16 hex digits."""
        is_pending, *entry = self._state
        if is_pending:
            self._write(np.array(entry))
        self._write(_TRAILER.pack(self._records, self._bytes, int(xxh64, 16), _MAGIC))
        self._file.close()
        return self._size, f"{self._hash.intdigest():016x}"

    def abort(self) -> None:
        """Remove the unfinished file."""
        self._file.abort()


@dataclasses.dataclass(frozen=True)
class ShardIndex:
    """The index of a shard."""

    entries: UInt64Array
    records: int
    bytes: int
    xxh64: str

    @classmethod
    def load(cls, path: str) -> ShardIndex:
        """Open an index: a local one is mapped into memory, another one is read."""
        if is_remote(path):
            data = np.frombuffer(read_bytes(path), np.uint8)
        elif os.path.getsize(path):
            data = np.asarray(np.memmap(path, np.uint8, "r"))
        else:
            data = np.empty(0, np.uint8)
        entries, trailer = data[: -_TRAILER.size], data[-_TRAILER.size :].tobytes()
        if len(trailer) < _TRAILER.size or not trailer.endswith(_MAGIC):
            raise DataError(f"{path!r} is not the index of a shard, or is cut off")
        if len(entries) % _ENTRY_BYTES:
            raise DataError(f"{path!r} is damaged: its size is impossible")
        records, nbytes, digest, _ = _TRAILER.unpack(trailer)
        return cls(entries.view("<u8").reshape(-1, 3), records, nbytes, f"{digest:016x}")

    def file_xxh64(self) -> str:
        """Return the hash of the file, 16 hex digits; all of it is read."""
        digest = native.XXH64(0)
        digest.update(self.entries)
        digest.update(_TRAILER.pack(self.records, self.bytes, int(self.xxh64, 16), _MAGIC))
        return f"{digest.intdigest():016x}"


def ranges_of(blocks: Int64Array, max_gap: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the ranges of a shard to read for some blocks, which are sorted by position."""
    begins, ends = blocks[:, 2], blocks[:, 3]
    is_new = np.empty(len(blocks), np.bool_)
    is_new[0] = True
    np.greater(begins[1:] - ends[:-1], max_gap, out=is_new[1:])
    first = np.flatnonzero(is_new)
    starts = begins[first]
    sizes = ends[np.append(first[1:], len(blocks)) - 1] - starts
    # Shift from a position in the shard to one in the ranges, for each range.
    shifts = np.cumsum(sizes) - sizes - starts
    return starts, sizes, begins + shifts[np.cumsum(is_new) - 1]
