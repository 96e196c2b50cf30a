"""The WebDataset source: tar files in which the files of one sample are next to each other.

A *sample* is a row: ``dir/0001.jpg`` and ``dir/0001.cls`` have the key ``dir/0001``, and are the
columns ``jpg`` and ``cls``. The convention: https://github.com/webdataset/webdataset
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError
from beam_tfrecord.hashes import name_hash
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.file_parts import check_size, incomplete, open_input
from beam_tfrecord.sources.typed_files import (
    Block,
    Contents,
    Fault,
    Opened,
    TypedFiles,
    framing_bytes,
    no_rows,
)

_KEY = "__key__"
_NAME = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)")
_TEXT = ("txt", "text", "transcript", "json", "jsn")
_INTEGER = ("cls", "cls2", "count", "id", "index", "inx")
_RECORD = tarfile.BLOCKSIZE
_END_BYTES = 2**20
# Samples are joined to blocks of this part of a unit, so that scans of many are small.
_BLOCKS_IN_UNIT = 16
# Rows are read up to this number of bytes at a time.
_BATCH_BYTES = 2**24


class TarUnit(NamedTuple):
    """The number of rows before a unit in its file, and the columns."""

    first_row: int
    columns: tuple[str, ...]


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
    detail_type: ClassVar[Any] = TarUnit

    def scan(self, chunk: Chunk) -> Scan:
        """Read the headers of all members.

        Raises:
            DataError: The file is damaged or compressed, or its samples are in no order.
        """
        file = chunk.file
        counts: dict[str, int] = {_KEY: 0}
        sizes: dict[str, int] = {_KEY: 0}
        keys: list[int] = []
        blocks: list[Block] = []
        with _opened(file) as raw:
            for group in _grouped(_samples(raw, file, 0, file.bytes), self.unit_bytes):
                for sample in group:
                    keys.append(name_hash(sample.key))
                    counts[_KEY] += 1
                    sizes[_KEY] += len(sample.key)
                    for column, member in sample.members.items():
                        if self.columns is None or column in self.columns:
                            check_size(member.size, repr(member.name), file)
                        counts[column] = counts.get(column, 0) + 1
                        sizes[column] = sizes.get(column, 0) + member.size
                blocks.append(_block(group))
        if len(np.unique(np.array(keys, np.uint64))) < len(keys):
            raise DataError(
                f"{file.name} has samples whose files are not next to each other: sort the names "
                "before the file is written (tar --sort=name)"
            )
        wanted = [name for name in counts if self.columns is None or name in self.columns]
        fields = [
            pa.field(name, _type_of(name), nullable=counts[name] < len(keys)) for name in wanted
        ]
        share = sum(sizes[name] for name in wanted) / max(1, sum(sizes.values()))
        per_row = framing_bytes(wanted)
        blocks = [
            dataclasses.replace(
                block, encoded_bytes=int(share * block.uncompressed_bytes) + block.rows * per_row
            )
            for block in blocks
        ]
        return Scan(chunk, Contents(pa.schema(fields), tuple(counts), tuple(blocks)))

    def detail(self, found: Sequence[Contents], blocks: Sequence[Block], first_row: int) -> TarUnit:
        """Return the detail of the unit of some blocks."""
        return TarUnit(first_row, found[0].names)

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        """Join the columns of all shards that have samples.

        Raises:
            SchemaConflict: A shard lacks a column.
            UsageError: No shard has one of `columns`.
        """
        scans = list(inferences)
        filled = [scan for scan in scans if scan.detail.blocks]
        return super().merge(filled or scans)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the samples of `unit` in order, as batches of exactly `schema`.

        Raises:
            DataError: The file is damaged, or lacks a column.
            SchemaConflict: The type of a column cannot be converted to the type in `schema`.
        """
        # A shard without samples has no columns.
        if not unit.rows:
            return iter([no_rows(unit, schema)])
        return super().read(unit, schema, batch_rows=batch_rows)

    @contextlib.contextmanager
    def opened(self, unit: Unit) -> Iterator[Opened]:
        """Open the file of a unit.

        Raises:
            DataError: The file is damaged; also while its rows are read.
        """
        schema = pa.schema([pa.field(name, _type_of(name)) for name in unit.detail.columns])
        faults: list[Fault] = []
        with _opened(unit.file) as raw:
            rows = functools.partial(_rows, raw, unit, faults)
            yield Opened(schema, unit.detail.first_row, rows, faults=faults)


@contextlib.contextmanager
def _opened(file: InputFile) -> Iterator[pa.NativeFile]:
    """Open a file, and turn errors of `tarfile` into ours."""
    with open_input(file) as raw:
        try:
            yield raw
        except (tarfile.TarError, EOFError, OSError) as error:
            raise incomplete(file, "tar", error) from error


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
    rest = raw.read(_RECORD)
    is_end = len(rest) == _RECORD
    while is_end and rest:
        is_end = not any(rest)
        rest = raw.read(_END_BYTES)
    if not is_end:
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


def _grouped(samples: Iterable[_Sample], unit_bytes: int) -> Iterator[list[_Sample]]:
    """Yield neighbouring samples that become one block."""
    group: list[_Sample] = []
    for sample in samples:
        group.append(sample)
        if group[-1].stop - group[0].start >= unit_bytes // _BLOCKS_IN_UNIT:
            yield group
            group = []
    if group:
        yield group


def _block(group: Sequence[_Sample]) -> Block:
    start, stop = group[0].start, group[-1].stop
    nbytes = sum(sample.nbytes for sample in group)
    return Block(start, stop, len(group), stop - start, nbytes, nbytes)


def _rows(
    raw: pa.NativeFile, unit: Unit, faults: list[Fault], columns: Sequence[str], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the samples of a unit, while `faults` has those of the latest batch."""
    schema = pa.schema([pa.field(name, _type_of(name)) for name in columns])
    rows: list[list[Any]] = []
    nbytes = 0
    for sample in _samples(raw, unit.file, unit.start, unit.stop):
        rows.append([_value(raw, sample, name, len(rows), faults) for name in columns])
        nbytes += sample.nbytes
        if len(rows) == batch_rows or nbytes >= _BATCH_BYTES:
            yield _batch(rows, schema)
            rows, nbytes = [], 0
            faults.clear()
    if rows:
        yield _batch(rows, schema)


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    if not schema.names:
        return pa.RecordBatch.from_arrays([pa.nulls(len(rows))], names=[""])
    arrays = [
        pa.array(list(values), field.type)
        for field, values in zip(schema, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _value(raw: pa.NativeFile, sample: _Sample, column: str, row: int, faults: list[Fault]) -> Any:
    """Return the value of a column of a sample; for one that is not of its type, add a fault."""
    if column == _KEY:
        return sample.key
    member = sample.members.get(column)
    if member is None:
        return None
    raw.seek(member.offset_data)
    data = raw.read(member.size)
    arrow = _type_of(column)
    try:
        if pa.types.is_large_binary(arrow):
            return data
        text = data.decode()
        if pa.types.is_string(arrow):
            return text
        # Python reads 1_000 and digits of other scripts as integers, too.
        if "_" in text or not text.isascii():
            raise ValueError(text)
        return np.int64(int(text))
    except (ValueError, OverflowError):
        expected = "an integer" if pa.types.is_int64(arrow) else "UTF-8 text"
        text = data.decode(errors="backslashreplace")
        faults.append(Fault(row, column, member.name, expected, text))
        return None
