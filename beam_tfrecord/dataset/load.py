"""`load`: opens a written dataset, or Parquet files, and converts their rows.

Readers follow the manifest, never the names of files. Importing this module loads neither Beam nor
TensorFlow nor PyTorch: what needs them is imported on use.
"""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.batch import Batch
from beam_tfrecord.dataset.rows import OpenedManifest, RecordFiles, Rows, explained_by
from beam_tfrecord.dataset.values import arrays_of, check_defaults, memory_mapped
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.layout import ONLY_SPLIT
from beam_tfrecord.manifest import Manifest, Shard, Split, directory_of, manifest_path
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.tfrecord import BLOCK_BYTES, RecordBlock
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.sources.parquet.source import SUFFIXES, Parquet
from beam_tfrecord.stage import is_stage
from beam_tfrecord.storage import absolute_path, exists, is_remote
from beam_tfrecord.workdir.target import Target

if TYPE_CHECKING:
    import tensorflow as tf

    from beam_tfrecord.dataset.torch import TorchDataset

# Rows that are decoded at a time while columns are written to memory-mapped files.
_MEMMAP_BATCH_ROWS = 65_536


class Dataset(Rows):
    """Rows of a dataset, converted to NumPy, TensorFlow or PyTorch."""

    def numpy(self, *, defaults: Mapping[str, Any] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as one array per column, shape `[rows, …]`.

        Numbers and booleans keep their type; times become datetime64 or timedelta64, missing ones
        NaT; fixed-size lists and tensors of numbers get their shape; everything else (text,
        bytes, decimals, lists of varying length, nested values) is an object array, with None
        for a missing value.

        Args:
            defaults: Replacements of missing values, by column; columns that are not in it use
                their schema's default.

        Raises:
            UsageError: Numbers or booleans are missing and have no default: NumPy has no value for
                a missing one, and NaN would also stand for a NaN in the data.
        """
        return arrays_of(self.arrow(), self.schema, defaults or {})

    def memmap(
        self, directory: str | os.PathLike[str], *, defaults: Mapping[str, Any] | None = None
    ) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as read-only memory-mapped arrays, with the types of `numpy`.

        The first call writes their files to `directory`. A later call writes them again if the
        dataset, the columns or the defaults differ, or a file has another size or time. The
        values are not hashed again: damage below the file system is not seen here. Remove the
        directory to have it written again.

        Raises:
            UsageError: Values of a column have no fixed width, or are missing without a default.
            DataError: The dataset was replaced, or another process writes other rows there.
        """
        defaults = defaults or {}
        check_defaults(self.schema, defaults)
        return memory_mapped(
            directory,
            self.batches(_MEMMAP_BATCH_ROWS),
            empty=self.files.arrow_schema(self.schema.names).empty_table(),
            schema=self.schema,
            defaults=defaults,
            identity={
                "rows": len(self),
                "content": self.content,
                "columns": list(self.schema.names),
                "defaults": {name: repr(value) for name, value in sorted(defaults.items())},
            },
        )

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
            batch_size: Rows per batch (``batch_size=None`` for the ``DataLoader``); None for
                single rows.
            defaults: Replacements of missing values, by column.
            shuffle: True mixes the shards, and the rows within about 64 MB; a number mixes the
                rows within that many. Every epoch has another order, by PyTorch's generator, so
                ``torch.manual_seed`` repeats it. False: every epoch has the order of the dataset.

        Raises:
            UsageError: A column without a default may lack numbers by its schema, even if no batch
                does. Or PyTorch is not installed.
        """
        require("torch", "load(...).torch()")
        from beam_tfrecord.dataset.torch import TorchDataset

        return TorchDataset(self, batch_size, dict(defaults or {}), shuffle)


def load(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    columns: Iterable[str] | None = None,
) -> Dataset:
    """Open a dataset; only its manifest is read, or the footers of staged Parquet files.

    Sizes and times of local shards are recorded, so that a change while they are read is detected.

    Args:
        path: Its directory, its file prefix, or its manifest; or Parquet files, which have the one
            split ``data``.
        split: The split to read; None for all of them, in the manifest's order.
        columns: The columns to read, in this order; None for all.

    Raises:
        UsageError: There is no dataset, or no such split or column.
        DataError: The manifest is damaged.
    """
    opened = _open(path)
    splits = opened.manifest.splits
    if split is not None and split not in splits:
        known = ", ".join(splits) or "none"
        raise UsageError(f"split {split!r} does not exist: the splits are {known}")
    if isinstance(columns, str):
        raise UsageError(f"columns is the text {columns!r}: give a list of names")
    schema = opened.schema if columns is None else opened.schema.select(list(columns))
    names = tuple(splits) if split is None else (split,)
    return dataclasses.replace(opened, split_names=names, schema=schema)


def _open(path: str | os.PathLike[str]) -> Dataset:
    """Return all splits and columns of a dataset, or of Parquet files."""
    staged = is_stage(path)
    file = absolute_path(manifest_path(path))
    if staged or (not exists(file) and _is_parquet(path)):
        return _open_parquet(path, OpenedManifest.of(file))
    opened = OpenedManifest.of(file)
    manifest = Manifest.load(path)
    directory = directory_of(file)
    files = RecordFiles(directory, manifest, opened)
    return Dataset(directory, manifest, tuple(manifest.splits), manifest.schema, files)


def _is_parquet(path: str | os.PathLike[str]) -> bool:
    """Return True if a path names Parquet files: one, a pattern, or a directory with some."""
    text = os.fspath(path)
    if os.path.isdir(text):
        found = glob.iglob(os.path.join(glob.escape(text), "**", "*"), recursive=True)
        return any(name.endswith(SUFFIXES) for name in found)
    return text.endswith(SUFFIXES)


def _open_parquet(path: str | os.PathLike[str], opened: OpenedManifest) -> Dataset:
    """Open Parquet files as a dataset of one split; only their footers are read.

    Args:
        path: The files, or the directory of a stage.
        opened: The manifest of the stage, if it is one.

    Raises:
        UsageError: There are none.
        DataError: One is damaged, or two disagree, or a stage was replaced meanwhile.
    """
    source = Parquet(path)
    with explained_by(opened.check):
        scans = source.all_scans()
    opened.check()
    if opened.entry is None and (jobs := Target(absolute_path(path)).leftovers()):
        # The files of an unfinished stage look like any others.
        raise UsageError(
            f"no dataset at {os.fspath(path)!r}: a job is writing there, or was stopped: wait for "
            f"it, run it again, or remove {jobs[0]!r}"
        )
    arrow = source.schema(scans)
    units = {unit.name: unit for unit in source.all_units(scans)}
    schema = Schema.from_arrow(arrow)
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
        splits={
            ONLY_SPLIT: Split(
                tuple(
                    Shard(name, unit.rows or 0, unit.encoded_bytes, "")
                    for name, unit in units.items()
                )
            )
        },
    )
    files = _ParquetFiles(source, arrow, units, schema, opened)
    directory = os.path.abspath(os.fspath(path))
    return Dataset(directory, manifest, (ONLY_SPLIT,), schema, files)


@dataclasses.dataclass(frozen=True, eq=False)
class _ParquetFiles:
    """Row groups of Parquet files in the role of shards.

    Rows have the types of the files. Records are encoded on the way, as `write` encodes them.

    Attributes:
        source: Reads the files.
        types: Types of all columns.
        units: Runs of row groups, by the name of the shard that each represents.
        schema: The features that records are encoded by.
        opened: The manifest of a stage.
    """

    source: Parquet
    types: pa.Schema
    units: Mapping[str, Unit]
    schema: Schema
    opened: OpenedManifest

    def versions(self, shards: Sequence[Shard]) -> Any:
        """Return name, size and version of the file of every shard."""
        files = [(shard.path, self.units[shard.path].file) for shard in shards]
        return [(name, file.bytes, file.version) for name, file in files]

    def check(self, shards: Sequence[Shard]) -> None:
        """Check nothing: opening the files has read their footers."""

    def blocks(
        self, shards: Sequence[Shard], block_bytes: int = BLOCK_BYTES
    ) -> Iterator[tuple[Shard, RecordBlock]]:
        """Yield the rows of shards as encoded records, a block per batch of the source.

        Raises:
            DataError: A file changed, or has a value that no example can hold.
        """
        with explained_by(self.opened.check):
            for shard in shards:
                encoder, first = Encoder(self.schema), 0
                for data in self.batches([shard], self.schema.names):
                    arena = Arena()
                    encoded = encoder.encode(Batch(data), arena)
                    if encoded.rejects:
                        row, _, _, message, _ = encoded.rejects[0]
                        raise DataError(f"row {first + row} of {shard.path}: {message}")
                    # Copied, since a block owns its memory.
                    used = arena.used_data().copy(), arena.used_starts().copy()
                    yield shard, RecordBlock(*used, 0, first)
                    first += data.num_rows

    def batches(self, shards: Sequence[Shard], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the rows of shards.

        Raises:
            DataError: A file was changed or removed, or is damaged.
        """
        schema = self.arrow_schema(names)
        for unit in (self.units[shard.path] for shard in shards):
            try:
                for number, batch in enumerate(self.source.read(unit, schema)):
                    # A look at a local file costs nothing, at a remote one a request.
                    if not number or not is_remote(unit.file.path):
                        _check_unchanged(unit.file)
                    if batch.rejects:
                        raise DataError(batch.rejects[0].message)
                    if batch.num_rows:
                        yield batch.data
            except (DataError, OSError):
                _check_unchanged(unit.file)
                raise
            # Unlike this package, other writers of Parquet overwrite a file in place.
            _check_unchanged(unit.file)

    def arrow_schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the types of some columns in `batches`."""
        return pa.schema([self.types.field(name) for name in names])


def _check_unchanged(file: InputFile) -> None:
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
