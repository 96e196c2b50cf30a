"""Reads the rows of a dataset from its shards, and stops if the files are replaced meanwhile.

This package removes the old manifest before it replaces the first shard, and writes the new
manifest after the last shard. So a shard belongs to the loaded manifest if that manifest is still
there when the shard is open. Other programs copy files in any order. Therefore the size and times
of each local shard are recorded when the dataset is opened, and compared after every block. Of each
object in an object store, a single version is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.dataset.values import python_rows, rebatch
from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.hashes import data_hash
from beam_tfrecord.manifest import Manifest, Shard, Split, splits_html
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.tfrecord import BLOCK_BYTES, RecordBlock, read_blocks
from beam_tfrecord.storage import Entry, file_size, is_remote, read_small, status
from beam_tfrecord.tables import listed, paragraph

if TYPE_CHECKING:
    from typing import Self

# Rows are converted to Python objects in small slices: those of a full block need much memory.
_ROWS_AT_ONCE = 1024
_MIXED_BYTES = 64 * 10**6


@dataclasses.dataclass(frozen=True)
class OpenedManifest:
    """The manifest file of a dataset, as it was when the dataset was opened.

    Attributes:
        path: Absolute path or URL of the file.
        entry: The file's entry in its directory; None if the dataset has no manifest.
        xxh64: Hash of the bytes of the file, 16 hex digits; empty without a file.
    """

    path: str
    entry: Entry | None
    xxh64: str

    @classmethod
    def of(cls, path: str) -> OpenedManifest:
        """Record the manifest at a path; call this before the manifest is parsed."""
        return cls(path, status(path), _manifest_hash(path))

    def check(self) -> None:
        """Raise `DataError` if the manifest is no longer the one that was opened."""
        # A manifest that was touched or copied has another time, but the same text.
        if status(self.path) != self.entry and _manifest_hash(self.path) != self.xxh64:
            raise DataError(
                f"the dataset in {os.path.dirname(self.path)!r} was replaced or removed after it "
                "was opened: load it again"
            )


def _manifest_hash(path: str) -> str:
    try:
        return data_hash(read_small(path))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


@contextlib.contextmanager
def explained_by(*checks: Callable[[], None]) -> Iterator[None]:
    """Run `checks` if the block raises: a replaced file explains an error of reading better."""
    try:
        yield
    except (BeamTFRecordError, OSError):
        for check in checks:
            check()
        raise


class ShardFiles(Protocol):
    """A reader of the shards of a dataset: TFRecord files, or row groups of Parquet files."""

    def check(self, shards: Sequence[Shard]) -> None:
        """Check that the files of shards exist and have the right sizes."""

    def blocks(
        self, shards: Sequence[Shard], block_bytes: int = BLOCK_BYTES
    ) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records of shards as framed bytes, in blocks of about `block_bytes`."""

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of shards as batches of the columns `names`."""

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types that the columns `names` have in `batches`."""


class RecordFiles:
    """A reader of the TFRecord shards of a written dataset.

    Args:
        directory: Absolute path or URL that the paths of the shards are relative to.
        manifest: The manifest, which describes the shards.
        opened: The manifest's file as it was when the dataset was opened.
    """

    def __init__(self, directory: str, manifest: Manifest, opened: OpenedManifest) -> None:
        self.opened = opened
        self._directory = directory
        self._manifest = manifest
        # Remote shards are not compared: a single version of each is read, and each comparison
        # would cost a request.
        local = () if is_remote(directory) else manifest.shards
        self._hashes = {self.path(shard): shard.xxh64 for shard in local}
        self._states = {path: _file_state(path) for path in self._hashes}

    def path(self, shard: Shard) -> str:
        """Return the absolute path of a shard."""
        return os.path.join(self._directory, shard.path)

    def check(self, shards: Sequence[Shard]) -> None:
        """Check that every shard exists and, if it is not compressed, has the right size.

        Raises:
            DataError: A shard is missing or has another size, or the dataset was replaced.
        """
        for shard in shards:
            path = self.path(shard)
            with self._explained(path):
                try:
                    size = file_size(path)
                except FileNotFoundError:
                    raise DataError(
                        f"{path!r} is missing: restore it or write the dataset again"
                    ) from None
                if not self._manifest.compression:
                    _check_count(path, "bytes", size, shard.bytes)

    def _explained(self, path: str) -> contextlib.AbstractContextManager[None]:
        return explained_by(self.opened.check, functools.partial(self.check_unchanged, path))

    def check_unchanged(self, path: str) -> None:
        """Raise `DataError` if a local shard is no longer the file that was opened.

        Call this after each read. It ignores a missing shard, since reading that one raises an
        error.
        """
        state = _file_state(path)
        if state is None or state == self._states.get(path, state):
            return
        # A shard that was touched, linked or moved has other times, but the same records.
        if self._stream_hash(path) != self._hashes[path] or _file_state(path) != state:
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

    def blocks(
        self, shards: Sequence[Shard], block_bytes: int = BLOCK_BYTES
    ) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records of shards as framed bytes; check every CRC, count and size."""
        for shard in shards:
            path = self.path(shard)
            examples = nbytes = 0
            with self._explained(path):
                for block in read_blocks(
                    path, compression=self._manifest.compression, block_bytes=block_bytes
                ):
                    if not nbytes:
                        # Checked only now that the file is open: a file that replaces it later is
                        # not read.
                        self.opened.check()
                    # Checked after the block was read, so that the check covers its bytes.
                    self.check_unchanged(path)
                    examples += len(block.starts)
                    nbytes += len(block.data)
                    yield shard, block
                _check_count(path, "examples", examples, shard.examples)
                _check_count(path, "bytes", nbytes, shard.bytes)

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of shards as batches of the columns `names`.

        Raises:
            DataError: A shard is damaged, or its examples do not fit the schema.
        """
        decoder = Decoder(self._manifest.schema, columns=names)
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

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types that the columns `names` have in `batches`."""
        return Decoder(self._manifest.schema, columns=names).arrow_schema


def _file_state(path: str) -> tuple[int, int, int] | None:
    """Return size, modification time and change time (in ns), which identify a file's content.

    Returns:
        None if the file cannot be found.
    """
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _check_count(path: str, what: str, seen: int, known: int) -> None:
    if seen != known:
        raise DataError(
            f"{path!r} has {seen:,} {what} but the manifest says {known:,}: restore the file, "
            "write the dataset again, or save its intact records with repair"
        )


def _check_present(batch: pa.RecordBatch, schema: pa.Schema) -> None:
    for field, seen in zip(schema, batch.schema, strict=True):
        if seen.nullable and not field.nullable:
            raise DataError(f"a value of column {field.name!r} is missing")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """The rows of one split or of all splits of a dataset, with all or some of its columns.

    Attributes:
        directory: Absolute path or URL that the paths in the manifest are relative to.
        manifest: The manifest of the dataset.
        split_names: Names of the splits to read.
        schema: Schema of the columns to read.
        files: Reader of the shards.
    """

    directory: str
    manifest: Manifest
    split_names: tuple[str, ...]
    schema: Schema
    files: ShardFiles

    def __len__(self) -> int:
        return sum(self.splits.values())

    def __repr__(self) -> str:
        counts = [f"{name}={count:,}" for name, count in self.splits.items()]
        return f"<Dataset {self.directory!r}: {listed(counts)}; {listed(self.schema.names)}>"

    def _repr_html_(self) -> str:
        splits = {name: self.manifest.splits[name] for name in self.split_names}
        title = paragraph(f"Dataset {self.directory!r}")
        return title + splits_html(splits) + self.schema._repr_html_()

    @property
    def splits(self) -> dict[str, int]:
        """Number of rows of every split that is read."""
        return {name: self.manifest.splits[name].examples for name in self.split_names}

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards that are read, in order."""
        return tuple(
            shard for name in self.split_names for shard in self.manifest.splits[name].shards
        )

    @property
    def content(self) -> str:
        """Hash that differs if any row or shard that is read differs; 64 hex digits."""
        shards = [(shard.path, shard.examples, shard.bytes, shard.xxh64) for shard in self.shards]
        return hashlib.sha256(repr((self.manifest.content, shards)).encode()).hexdigest()

    def path(self, shard: Shard) -> str:
        """Return the absolute path of a shard."""
        return os.path.join(self.directory, shard.path)

    def check_files(self) -> None:
        """Check that every shard exists and, if it is not compressed, has the right size.

        Raises:
            DataError: A shard is missing or has another size, or the dataset was replaced.
        """
        self.files.check(self.shards)

    def blocks(self) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield each shard with blocks of its framed records; check every CRC, count and size.

        A framed record is an example with its length and checksums, as in a TFRecord file.

        Raises:
            DataError: A shard is missing, is damaged or does not fit the manifest, or the dataset
                was replaced.
        """
        self.check_files()
        yield from self.files.blocks(self.shards)

    def examples(self) -> Iterator[bytes]:
        """Yield every serialized example, always with all of its features.

        Raises:
            DataError: A shard is damaged, or the dataset was replaced.
        """
        for _, block in self.blocks():
            yield from block.payloads()

    def batches(self, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches; memory does not grow with the size of the dataset.

        Args:
            batch_rows: Number of rows of every batch except the last; None means the rows of about
                8 MB.

        Raises:
            UsageError: `batch_rows` is less than 1.
            DataError: A shard is damaged, or its examples do not fit the schema.
        """
        if batch_rows is None:
            return self._batches()
        if batch_rows < 1:
            raise UsageError(f"a batch must have at least 1 row, not {batch_rows}")
        return rebatch(self._batches(), batch_rows)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        self.check_files()
        yield from self.files.batches(self.shards, self.schema.names)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every row as a dict of Python values; a missing value is None."""
        for batch in self._batches():
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield from python_rows(batch.slice(start, _ROWS_AT_ONCE))

    def arrow(self) -> pa.Table:
        """Return all rows as one table in memory."""
        schema = self.files.arrow_schema(self.schema.names)
        return pa.Table.from_batches(list(self._batches()), schema=schema)

    def of_shards(self, index: int, count: int) -> Self:
        """Return the rows for one of `count` readers: every `count`-th shard from `index` on.

        Parts have about the same number of rows only if `count` divides the number of shards.

        Args:
            index: Number of the part, from 0.
            count: Number of parts.

        Raises:
            UsageError: `index` is not below `count`, or there are fewer shards than `count`, so
                that a part would have no rows.
        """
        if not 0 <= index < count:
            raise UsageError(f"shard {index} of {count} does not exist: count from 0")
        if 0 < len(self.shards) < count:
            raise UsageError(
                f"too few shards ({len(self.shards)}) for {count} readers: write the dataset with "
                f"shards={count} or more, or let each reader take one row in {count} of all"
            )
        return self.part(index, count)

    def part(self, index: int, count: int) -> Self:
        """Return the rows of every `count`-th shard from number `index` on, possibly of none."""
        part = frozenset(self.shards[index::count])
        splits = {
            name: Split(tuple(shard for shard in split.shards if shard in part))
            for name, split in self.manifest.splits.items()
        }
        return dataclasses.replace(self, manifest=dataclasses.replace(self.manifest, splits=splits))


def mixed_rows(rows: Rows, shuffle: bool | int) -> int:
    """Return the size of a shuffle buffer in rows: `shuffle`, or if True the rows of 64 MB."""
    if shuffle is not True:
        return max(1, int(shuffle))
    nbytes = sum(shard.bytes for shard in rows.shards)
    mean_bytes = max(1, nbytes // max(1, len(rows)))
    return max(1, min(len(rows), _MIXED_BYTES // mean_bytes))
