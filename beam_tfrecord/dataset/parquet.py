"""A staged Parquet dataset behind the same handle as a written one.

Its row groups stand for shards. Rows come with the types of the files; where records are wanted,
as by ``tf()``, they are encoded on the way, so that what comes out is what `write` would have made.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import Batch
from beam_tfrecord.dataset.load import Dataset
from beam_tfrecord.dataset.opened import OpenedManifest, OpenedShards, explained_by
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import ONLY_SPLIT
from beam_tfrecord.manifest import Manifest, Shard, Split, manifest_path
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.sources.parquet.source import SUFFIXES, Parquet
from beam_tfrecord.storage import absolute_path, is_remote
from beam_tfrecord.workdir.target import Target

if TYPE_CHECKING:
    import tensorflow as tf


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path names Parquet files: one, a pattern, or a directory with some."""
    text = os.fspath(path)
    if os.path.isdir(text):
        found = glob.iglob(os.path.join(glob.escape(text), "**", "*"), recursive=True)
        return any(name.endswith(SUFFIXES) for name in found)
    return text.endswith(SUFFIXES)


def open_parquet(path: str | os.PathLike[str]) -> ParquetDataset:
    """Open Parquet files as a dataset of one split; only their footers are read.

    Raises:
        UsageError: There are none.
        DataError: One is damaged, or two disagree, or a stage was replaced meanwhile.
    """
    source = Parquet(path)
    opened = OpenedManifest.of(absolute_path(manifest_path(path)))
    with explained_by(opened.check):
        scans = source.all_scans()
    opened.check()
    if opened.entry is None and (jobs := Target(absolute_path(path)).leftovers()):
        # Files of a stage that is not whole, which look like any others.
        raise UsageError(
            f"no dataset at {os.fspath(path)!r}: a job is writing there, or was stopped: wait for "
            f"it, run it again, or remove {jobs[0]!r}"
        )
    arrow = source.schema(scans)
    units = {unit.name: unit for unit in source.all_units(scans)}
    schema = Schema.from_arrow(arrow)
    shards = tuple(
        Shard(name, unit.rows or 0, unit.encoded_bytes, "") for name, unit in units.items()
    )
    manifest = Manifest(
        fingerprint="",
        content="",
        order="source",
        seed=0,
        compression="",
        key=None,
        group=None,
        place="origin",
        schema=schema,
        source={"kind": source.kind},
        rejects={"rows": 0},
        sidecars={},
        splits={ONLY_SPLIT: Split(shards)},
    )
    directory = os.path.abspath(os.fspath(path))
    # The files are compared with what the source knows of them.
    none = OpenedShards({}, "")
    return ParquetDataset(
        directory, manifest, (ONLY_SPLIT,), schema, opened, none, source, arrow, units
    )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ParquetDataset(Dataset):
    """Rows of Parquet files.

    Attributes:
        source: Reads them.
        arrow_schema: Types of all columns.
        units: Runs of row groups, by the name of the shard that they stand for.
    """

    source: Parquet
    arrow_schema: pa.Schema
    units: dict[str, Unit]

    @property
    def content(self) -> str:
        """Hash of what is read, 64 hex digits: another one where a file has changed."""
        files = [(shard.path, self.units[shard.path]) for shard in self.shards]
        told = [(name, unit.file.bytes, unit.file.version) for name, unit in files]
        return hashlib.sha256(repr((super().content, told)).encode()).hexdigest()

    def check_files(self) -> None:
        """Check nothing: the footers were read."""

    def _shard_blocks(self, shard: Shard) -> Iterator[RecordBlock]:
        encoder, first = Encoder(self.manifest.schema), 0
        for data in self._batches_of(shard, self.manifest.schema.names):
            arena = Arena()
            encoded = encoder.encode(Batch(data), arena)
            if encoded.rejects:
                row, _, _, message, _ = encoded.rejects[0]
                raise DataError(f"row {first + row} of {shard.path}: {message}")
            # A copy, since a block owns its memory.
            yield RecordBlock(arena.used_data().copy(), arena.used_starts().copy(), 0, first)
            first += data.num_rows

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        for shard in self.shards:
            yield from self._batches_of(shard, self.schema.names)

    def _batches_of(self, shard: Shard, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self.arrow_schema.field(name) for name in names])
        unit = self.units[shard.path]
        try:
            for number, batch in enumerate(self.source.read(unit, schema)):
                # A look at a local file costs nothing, at a remote one a request.
                if not number or not is_remote(unit.file.path):
                    _check_same(unit.file)
                if batch.rejects:
                    raise DataError(batch.rejects[0].message)
                if batch.num_rows:
                    yield batch.data
        except (DataError, OSError):
            _check_same(unit.file)
            raise
        # Unlike this package, other writers of Parquet overwrite a file in place.
        _check_same(unit.file)

    def arrow(self) -> pa.Table:
        """Return all rows as one table in memory."""
        schema = pa.schema([self.arrow_schema.field(name) for name in self.schema.names])
        return pa.Table.from_batches(list(self._decoded()), schema=schema)

    def tf_records(self, *, mixed: bool, seed: int | None) -> tf.data.Dataset:
        """Return the serialized examples, those of one run of row groups after the other.

        Args:
            mixed: Read the runs in another order in every epoch.
            seed: Of that order; None: another one in every process.
        """
        import tensorflow as tf

        order = np.random.default_rng(seed)

        def batches() -> Iterator[Any]:
            shards = list(self.shards)
            if mixed:
                order.shuffle(shards)
            for shard in shards:
                for block in self._shard_blocks(shard):
                    yield np.array(list(block.payloads()), object)

        records = tf.data.Dataset.from_generator(
            batches, output_signature=tf.TensorSpec([None], tf.string)
        )
        return records.prefetch(1).unbatch()


def _check_same(file: InputFile) -> None:
    """Check that a file is still the one whose footer was read.

    Raises:
        DataError: It was changed or removed.
    """
    try:
        (now,) = list_files([file.path], SUFFIXES, remote=True)
    except UsageError:
        now = None
    if now is None or (now.bytes, now.version) != (file.bytes, file.version):
        raise DataError(f"{file.path!r} was changed or removed after it was opened: load it again")
