"""Reads TFRecord shards of a dataset, and stops if the files are replaced meanwhile.

Single records are read by their numbers, with the indexes of shards (`OpenShard`).

This package removes the old manifest before it replaces the first shard, and writes the new
manifest after the last shard. So a shard belongs to the loaded manifest if that manifest is still
there when the shard is open. Other programs copy files in any order. Therefore the size and times
of each local shard are recorded when the dataset is opened, and compared after every block. Of each
object in an object store, a single version is read.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.manifest_parts import Shard
from beam_tfrecord.native.kernel_types import Int64Array
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.shard_index import ShardIndex, index_name, ranges_of
from beam_tfrecord.records.tfrecord import RecordBlock, read_blocks
from beam_tfrecord.storage import Entry, exists, is_remote, open_read, read_into, read_small, status


@dataclasses.dataclass
class OpenedManifest:
    """The manifest file of a dataset, as it was when the dataset was opened."""

    path: str
    entry: Entry | None
    xxh64: str

    @classmethod
    def of(cls, path: str) -> OpenedManifest:
        """Record the manifest at a path; call this before the manifest is parsed."""
        return cls(path, status(path), _manifest_hash(path))

    def check(self, manifest: Manifest | None = None) -> None:
        """Raise `DataError` if the manifest was replaced, unless it names the shards of `manifest`.

        Rows may have been appended, which leaves the shards of earlier generations as they are.
        """
        if (entry := status(self.path)) == self.entry:
            return
        # A manifest that was touched or copied has another time, but the same text.
        if (xxh64 := _manifest_hash(self.path)) != self.xxh64 and not self._has_shards(manifest):
            raise DataError(
                f"the dataset in {os.path.dirname(self.path)!r} was replaced or removed after it "
                "was opened: load it again"
            )
        self.entry, self.xxh64 = entry, xxh64

    def _has_shards(self, manifest: Manifest | None) -> bool:
        shards = () if manifest is None else manifest.shards
        try:
            return bool(shards) and set(shards) <= set(Manifest.load(self.path).shards)
        except (BeamTFRecordError, OSError):
            return False


def _manifest_hash(path: str) -> str:
    try:
        return data_hash(read_small(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


@contextlib.contextmanager
def explained_by(*checks: Callable[[], None]) -> Iterator[None]:
    """Run `checks` if the block raises: that a file was replaced explains an error of reading."""
    try:
        yield
    except (BeamTFRecordError, OSError):
        for check in checks:
            check()
        raise


class IndexedShards:
    """Reads single rows of several shards; a subclass reads the records of one with `pick`."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._begin()

    def _begin(self) -> None:
        # Making a decoder takes as long as decoding a few hundred rows.
        self._decoder = functools.lru_cache(1)(self._make_decoder)

    def _make_decoder(self, names: tuple[str, ...]) -> Decoder:
        return Decoder(self.schema, columns=names)

    def __getstate__(self) -> dict[str, Any]:
        # Open files stay in their process.
        own = {"_open", "_decoder"}
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def pick(self, shard: Shard, numbers: Int64Array) -> native.Picked:
        """Return single records of a shard, with ascending numbers."""
        raise NotImplementedError

    def records(self, shards: Sequence[Shard], numbers: Int64Array) -> RecordBlock:
        """Return single records of shards, in the order of `numbers`."""
        order = np.argsort(numbers, kind="stable")
        sorted_numbers = numbers[order]
        ends = np.cumsum([shard.examples for shard in shards])
        edges = np.searchsorted(sorted_numbers, ends).tolist()
        parts, starts, nbytes = [], np.empty(len(numbers), np.int64), 0
        for shard, end, first, last in zip(shards, ends.tolist(), [0, *edges], edges, strict=False):
            if first == last:
                continue
            picked = self.pick(shard, sorted_numbers[first:last] - (end - shard.examples))
            parts.append(picked.data)
            starts[order[first:last]] = picked.starts + nbytes
            nbytes += len(picked.data)
        return RecordBlock(np.concatenate(parts), starts, 0, 0)

    def rows(
        self, shards: Sequence[Shard], numbers: Int64Array, names: Sequence[str]
    ) -> pa.RecordBatch:
        """Return single rows of shards with the columns `names`; see `records`."""
        return self.decoded(self.records(shards, numbers), names)

    def decoded(self, block: RecordBlock, names: Sequence[str]) -> pa.RecordBatch:
        """Return the rows of records with the columns `names`."""
        decoder = self._decoder(tuple(names))
        batch = decoder.decode(block.data, block.starts)
        _check_present(batch, decoder.arrow_schema)
        return batch


class RecordFiles(IndexedShards):
    """A reader of the TFRecord shards of a written dataset."""

    def __init__(self, directory: str, manifest: Manifest, opened: OpenedManifest) -> None:
        self.opened = opened
        self._directory = directory
        self._manifest = manifest
        # Remote shards are not compared: a single version of each is read, and each comparison
        # would cost a request.
        local = () if is_remote(directory) else manifest.shards
        self._hashes = {self.path(shard): shard.xxh64 for shard in local}
        self._states = {path: file_state(path) for path in self._hashes}
        self._checked: dict[str, FileState | None] = {}
        super().__init__(manifest.schema)

    def _begin(self) -> None:
        super()._begin()
        self._open = functools.lru_cache(MAX_OPEN)(self._open_shard)

    def _open_shard(self, shard: Shard) -> OpenShard:
        path, digest = self.path(shard), self._manifest.sidecars.get(index_name(shard.path))
        with self._explained(path):
            opened = OpenShard(path, shard, digest, self._checked)
            self.opened.check(self._manifest)
        return opened

    def path(self, shard: Shard) -> str:
        """Return the absolute path of a shard."""
        return os.path.join(self._directory, shard.path)

    def check(self, shards: Sequence[Shard]) -> None:
        """Check that every shard exists and, if it is not compressed, has the right size."""
        for shard in shards:
            path = self.path(shard)
            with self._explained(path):
                check_size(path, None if self._manifest.compression else shard.bytes)

    def _explained(self, path: str) -> contextlib.AbstractContextManager[None]:
        opened = functools.partial(self.opened.check, self._manifest)
        return explained_by(opened, functools.partial(self.check_unchanged, path))

    def check_unchanged(self, path: str) -> None:
        """Raise `DataError` if a local shard is no longer the file that was opened.

        Call this after each read. It ignores a missing shard, since reading that one raises an
        error.
        """
        state = file_state(path)
        if state is None or state == self._states.get(path, state):
            return
        # A shard that was touched, linked or moved has other times, but the same records.
        if self._stream_hash(path) != self._hashes[path] or file_state(path) != state:
            raise DataError(
                f"{path!r} was changed or replaced after it was opened: check the dataset with "
                "verify, and load it again"
            )
        self._states[path] = state

    def _stream_hash(self, path: str) -> str:
        digest = native.XXH64(0)
        try:
            for block in read_blocks(path, compression=self._manifest.compression, is_once=True):
                digest.update(block.data)
        except (DataError, OSError):
            return ""
        return f"{digest.intdigest():016x}"

    def blocks(self, shards: Sequence[Shard]) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records of shards as framed bytes; check every CRC, count and size."""
        for shard in shards:
            path = self.path(shard)
            examples = nbytes = 0
            with self._explained(path):
                for block in read_blocks(path, compression=self._manifest.compression):
                    if not nbytes:
                        # Checked only now that the file is open: a file that replaces it later is
                        # not read.
                        self.opened.check(self._manifest)
                    # Checked after the block was read, so that the check covers its bytes.
                    self.check_unchanged(path)
                    examples += len(block.starts)
                    nbytes += len(block.data)
                    yield shard, block
                check_count(path, "examples", examples, shard.examples)
                check_count(path, "bytes", nbytes, shard.bytes)

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of shards as batches of the columns `names`."""
        decoder = self._decoder(tuple(names))
        for shard, block in self.blocks(shards):
            try:
                batch = decoder.decode(block.data, block.starts)
                _check_present(batch, decoder.arrow_schema)
            except DataError as error:
                raise DataError(
                    f"{self.path(shard)!r} does not fit the schema, in the block from record "
                    f"{block.first_record} on ({error}): run verify to find every such record"
                ) from error
            yield batch

    def is_indexed(self, shards: Sequence[Shard]) -> bool:
        """Return whether single records of the shards can be read."""
        if self._manifest.compression:
            return False
        listed_names = self._manifest.sidecars
        # Indexes that were made later are not in the manifest.
        return all(
            (name := index_name(shard.path)) in listed_names
            or exists(os.path.join(self._directory, name))
            for shard in shards
        )

    def pick(self, shard: Shard, numbers: Int64Array) -> native.Picked:
        """Return single records of a shard, with ascending numbers."""
        if self._manifest.compression:
            raise UsageError(
                "rows of compressed shards can only be read one after the other: write the dataset "
                "without compression to read single rows"
            )
        opened = self._open(shard)
        with self._explained(opened.path):
            picked = opened.records(numbers)
            self.check_unchanged(opened.path)
        return picked

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types that the columns `names` have in `batches`."""
        return Decoder(self._manifest.schema, columns=names).arrow_schema


def _check_present(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    for field, seen in zip(schema, batch.schema, strict=True):
        if seen.nullable and not field.nullable:
            raise DataError(f"a value of column {field.name!r} is missing")


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
