"""Reads WebDataset shards: tar files in which the files of one sample follow each other.

A *sample* is a row: ``dir/0001.jpg`` and ``dir/0001.cls`` have the key ``dir/0001``, and are the
columns ``jpg`` and ``cls``. The convention: https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import dataclasses
import functools
import re
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import DataError
from beam_tfrecord.format.hashes import name_hash
from beam_tfrecord.sources.base import Chunk, InputFile, Scan
from beam_tfrecord.sources.damaged_files import check_size, incomplete, open_input
from beam_tfrecord.sources.typed_files import (
    Batches,
    Contents,
    OpenTable,
    Piece,
    TypedFiles,
    framing_bytes,
)

_KEY = "__key__"
_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_TEXT = ("txt", "text", "transcript", "json", "jsn")
_INTEGER = ("cls", "cls2", "count", "id", "index", "inx")
_RECORD = tarfile.BLOCKSIZE
_END_BYTES = 2**20
# Rows are read up to this number of bytes at a time.
_BATCH_BYTES = 2**24


class _Sample(NamedTuple):
    """A sample: its key, its members by column, and its first byte and the end of its last."""

    key: str
    members: dict[str, tarfile.TarInfo]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the contents of its files."""
        return sum(member.size for member in self.members.values())


@dataclasses.dataclass(frozen=True)
class WebDataset(TypedFiles):
    """WebDataset shards: tar files without compression; units are ranges of samples."""

    kind: ClassVar[str] = "webdataset"
    suffixes: ClassVar[tuple[str, ...]] = (".tar",)
    title: ClassVar[str] = "tar"
    faults = (tarfile.TarError, EOFError, OSError)
    schema_from_scan: ClassVar[bool] = True

    def scan(self, chunk: Chunk) -> Scan:
        """Read the headers of all members.

        Raises:
            DataError: The file is damaged or compressed, or its samples are in no order.
        """
        file = chunk.file
        counts: Counter[str] = Counter({_KEY: 0})
        sizes: Counter[str] = Counter()
        keys: set[int] = set()

        def piece_of(group: Sequence[_Sample]) -> Piece:
            for sample in group:
                if (key := name_hash(sample.key)) in keys:
                    raise DataError(
                        f"{file.name} has samples whose files are not next to each other: sort the "
                        "names before the file is written (tar --sort=name)"
                    )
                keys.add(key)
                counts.update([_KEY, *sample.members])
                sizes[_KEY] += len(sample.key)
                for column, member in sample.members.items():
                    sizes[column] += member.size
                    if self.reads(column):
                        check_size(member.size, repr(member.name), file)
            start, stop = group[0].start, group[-1].stop
            return Piece(start, stop, len(group), stop - start, sum(one.nbytes for one in group))

        with open_input(file) as raw:
            groups = _grouped(_samples(raw, file, 0, file.bytes), self.piece_bytes)
            try:
                pieces = list(map(piece_of, groups))
            except self.faults as error:
                raise incomplete(file, self.title, error) from error
        wanted = [name for name in counts if self.reads(name)]
        fields = [pa.field(name, _type_of(name), counts[name] < len(keys)) for name in wanted]
        share = sum(sizes[name] for name in wanted) / max(1, sizes.total())
        per_row = framing_bytes(wanted)
        encoded = (int(share * piece.decoded_bytes) + piece.num_rows * per_row for piece in pieces)
        sized = (piece._replace(encoded_bytes=n) for piece, n in zip(pieces, encoded, strict=True))
        return Scan(chunk, Contents(pa.schema(fields), tuple(counts), tuple(sized)))

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        """Join the columns of all shards that have samples.

        Raises:
            SchemaConflict: A shard lacks a column.
            UsageError: No shard has one of `columns`.
        """
        scans = list(inferences)
        filled = [scan for scan in scans if scan.detail.pieces]
        return super().merge(filled or scans)

    def open(self, raw: pa.NativeFile, file: InputFile) -> OpenTable:
        return OpenTable(pa.schema([]), (), functools.partial(_read, raw, file))


def _samples(raw: pa.NativeFile, file: InputFile, start: int, stop: int) -> Iterator[_Sample]:
    """Yield the samples that begin between two bytes of a file."""
    sample: _Sample | None = None
    for member in _members(raw, file, start, stop):
        key, column = _named(member, file)
        end = member.offset_data + -(-member.size // _RECORD) * _RECORD
        if sample is not None and sample.key == key:
            if column in sample.members:
                raise DataError(f"{file.name} has {member.name!r} twice: leave one of them out")
            sample.members[column] = member
            sample = sample._replace(stop=end)
            continue
        if sample is not None:
            yield sample
        sample = _Sample(key, {column: member}, member.offset, end)
    if sample is not None:
        yield sample


def _members(
    raw: pa.NativeFile, file: InputFile, start: int, stop: int
) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files that begin between two bytes.

    `tarfile` takes a damaged header for the end. So all bytes after the last member have to be
    zeros, which mark the end of a tar file, if `stop` is the end of the file.
    """
    raw.seek(start)
    end = start
    if stop:
        tar: Any
        with tarfile.open(fileobj=raw, mode="r:") as tar:
            while (member := tar.next()) is not None and member.offset < stop:
                # Otherwise it keeps all members.
                tar.members.clear()
                end = member.offset_data + -(-member.size // _RECORD) * _RECORD
                if end > file.bytes:
                    raise DataError(
                        f"{file.name} is cut off in {member.name!r}: write the file again"
                    )
                if member.isfile() and not _is_hidden(member.name):
                    yield member
                elif not (member.isfile() or member.isdir()):
                    raise DataError(
                        f"{member.name!r} in {file.name} is a link: write the tar file with "
                        "--dereference"
                    )
    if stop < file.bytes:
        return
    raw.seek(end)
    rest = iter(functools.partial(raw.read, _END_BYTES), b"")
    if file.bytes - end < _RECORD or any(map(any, rest)):
        raise DataError(
            f"{file.name} is damaged or cut off at byte {end:,}, or two tar files follow each "
            "other: there is neither a member nor the end of a tar file: write the file again"
        )


def _is_hidden(name: str) -> bool:
    """Return whether a member is a file of the system, such as ``._x.jpg`` of macOS."""
    return name.rpartition("/")[2].startswith((".", "__"))


def _named(member: tarfile.TarInfo, file: InputFile) -> tuple[str, str]:
    """Return the key and the column of a member."""
    match = _NAME.fullmatch(member.name.removeprefix("./"))
    if match is None:
        raise DataError(
            f"{member.name!r} in {file.name} has no extension, which would be its column: rename "
            "it, or leave it out"
        )
    return match[1], match[2].lower()


def _type_of(column: str) -> pa.DataType:
    last = column.rpartition(".")[2]
    if column == _KEY or last in _TEXT:
        return pa.string()
    return pa.int64() if last in _INTEGER else pa.large_binary()


def _grouped(
    samples: Iterable[_Sample], nbytes: int, rows: int = sys.maxsize
) -> Iterator[list[_Sample]]:
    """Yield neighbouring samples until they have a number of bytes or rows."""
    group: list[_Sample] = []
    for sample in samples:
        group.append(sample)
        if len(group) == rows or sample.stop - group[0].start >= nbytes:
            yield group
            group = []
    if group:
        yield group


def _read(
    raw: pa.NativeFile, file: InputFile, start: int, stop: int, fields: pa.Schema, batch_rows: int
) -> Batches:
    for group in _grouped(_samples(raw, file, start, stop), _BATCH_BYTES, batch_rows):
        arrays = [_column(raw, group, field) for field in fields]
        # One column more keeps the number of rows where there are no others.
        yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(len(group))], [*fields.names, ""])


def _column(raw: pa.NativeFile, samples: Sequence[_Sample], field: pa.Field) -> pa.Array:
    """Return a column of samples; an integer is text, which may not be one."""
    if field.name == _KEY:
        return pa.array([sample.key for sample in samples], field.type)
    data = []
    for sample in samples:
        member = sample.members.get(field.name)
        raw.seek(0 if member is None else member.offset_data)
        data.append(None if member is None else raw.read(member.size))
    array = pa.array(data, pa.large_binary())
    if pa.types.is_integer(field.type):
        return pc.ascii_trim_whitespace(array.cast(pa.binary()).view(pa.string()))
    # Bytes, because text may not be UTF-8.
    return array
