"""Opens TFRecord files that have no manifest, because other programs wrote them."""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import sum_text
from beam_tfrecord.format.layout import ONLY_SPLIT
from beam_tfrecord.format.manifest import Manifest, manifest_path, near_datasets
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.format.sort_keys import purpose_seed
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.records.examples import Discovered, ForeignRecord, merge_discovered, types_in
from beam_tfrecord.records.tfrecord import detect_compression, read_blocks
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.files import has_suffix
from beam_tfrecord.sources.tfrecord import known_records
from beam_tfrecord.sources.tfrecord_files import (
    SUFFIXES,
    RecordDetail,
    ShardFile,
    blocks_of,
    holds_records,
    is_incomplete,
    list_records,
    opened,
)
from beam_tfrecord.storage import exists, is_directory, is_web, list_files, public_path


@dataclasses.dataclass
class FileRecords:
    """What is in the records of one file that were read."""

    file: InputFile
    compression: str = ""
    records: int = 0
    bytes: int = 0
    xxh64: str = ""
    content: int = 0
    features: Mapping[str, Discovered] = dataclasses.field(default_factory=dict)

    def read(self, on_fault: Callable[[str, str], None] | None = None) -> FileRecords:
        """Read all records, and check every checksum.

        A fault is an error, or is passed to `on_fault` as its place and the reason.
        """
        file, digest, seed = self.file, native.XXH64(0), purpose_seed(0, "content")
        self.compression = compression_of(file)
        blocks = blocks_of(file, 0, file.bytes, RecordDetail(self.compression, 0, ""))
        if on_fault is not None:
            blocks = read_blocks(
                file.path, on_fault=lambda fault: on_fault(fault.where, fault.reason), is_once=True
            )
        for block in blocks:
            digest.update(block.data)
            self.records += len(block.starts)
            self.bytes += len(block.data)
            hashes = native.hash_records(block.data, block.starts, seed)
            self.content += int(hashes.sum(dtype=np.uint64))
            try:
                found = types_in(block.data, block.starts, file.name)
                self.features = merge_discovered(self.features, found)
            except ForeignRecord as error:
                where = f"record {block.first_record + error.index}"
                if on_fault is None:
                    raise DataError(f"{file.name} {where}: {error.reason}") from error
                on_fault(where, error.reason)
            except DataError as error:
                if on_fault is None:
                    raise
                on_fault(f"records from {block.first_record} on", str(error))
        self.xxh64 = f"{digest.intdigest():016x}"
        return self


def is_foreign(path: str | os.PathLike[str]) -> bool:
    """Return whether a path names TFRecord files that are not read by a manifest."""
    text = os.fspath(path)
    if is_web(text):
        return has_suffix(text, SUFFIXES)
    if glob.has_magic(text):
        return any(holds_records(file.path) for file in list_records([text]))
    if exists(manifest_path(text)):
        return False
    if is_directory(text):
        found = any(has_suffix(entry.path, SUFFIXES) for entry in list_files(text))
        # Datasets below a directory are named in the error that there is none in it.
        return found and not is_incomplete(text) and not near_datasets(text)
    return has_suffix(text, SUFFIXES) or (exists(text) and holds_records(text))


def foreign_files(path: str | os.PathLike[str]) -> tuple[str, list[InputFile]]:
    """Return the directory that the names of TFRecord files are relative to, and the files."""
    files = list(list_records([os.fspath(path)]))
    if not files[0].path.endswith(files[0].name):
        raise UsageError(
            f"cannot open {public_path(files[0].path)!r}: its URL has a query or escaped letters: "
            "write it as a dataset first"
        )
    return files[0].path.removesuffix(files[0].name), files


def compression_of(file: InputFile) -> str:
    """Return the compression of a file: ``""`` or ``GZIP``."""
    with opened(file) as stream:
        return detect_compression(stream)


def open_foreign(path: str | os.PathLike[str]) -> tuple[str, Manifest]:
    """Return a manifest that describes TFRecord files, and the directory that it is relative to.

    All records are read, and every checksum is checked.
    """
    directory, files = foreign_files(path)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        contents = list(pool.map(lambda file: FileRecords(file).read(), files))
    for file, of in zip(files, contents, strict=True):
        if of.compression != contents[0].compression:
            raise UsageError(
                f"{files[0].name} and {file.name} are not both compressed: name the files of one "
                "kind"
            )
    splits: dict[str, list[Shard]] = {}
    for file, of in zip(files, contents, strict=True):
        split = file.split if isinstance(file, ShardFile) else ONLY_SPLIT
        splits.setdefault(split, []).append(Shard(file.name, of.records, of.bytes, of.xxh64))
    manifest = Manifest(
        content=sum_text(of.content for of in contents),
        compression=contents[0].compression,
        schema=_schema_of(files, contents),
        source={
            "kind": "tfrecord",
            "files": [{"path": file.name, "bytes": file.bytes} for file in files],
        },
        splits={name: Split(tuple(shards)) for name, shards in splits.items()},
    )
    return directory, manifest


def _schema_of(files: list[InputFile], contents: list[FileRecords]) -> Schema:
    known = known_records(files, union=False)
    if known is not None:
        return known.schema.without_observed()
    features: Mapping[str, Discovered] = {}
    for of in contents:
        features = merge_discovered(features, of.features)
    records = sum(of.records for of in contents)
    return Tally(records=records, discovered=features).final_schema()
