"""Reads Parquet files as if they were a written dataset; ranges of row groups are its shards."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from beam_tfrecord.dataset.record_files import OpenedManifest, explained_by
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.layout import ONLY_SPLIT
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.format.stage import StageManifest, is_stage
from beam_tfrecord.job_state.job import Target
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.rows.batch import Batch, Origin
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.sources.parquet import SUFFIXES, Parquet
from beam_tfrecord.storage import absolute_path, is_remote, plain_path


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return True if a path is a Parquet file, a glob of them, or a directory that has some."""
    text = os.fspath(path)
    if os.path.isdir(text):
        found = glob.iglob(os.path.join(glob.escape(text), "**", "*"), recursive=True)
        return any(name.endswith(SUFFIXES) for name in found)
    return plain_path(text).endswith(SUFFIXES)


def open_parquet(
    path: str | os.PathLike[str], opened: OpenedManifest
) -> tuple[Manifest, ParquetFiles]:
    """Return a manifest that describes Parquet files as one split, and a reader of its shards.

    Only the footers of the files are read.
    """
    source = Parquet(path)
    with explained_by(opened.check):
        scans = source.all_scans()
    opened.check()
    if opened.entry is None and (jobs := Target(absolute_path(path)).leftovers()):
        # The files of an unfinished stage look like complete ones.
        raise UsageError(
            f"no dataset at {os.fspath(path)!r}: a job is writing there, or was stopped: wait for "
            f"it, run it again, or remove {jobs[0]!r}"
        )
    arrow = source.schema(scans)
    units = {unit.name: unit for unit in source.all_units(scans)}
    schema = Schema.from_arrow(arrow)
    shards = [Shard(name, unit.rows or 0, unit.encoded_bytes, "") for name, unit in units.items()]
    files = {unit.file.path: unit.file for unit in units.values()}.values()
    described = {
        "kind": source.kind,
        "files": [{"path": file.name, "bytes": file.bytes} for file in files],
    }
    stage = StageManifest.load(path) if is_stage(path) else None
    versions = [(unit.file.bytes, unit.file.version) for unit in units.values()]
    manifest = Manifest(
        content=data_hash(repr(versions).encode()),
        schema=schema,
        source=described if stage is None else stage.source,
        rejects={"rows": 0} if stage is None else stage.rejects,
        splits={ONLY_SPLIT: Split(tuple(shards))},
    )
    return manifest, ParquetFiles(source, arrow, units, schema, opened)


@dataclasses.dataclass(frozen=True, eq=False)
class ParquetFiles:
    """A reader of Parquet files in which ranges of row groups are the shards.

    Records are encoded in the same way as by `write`.
    """

    source: Parquet
    types: pa.Schema
    units: Mapping[str, Unit]
    schema: Schema
    opened: OpenedManifest

    def check(self, shards: Sequence[Shard]) -> None:
        """Check nothing, since opening the files has read their footers."""

    def blocks(self, shards: Sequence[Shard]) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the rows of shards as encoded records, one block for each batch of the source."""
        arena = Arena()
        with explained_by(self.opened.check):
            for shard in shards:
                encoder, first = Encoder(self.schema), 0
                for data in self.batches([shard], self.schema.names):
                    arena.reset()
                    encoded = encoder.encode(Batch(data, Origin(shard.path, 0, first)), arena)
                    if encoded.rejects:
                        raise DataError(encoded.rejects[0].message)
                    # Copied, since a block must own its memory.
                    used = arena.used_data().copy(), arena.used_starts().copy()
                    yield shard, RecordBlock(*used, 0, first)
                    first += data.num_rows

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of shards as batches of some columns."""
        schema = self.arrow_schema(names)
        for unit in (self.units[shard.path] for shard in shards):
            try:
                for number, batch in enumerate(self.source.read(unit, schema)):
                    # For a remote file each check costs a request, so only the first batch has one.
                    if not number or not is_remote(unit.file.path):
                        _check_unchanged(unit.file)
                    if batch.rejects:
                        raise DataError(batch.rejects[0].message)
                    if batch.num_rows:
                        yield batch.data
            except (DataError, OSError):
                _check_unchanged(unit.file)
                raise
            # Other programs than this package may overwrite a Parquet file in place.
            _check_unchanged(unit.file)

    def is_indexed(self, shards: Sequence[Shard]) -> bool:
        """Return False: single rows of Parquet files cannot be read."""
        return False

    def rows(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `UsageError`: a row of a Parquet file cannot be read without its row group."""
        raise UsageError(
            "rows of Parquet files can only be read one after the other: write them as a dataset "
            "to read single rows"
        )

    pick = rows

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types of some columns in `batches`."""
        return pa.schema([self.types.field(name) for name in names])


def _check_unchanged(file: InputFile) -> None:
    """Raise `DataError` if a file is no longer the one whose footer was read."""
    try:
        (now,) = list_files([file.path], SUFFIXES)
    except UsageError:
        now = None
    if now is None or (now.bytes, now.version) != (file.bytes, file.version):
        raise DataError(f"{file.path!r} was changed or removed after it was opened: load it again")
