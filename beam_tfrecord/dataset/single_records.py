"""Reads records of a dataset by their numbers, with the indexes of its shards."""

from __future__ import annotations

import concurrent.futures
import os
import weakref
from typing import BinaryIO

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.format.manifest import Shard
from beam_tfrecord.native.values import Int64Array
from beam_tfrecord.records.shard_index import ShardIndex, index_name, ranges_of
from beam_tfrecord.storage import Entry, is_remote, open_read, read_into, status

FileState = tuple[int, int, int]

# A request to an object store takes as long as reading about this many bytes.
_REMOTE_GAP_BYTES = 2**18
_REQUESTS_AT_ONCE = 16
# More open shards would need more descriptors than many systems allow.
MAX_OPEN = 256


def file_state(path: str) -> FileState | None:
    """Return size, modification time and change time (in ns), which identify a file's content."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def check_size(path: str, nbytes: int | None) -> Entry:
    """Return a shard's entry in its directory, after a check that it has `nbytes` bytes."""
    entry = status(path)
    if entry is None:
        raise DataError(f"{path!r} is missing: restore it or write the dataset again")
    if nbytes is not None:
        check_count(path, "bytes", entry.bytes, nbytes)
    return entry


def check_count(path: str, what: str, seen: int, known: int) -> None:
    """Raise `DataError` if a shard has `seen` examples or bytes, and not as many as `known`."""
    if seen != known:
        raise DataError(
            f"{path!r} has {seen:,} {what} but the manifest says {known:,}: restore the file, "
            "write the dataset again, or save its intact records with repair"
        )


class OpenShard:
    """A shard that is open to read single records."""

    def __init__(
        self, path: str, shard: Shard, index_xxh64: str | None, checked: dict[str, FileState | None]
    ) -> None:
        self.path = path
        self._shard = shard
        self._index_xxh64 = index_xxh64
        self._checked = checked
        directory = path.removesuffix(shard.path)
        self._index_path = os.path.join(directory, index_name(shard.path))
        self._cure = f"make indexes again with: beam-tfrecord index {directory}"
        self._index = self._load_index()
        self._version = check_size(path, shard.bytes).version
        self._file: BinaryIO | None = None
        if not is_remote(path):
            self._file = open_read(path)
            # Closed only when no thread reads any more.
            weakref.finalize(self, self._file.close)

    def _load_index(self) -> ShardIndex:
        state = file_state(self._index_path)
        try:
            index = ShardIndex.load(self._index_path)
        except FileNotFoundError:
            raise UsageError(
                f"{self.path!r} has no index, so its records can only be read in their order: "
                + self._cure.replace(" again", "")
            ) from None
        except DataError as error:
            raise DataError(f"{error}: {self._cure}") from error
        shard = self._shard
        if (index.records, index.bytes, index.xxh64) != (shard.examples, shard.bytes, shard.xxh64):
            raise DataError(f"the index of {self.path!r} is that of another file: {self._cure}")
        is_checked = state is not None and self._checked.get(self._index_path) == state
        if not is_checked and self._index_xxh64 not in (None, index.file_xxh64()):
            raise DataError(
                f"{self._index_path!r} is damaged, since its hash is not that in the manifest: "
                + self._cure
            )
        self._checked[self._index_path] = self._index_state = state
        return index

    def records(self, numbers: Int64Array) -> native.Picked:
        """Return framed records; see `native.Picked`."""
        try:
            picked = self._read_local(numbers) if self._file else self._read_remote(numbers)
        except ValueError as error:
            raise DataError(f"{self._index_path!r} is damaged {error}: {self._cure}") from error
        if picked.fault is not None:
            record, at, reason = picked.fault
            raise DataError(
                f"{self.path!r} is damaged at byte {at:,} (record {record:,}): {reason}: restore "
                "the file or write the dataset again"
            )
        return picked

    def _read_local(self, numbers: Int64Array) -> native.Picked:
        assert self._file is not None
        # A file that became shorter must not be read where it was mapped into memory.
        if file_state(self._index_path) != self._index_state:
            self._index = self._load_index()
        index = self._index
        return native.read_records(
            self._file.fileno(), index.entries, index.records, index.bytes, numbers
        )

    def _read_remote(self, numbers: Int64Array) -> native.Picked:
        index = self._index
        blocks = native.find_blocks(index.entries, index.records, index.bytes, numbers)
        starts, sizes, positions = ranges_of(blocks, _REMOTE_GAP_BYTES)
        ends = np.cumsum(sizes)
        data = np.empty(int(ends[-1]), np.uint8)

        def read(number: int) -> None:
            begin, end = int(ends[number] - sizes[number]), int(ends[number])
            read_into(self.path, int(starts[number]), data[begin:end].data, version=self._version)

        with concurrent.futures.ThreadPoolExecutor(_REQUESTS_AT_ONCE, "records") as pool:
            list(pool.map(read, range(len(starts))))
        return native.pick_records(data, positions, blocks, numbers)
