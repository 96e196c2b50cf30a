"""`load`: a light handle on a written dataset, and its rows in whatever form they are wanted.

Readers follow the manifest, never the names of files. Neither Beam nor TensorFlow is imported
here; ``tf()`` and ``torch()`` live in modules of their own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.dataset.opened import OpenedManifest, OpenedShards, explained_by
from beam_tfrecord.dataset.values import arrays_of, python_rows
from beam_tfrecord.dataset.values import rebatch as rebatch
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.manifest import Manifest, Shard, directory_of, manifest_path
from beam_tfrecord.records.blocks import RecordBlock, read_blocks
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.staging.manifest import is_stage
from beam_tfrecord.storage import absolute_path, exists, file_size, is_remote

if TYPE_CHECKING:
    import tensorflow as tf

    from beam_tfrecord.dataset.torch import TorchDataset

# Rows become Python objects in pieces, so that a block's worth of them never exists at once.
_ROWS_AT_ONCE = 1024


def load(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    columns: Iterable[str] | None = None,
) -> Dataset:
    """Open a dataset; only its manifest is read, or the footers of staged Parquet files.

    Sizes and times of local shards are noted, so that a change while they are read is noticed.

    Args:
        path: Its directory, its file prefix, or its manifest; or Parquet files, which have the one
            split ``data``.
        split: The split to read; None: all of them, one after the other in the manifest's order.
        columns: The columns to read, in this order; None: all.

    Raises:
        UsageError: There is no dataset, or no such split or column.
        DataError: The manifest is damaged.
    """
    opened = _open(path)
    manifest = opened.manifest
    if split is not None and split not in manifest.splits:
        known = ", ".join(manifest.splits) or "none"
        raise UsageError(f"split {split!r} does not exist: the splits are {known}")
    schema = manifest.schema if columns is None else manifest.schema.select(_names(columns))
    names = tuple(manifest.splits) if split is None else (split,)
    return dataclasses.replace(opened, split_names=names, schema=schema)


def _open(path: str | os.PathLike[str]) -> Dataset:
    """Return all splits and columns of a dataset, or of Parquet files."""
    staged = is_stage(path)
    file = absolute_path(manifest_path(path))
    if staged or not exists(file):
        from beam_tfrecord.dataset.parquet import is_parquet, open_parquet

        if staged or is_parquet(path):
            return open_parquet(path)
    opened = OpenedManifest.of(file)
    manifest = Manifest.load(path)
    directory = directory_of(file)
    hashes = {os.path.join(directory, shard.path): shard.xxh64 for shard in manifest.shards}
    # Nothing is noted of remote shards: one version is read of each, and a look costs a request.
    files = OpenedShards({} if is_remote(directory) else hashes, manifest.compression)
    return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, opened, files)


def _names(columns: Iterable[str]) -> list[str]:
    if isinstance(columns, str):
        raise UsageError(f"columns is the text {columns!r}: give a list of names")
    return list(columns)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Rows of a dataset: one split or all, some columns or all.

    Attributes:
        directory: Absolute path that the manifest's paths are relative to.
        manifest: Of the whole dataset.
        split_names: The splits that are read.
        schema: Of the columns that are read.
        opened: The file of the manifest, by which a replaced dataset is noticed.
        files: Those of the shards, by which a replaced shard is noticed.
    """

    directory: str
    manifest: Manifest
    split_names: tuple[str, ...]
    schema: Schema
    opened: OpenedManifest
    files: OpenedShards

    def __len__(self) -> int:
        return sum(self.splits.values())

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}={count:,}" for name, count in self.splits.items())
        return f"<Dataset {self.directory!r}: {splits}; {', '.join(self.schema.names)}>"

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
        """Hash of what is read, 64 hex digits: another one where rows or shards are others."""
        shards = [(shard.path, shard.examples, shard.bytes, shard.xxh64) for shard in self.shards]
        return hashlib.sha256(repr((self.manifest.content, shards)).encode()).hexdigest()

    def path(self, shard: Shard) -> str:
        """Return the absolute path of a shard."""
        return os.path.join(self.directory, shard.path)

    def check_files(self) -> None:
        """Check that every shard is there and, uncompressed, has its size.

        Raises:
            DataError: One is missing or of another size, or the dataset was replaced.
        """
        for shard in self.shards:
            with self._explained_by_changes(shard):
                self._check_file(shard)

    def _explained_by_changes(self, shard: Shard) -> AbstractContextManager[None]:
        return explained_by(self.opened.check, lambda: self.files.check(self.path(shard)))

    def _check_file(self, shard: Shard) -> None:
        try:
            size = file_size(self.path(shard))
        except FileNotFoundError:
            raise DataError(
                f"{self.path(shard)!r} is missing: restore it or write the dataset again"
            ) from None
        if not self.manifest.compression and size != shard.bytes:
            raise _mismatch(self.path(shard), "bytes", size, shard.bytes)

    def blocks(self) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the records as framed bytes; every CRC, count and size is checked.

        Raises:
            DataError: A shard is missing, damaged or not the one that the manifest describes, or
                the dataset was replaced.
        """
        self.check_files()
        for shard in self.shards:
            with self._explained_by_changes(shard):
                yield from ((shard, block) for block in self._shard_blocks(shard))

    def _shard_blocks(self, shard: Shard) -> Iterator[RecordBlock]:
        path = self.path(shard)
        examples = nbytes = 0
        for block in read_blocks(path, compression=self.manifest.compression):
            if not nbytes:
                # The file is open, and what takes its name from now on is not read.
                self.opened.check()
            # Nor is what is written into it from now on in this block.
            self.files.check(path)
            examples += len(block.starts)
            nbytes += len(block.data)
            yield block
        for what, seen, known in (
            ("examples", examples, shard.examples),
            ("bytes", nbytes, shard.bytes),
        ):
            if seen != known:
                raise _mismatch(path, what, seen, known)

    def examples(self) -> Iterator[bytes]:
        """Yield every example, serialized and whole: `columns` has no effect here."""
        for _, block in self.blocks():
            yield from block.payloads()

    def batches(self, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in columns; memory stays flat whatever the size of the dataset.

        Args:
            batch_rows: Rows of every batch but the last; None: what a block of about 8 MB holds.

        Raises:
            UsageError: `batch_rows` is less than 1.
            DataError: A shard is damaged, or its examples are not of the schema.
        """
        if batch_rows is None:
            return self._decoded()
        if batch_rows < 1:
            raise UsageError(f"a batch must have at least 1 row, not {batch_rows}")
        return rebatch(self._decoded(), batch_rows)

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(self.manifest.schema, columns=self.schema.names)
        for shard, block in self.blocks():
            try:
                yield _required(decoder.decode(block.data, block.starts), decoder.arrow_schema)
            except DataError as error:
                raise DataError(
                    f"{self.path(shard)!r} does not fit the schema, in the block from record "
                    f"{block.first_record} on: {error}: run verify to find every such record"
                ) from error

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every row as a dict of Python values; a missing value is None."""
        for batch in self._decoded():
            for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
                yield from python_rows(batch.slice(start, _ROWS_AT_ONCE))

    def arrow(self) -> pa.Table:
        """Return all rows as one table in memory."""
        schema = Decoder(self.manifest.schema, columns=self.schema.names).arrow_schema
        return pa.Table.from_batches(list(self._decoded()), schema=schema)

    def numpy(self, *, defaults: Mapping[str, Any] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as one array a column, shape `[rows, …]`.

        Numbers and booleans keep their type; times become datetime64 or timedelta64, missing ones
        NaT; fixed-size lists and tensors of numbers get their shape; everything else (text,
        bytes, decimals, lists of varying length, nested values) is an object array, with None
        where a value is missing.

        Args:
            defaults: What replaces missing values, by column; columns that are not in it use
                their schema's default.

        Raises:
            UsageError: Numbers or booleans are missing and there is no default for them: NumPy has
                no value that says so, and NaN would stand for a NaN in the data as well.
        """
        return arrays_of(self.arrow(), self.schema, defaults or {})

    def memmap(
        self, directory: str | os.PathLike[str], *, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as memory-mapped arrays, as `numpy` does.

        The first call writes their files to `directory`. A later call writes them again where the
        dataset, the columns or the defaults are others, or a file has another size or time. The
        values are not hashed again: damage below the file system is not seen here. Remove the
        directory to have it written anew.

        Raises:
            UsageError: Values of a column have no fixed width, or are missing without a default.
            DataError: The dataset was replaced, or another process writes other rows there.
        """
        from beam_tfrecord.dataset.values import memory_mapped

        return memory_mapped(self, directory, defaults or {})

    def tf(self, batch_size: int | None = None, **options: Any) -> tf.data.Dataset:
        """Return a ``tf.data.Dataset`` of parsed examples.

        See `beam_tfrecord.dataset.tf.tf_dataset` for the options.
        """
        from beam_tfrecord.dataset.tf import tf_dataset

        return tf_dataset(self, batch_size, **options)

    def torch(
        self,
        batch_size: int | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        shuffle: bool | int = False,
    ) -> TorchDataset:
        """Return a PyTorch ``IterableDataset``.

        Every shard is read by one worker of the ``DataLoader``, so use at most as many workers
        as there are shards. Numbers are tensors that may be written to; text, lists of varying
        length and columns without a tensor for a missing value are Python lists in every batch.

        Args:
            batch_size: Rows a batch (``batch_size=None`` for the ``DataLoader``); None: rows.
            defaults: What replaces missing values, by column.
            shuffle: True mixes the shards, and the rows within about 64 MB; a number the rows
                within that many: anew in every epoch, by PyTorch's generator, so
                ``torch.manual_seed`` repeats it. False: every epoch has the order of the dataset.

        Raises:
            UsageError: Numbers may be missing in a column without a default: the schema decides,
                not the batch that lacks one. Or PyTorch is not installed.
        """
        require("torch", "load(...).torch()")
        from beam_tfrecord.dataset.torch import TorchDataset

        return TorchDataset(self, batch_size, dict(defaults or {}), shuffle)

    def of_shards(self, index: int, count: int) -> Dataset:
        """Return the part `index` of `count`: every `count`-th shard.

        Parts have about the same number of rows only where `count` divides the number of shards.

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

    def part(self, index: int, count: int) -> Dataset:
        """Return every `count`-th shard from `index` on, which may be none."""
        kept = {id(shard) for shard in self.shards[index::count]}
        splits = {
            name: dataclasses.replace(
                split, shards=tuple(shard for shard in split.shards if id(shard) in kept)
            )
            for name, split in self.manifest.splits.items()
        }
        manifest = dataclasses.replace(self.manifest, splits=splits)
        return dataclasses.replace(self, manifest=manifest)


def _mismatch(path: str, what: str, seen: int, known: int) -> DataError:
    return DataError(
        f"{path!r} has {seen:,} {what} but the manifest says {known:,}: restore the file or write "
        "the dataset again"
    )


def _required(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return `batch`, which has `schema` unless what may not be missing is.

    Raises:
        DataError: It is.
    """
    for field, seen in zip(schema, batch.schema, strict=True):
        if seen.nullable and not field.nullable:
            raise DataError(f"a value of column {field.name!r} is missing")
    return batch
