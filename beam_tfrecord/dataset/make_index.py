"""`index`: makes the indexes of datasets that have none, and of other TFRecord files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from beam_tfrecord import native, storage
from beam_tfrecord.base.progress import Progress, adder
from beam_tfrecord.base.text import repeated
from beam_tfrecord.dataset.without_manifest import compression_of, foreign_files, is_foreign
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.format.manifest import Manifest, directory_of, manifest_path
from beam_tfrecord.job_state.worker_errors import machine_faults
from beam_tfrecord.records.shard_index import IndexWriter, index_name
from beam_tfrecord.records.tfrecord import read_blocks


@dataclasses.dataclass(frozen=True)
class Indexed:
    """The result of `index` for one file."""

    path: str
    index: str
    records: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return dataclasses.asdict(self)


def index(
    path: str | os.PathLike[str],
    *,
    dali: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[Indexed]:
    """Write the index of each shard of a dataset, or of TFRecord files, and replace an older one.

    An index lies in the directory ``_index`` beside its file; ``docs/format.md`` describes it. All
    records are read, and their checksums verified.

    Args:
        path: Path of the dataset's directory, its manifest or its file prefix; or of TFRecord files
            of other programs: a file, a directory or a glob.
        dali: Directory to write the index as text, too, as NVIDIA DALI reads it: position and size
            of a record in each line. None writes no text.
        progress: Progress bar to update; None shows none.

    Returns:
        The files in the order of the dataset.

    Raises:
        UsageError: There is no such dataset or file, or it is compressed.
        DataError: A record is damaged, or a shard does not fit the manifest.
        StorageError: The disk is full, or a file cannot be read or written.

    Example:
        >>> bt.index("trips.tfrecord")[0].records
        1
    """
    shards: list[tuple[str, str | None]]
    if is_foreign(path):
        directory, files = foreign_files(path)
        shards = [(file.name, None) for file in files]
        compressed = [file.path for file in files if compression_of(file)]
    else:
        manifest = Manifest.load(path)
        directory = directory_of(manifest_path(path))
        shards = [(shard.path, shard.xxh64) for shard in manifest.shards]
        compressed = [os.fspath(path)] if manifest.compression else []
    if compressed:
        raise UsageError(
            f"{storage.public_path(compressed[0])!r} is compressed, so a reader cannot begin in "
            "the middle of it: write it without compression to index it, or name plain files alone"
        )
    if shared := repeated(index_name(name) for name, _ in shards):
        raise UsageError(f"two files would have the index {shared[0]!r}: rename one of them")
    sizes = [storage.file_size(os.path.join(directory, name)) for name, _ in shards]
    advance = adder(progress, "indexing", sum(sizes))
    with machine_faults(os.path.join(directory, "")):
        return [_indexed(directory, name, expected, dali, advance) for name, expected in shards]


def _indexed(
    directory: str,
    name: str,
    expected: str | None,
    dali: str | os.PathLike[str] | None,
    advance: Callable[[int], None],
) -> Indexed:
    path = os.path.join(directory, name)
    index_path = os.path.join(directory, index_name(name))
    storage.make_directory(os.path.dirname(index_path))
    writer = IndexWriter(index_path)
    text = None
    if dali is not None:
        text_path = os.path.join(dali, f"{name}.idx")
        storage.make_directory(os.path.dirname(text_path))
        text = storage.WholeFile(text_path)
    digest, records, nbytes = native.XXH64(0), 0, 0
    try:
        for block in read_blocks(path, compression="", is_once=True):
            digest.update(block.data)
            writer.add(block.data, block.starts)
            if text is not None:
                sizes = np.diff(block.starts, append=len(block.data))
                lines = zip((block.starts + nbytes).tolist(), sizes.tolist(), strict=True)
                text.write("".join(f"{start} {size}\n" for start, size in lines).encode())
            records += len(block.starts)
            nbytes += len(block.data)
            advance(len(block.data))
        xxh64 = f"{digest.intdigest():016x}"
        if expected not in (None, xxh64):
            raise DataError(f"{path!r} does not fit the manifest: run verify to find out why")
        writer.close(xxh64)
        if text is not None:
            text.close()
    except BaseException:
        writer.abort()
        storage.remove_directory(os.path.dirname(index_path))
        if text is not None:
            text.abort()
        raise
    return Indexed(path, writer.path, records, nbytes)
