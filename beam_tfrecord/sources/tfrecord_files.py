"""Lists TFRecord files and the datasets that they belong to, and reads parts of a file.

A file that a manifest beside it lists is a shard of that dataset, however the file was named: by
the directory of the dataset, by a glob or by its own path. The manifest then says its columns and
its split. All other files are of other programs. Where a file can be split for parallel reading is
found here too; all reading verifies every checksum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord import storage
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import MANIFEST_NAME, Manifest, directory_of, manifest_path
from beam_tfrecord.format.stage import format_at
from beam_tfrecord.native.kernel_types import FAULT_REASONS
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.tfrecord import (
    HEADER_BYTES,
    LENGTH_BYTES,
    RecordBlock,
    RecordFault,
    detect_compression,
    read_blocks,
    read_part,
)
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.damaged_files import incomplete
from beam_tfrecord.sources.files import has_suffix, list_files
from beam_tfrecord.sources.merge_schemas import fields_inside, with_partitions

SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec")

_OF_DATASETS = frozenset(("schema.json", "job.json"))
_FORMATS = "beam_tfrecord/"
_OF_RECORD = re.compile(r"record (\d+): (.*)", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class ShardFile(InputFile):
    """A shard of a dataset, or the manifest of a dataset without shards.

    Its digest is the hash in the manifest, and its `stamp`, too, so that a copy of a dataset is the
    same input.
    """

    manifest: str = ""
    split: str = ""
    examples: int = 0

    @property
    def stamp(self) -> tuple[str, str]:
        return self.digest, ""


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a dataset: its directory, its file prefix or its manifest."""
    text = os.fspath(path)
    if glob.has_magic(text) or text.endswith(SUFFIXES):
        return False
    return format_at(manifest_path(text)).startswith(_FORMATS)


def holds_records(path: str) -> bool:
    """Return whether a file has the name of a TFRecord file, or begins with a record."""
    if has_suffix(path, SUFFIXES):
        return True
    if storage.is_remote(path) or os.path.isfile(path):
        with contextlib.suppress(DataError):
            return next(read_blocks(path, block_bytes=2**16), None) is not None
    return False


def is_incomplete(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a directory of a dataset whose manifest is missing or damaged."""
    text = os.fspath(path)
    if glob.has_magic(text) or not storage.is_directory(text) or is_dataset(text):
        return False
    names = storage.list_names(text)
    if any(name.startswith(".tmp-") for name in names):
        return True
    # One of these alone may be of others, such as a schema beside CSV files.
    found = len(_OF_DATASETS.intersection(names))
    return found > 1 or (found > 0 and any(has_suffix(name, SUFFIXES) for name in names))


def list_records(paths: Sequence[str]) -> Iterator[InputFile]:
    """Yield the TFRecord files that `paths` name, by name; those of datasets as `ShardFile`."""
    named: list[str] = []
    for path in paths:
        if is_incomplete(path):
            # Its shards are not read as files of other programs, which would lose their types.
            Manifest.load(path)
        named += _shards_of(path) if is_dataset(path) else [path]
    datasets = functools.cache(lambda directory: dict(_listed_in(directory)))
    for file in list_files(named, SUFFIXES):
        facts = datasets(os.path.dirname(file.path)).get(file.path)
        yield file if facts is None else _shard_file(facts, file)


def _shards_of(path: str) -> list[str]:
    """Return the paths of the shards of a dataset; its manifest if it has none."""
    file = storage.absolute_path(manifest_path(path))
    shards = [os.path.join(directory_of(file), shard.path) for shard in Manifest.load(file).shards]
    for shard in shards:
        # An object that is missing is noticed when it is listed.
        if not storage.is_remote(shard) and not os.path.isfile(shard):
            raise DataError(f"{shard!r} of its dataset is missing: run verify on {path!r}")
    return shards or [file]


def _listed_in(directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the files that the manifests in a directory list, each with its facts as a shard."""
    for name in storage.list_names(directory):
        file = os.path.join(directory, name)
        # A manifest that is damaged is an error, and the one of another program is ignored.
        is_ours = name.endswith(MANIFEST_NAME) and _FORMATS.encode() in storage.read_small(file)
        if not is_ours or format_at(file).startswith("beam_tfrecord-"):
            continue
        manifest = Manifest.load(file)
        of_dataset = {"manifest": file, "digest": manifest.content}
        yield file, of_dataset
        for split, of in manifest.splits.items():
            for shard in of.shards:
                facts = {"split": split, "examples": shard.examples, "digest": shard.xxh64}
                size = {} if manifest.compression else {"bytes": shard.bytes}
                yield os.path.join(directory, shard.path), of_dataset | facts | size


def _shard_file(facts: dict[str, Any], file: InputFile) -> ShardFile:
    nbytes = facts.get("bytes", file.bytes)
    if nbytes != file.bytes:
        raise DataError(
            f"{file.path!r} has {file.bytes:,} bytes but the manifest of its dataset says "
            f"{nbytes:,}: run verify to find out why"
        )
    return ShardFile(**dataclasses.asdict(file) | facts)


def is_empty_dataset(file: InputFile) -> bool:
    """Return whether a listed file is the manifest of a dataset without shards."""
    return isinstance(file, ShardFile) and file.path == file.manifest


class RecordDetail(NamedTuple):
    """What reading a unit needs besides its bytes: how many records are before it, its split."""

    compression: str
    first_record: int
    split: str


class SplitPoints(NamedTuple):
    """Where a file can be split for parallel reading: its bytes, and the records before each."""

    compression: str
    starts: tuple[int, ...]
    records: tuple[int, ...]


@contextlib.contextmanager
def opened(file: InputFile) -> Iterator[BinaryIO]:
    """Open a file; of an object, the version that was listed."""
    try:
        with storage.open_read(file.path, version=file.version) as stream:
            yield stream
    except FileNotFoundError as error:
        raise file.removed() from error
    except OSError as error:
        raise incomplete(file, "TFRecord", error) from error


def find_split_points(file: InputFile, unit_bytes: int, most_bytes: int) -> SplitPoints:
    """Return where a file can be cut into units of about `unit_bytes`.

    A file of up to `most_bytes` and a compressed file are single units. Others are walked through,
    record by record.
    """
    with opened(file) as stream:
        compression = detect_compression(stream)
    starts, records = [0], [0]
    if not compression and file.bytes > most_bytes:
        # At damage the last unit begins, and reading it finds the damage.
        with contextlib.suppress(DataError):
            for block in blocks_of(file, 0, file.bytes, RecordDetail("", 0, "")):
                positions = block.starts + block.position
                while positions[-1] >= starts[-1] + unit_bytes:
                    index = int(np.searchsorted(positions, starts[-1] + unit_bytes))
                    starts.append(int(positions[index]))
                    records.append(block.first_record + index)
    return SplitPoints(compression, tuple(starts), tuple(records))


def blocks_of(file: InputFile, start: int, stop: int, unit: RecordDetail) -> Iterator[RecordBlock]:
    """Yield the records of a unit in blocks; numbers of records count within the file."""

    def fail(fault: RecordFault) -> None:
        raise _damaged(file, fault, unit.compression)

    with opened(file) as stream:
        yield from read_part(
            stream,
            start,
            stop,
            compression=unit.compression,
            first_record=unit.first_record,
            on_fault=fail,
        )


def _damaged(file: InputFile, fault: RecordFault, compression: str) -> DataError:
    if fault.reason == FAULT_REASONS[2] and not fault.position and not compression:
        with opened(file) as stream:
            has_none = stream.read(HEADER_BYTES)[LENGTH_BYTES:] == bytes(4)
        reason = "it has no checksums" if has_none else "it does not begin with a record"
        return incomplete(file, "TFRecord", ValueError(reason))
    cure = "restore the file, or leave it out"
    if isinstance(file, ShardFile):
        cure = "restore the file, or save its intact records with repair"
    return DataError(f"{file.name} is damaged at {fault.where}: {fault.reason}: {cure}")


class RowReader:
    """Decodes blocks of records of one file."""

    def __init__(self, file: InputFile, schema: pa.Schema, *, union: bool) -> None:
        inside = pa.schema([field for field in schema if field.name not in dict(file.partitions)])
        stored = Schema.from_arrow(inside)
        if isinstance(file, ShardFile):
            stored = Manifest.load(file.manifest).schema
            inside = pa.schema(fields_inside(schema, stored.names, file, union=union))
        self._file = file
        self._schema = schema
        self._inside = inside
        self._decoder = Decoder(stored, inside.names)

    def rows(self, block: RecordBlock) -> pa.RecordBatch:
        """Return the rows of a block."""
        try:
            found = self._decoder.decode(block.data, block.starts)
        except DataError as error:
            raise DataError(self._located(str(error), block)) from error
        for field, array in zip(self._inside, found.columns, strict=True):
            if array.null_count and not field.nullable:
                at = array.is_null().index(True).as_py()
                message = f"record {at}: a value of column {field.name!r} is missing"
                raise DataError(self._located(message, block))
        if len(self._inside):
            found = pa.RecordBatch.from_arrays(found.columns, schema=self._inside)
        return with_partitions(found, self._file, self._schema)

    def _located(self, message: str, block: RecordBlock) -> str:
        """Return a message with the number of the record within the file."""
        first, name = block.first_record, self._file.name
        if (found := _OF_RECORD.match(message)) is not None:
            return f"{name} record {first + int(found[1])}: {found[2]}"
        return f"{name}, in the records from {first} on: {message}"
