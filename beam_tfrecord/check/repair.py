"""Repairs a damaged dataset: writes its intact records as a new dataset, and lists the losses.

A shard is a stream of records. The *frame* of a record is its length before it and the checksums of
both. Where a record is damaged, and its length is not, the next one begins at its end. Otherwise
the next one begins where all checksums of a frame are right. Values that hold framed records make
that ambiguous: then a part of a damaged value may come out as a record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from beam_tfrecord import native, storage
from beam_tfrecord._version import __version__
from beam_tfrecord.base.progress import Progress, adder, display_of
from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from beam_tfrecord.exchange.output_writers import ShardWriter
from beam_tfrecord.features.feature_spec import schema_pbtxt
from beam_tfrecord.format.hashes import data_hash, file_hash, sum_text
from beam_tfrecord.format.layout import ShardNames, shard_suffix
from beam_tfrecord.format.manifest import MANIFEST_NAME, Manifest, manifest_path
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.format.rejects import (
    REJECTS_SCHEMA,
    SAVED_FILE,
    SavedRejects,
    load_rejects,
    rejects_hash,
    save_rejects,
)
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.job_state.worker_errors import machine_faults
from beam_tfrecord.native.kernel_types import Int64Array, UInt8Array
from beam_tfrecord.publish.publication import Publication
from beam_tfrecord.publish.transaction import give_up, put_in_place
from beam_tfrecord.records.shard_index import INDEX_DIRECTORY, index_name
from beam_tfrecord.records.tfrecord import FRAME_BYTES, HEADER_BYTES, payload_bytes

# If a call of the codec finds damage, the bytes that it decompressed before are lost. Small calls
# lose few bytes.
_PIECE_BYTES = 512
_MAX_MORE_BYTES = 2**24
_GZIP_CONTAINER = 31
# The stubs of isal declare its error as an instance.
_CODEC_ERROR = cast(type[Exception], isal_zlib.IsalError)


@dataclasses.dataclass(frozen=True)
class LostBytes:
    """Bytes of a record stream that hold no intact record.

    They are framed if they are exactly one record, by its length.
    """

    start: int
    stop: int
    is_framed: bool

    @property
    def max_records(self) -> int:
        """The most records that the bytes can have held."""
        return 1 if self.is_framed else max(1, (self.stop - self.start) // FRAME_BYTES)


@dataclasses.dataclass(frozen=True, eq=False)
class Intact:
    """Neighbouring intact records: their bytes, and where each begins, shape `[records]`."""

    data: UInt8Array
    starts: Int64Array


def salvage(data: UInt8Array) -> Iterator[Intact | LostBytes]:
    """Yield the intact records of a damaged stream and the lost bytes between them, in order."""
    at = 0
    while at < len(data):
        frames = native.scan_frames(data[at:], True)
        if frames.consumed:
            yield Intact(data[at : at + frames.consumed], frames.starts)
        start = at + frames.consumed
        if start == len(data):
            return
        at, is_framed = _next_record(data, start)
        yield LostBytes(start, at, is_framed)


def _next_record(data: UInt8Array, start: int) -> tuple[int, bool]:
    """Return where a record follows a damaged one, and whether that one's length says so."""
    end = _end_of(data, start)
    if end is not None and (end == len(data) or _end_of(data, end) is not None):
        return end, True
    found = int(native.find_frame(data, start + 1))
    is_cut_off = end is not None and end > len(data) == found
    return found, is_cut_off


def _end_of(data: UInt8Array, start: int) -> int | None:
    """Return the end of the record at a position, if the checksum of its length is right."""
    length = payload_bytes(data[start : start + HEADER_BYTES])
    return None if length is None else start + FRAME_BYTES + length


@contextlib.contextmanager
def record_stream(path: str, shard: Shard, compression: str, scratch: str) -> Iterator[UInt8Array]:
    """Map the record stream of a shard into memory, as far as it can be decompressed."""
    if not compression:
        yield _mapped(path)
        return
    with tempfile.NamedTemporaryFile(dir=scratch) as plain:
        for piece in _decompressed(path):
            plain.write(piece)
            # A small forged file can decompress to any number of bytes.
            if plain.tell() > 2 * shard.bytes + _MAX_MORE_BYTES:
                break
        plain.flush()
        yield _mapped(plain.name)


def _decompressed(path: str) -> Iterator[bytes]:
    """Yield the decompressed members of a gzip file, up to its end or its first damage."""
    codec = isal_zlib.decompressobj(wbits=_GZIP_CONTAINER)
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            while piece:
                try:
                    yield codec.decompress(piece)
                except _CODEC_ERROR:
                    return
                piece = codec.unused_data
                if codec.eof:
                    codec = isal_zlib.decompressobj(wbits=_GZIP_CONTAINER)


def _mapped(path: str) -> UInt8Array:
    # An empty file cannot be mapped.
    if not os.path.getsize(path):
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r")


_SCHEMA_FILES = ("schema.json", "schema.pbtxt")
_DAMAGED = "damaged"


@dataclasses.dataclass(frozen=True)
class Lost:
    """A loss in one file of the damaged dataset."""

    path: str
    start: int
    stop: int
    most_records: int
    message: str

    def __str__(self) -> str:
        if not self.stop:
            return f"{self.path}: {self.message}"
        where = f"{self.path}: bytes {self.start:,} to {self.stop:,}"
        return f"{where}: at most {counted(self.most_records, 'record')} lost"


@dataclasses.dataclass(frozen=True)
class Repair:
    """The result of `repair`."""

    manifest: Manifest
    lost: tuple[Lost, ...]
    lost_examples: Mapping[str, int]
    has_all_examples: bool

    @property
    def is_whole(self) -> bool:
        """True if nothing is missing and all records are in their old positions."""
        return not self.lost

    def __str__(self) -> str:
        return "\n".join([*map(str, self.lost), self.summary])

    @property
    def summary(self) -> str:
        """The numbers of written and of lost examples, in words."""
        fewer = sum(self.lost_examples.values())
        if self.has_all_examples:
            lost = "no example lost"
        elif fewer:
            lost = f"at least {counted(fewer, 'example')} lost"
        else:
            lost = "more than the dataset originally had: some may be missing, others duplicated"
        return f"wrote {counted(self.manifest.examples, 'intact example')}, {lost}"

    def to_json(self) -> dict[str, Any]:
        """Return the losses and the number of examples as a JSON object."""
        return {
            "examples": self.manifest.examples,
            "lost": [dataclasses.asdict(one) for one in self.lost],
            "lost_examples": dict(self.lost_examples),
            "has_all_examples": self.has_all_examples,
        }


@dataclasses.dataclass(frozen=True)
class _SalvagedShard:
    """A shard whose hash no longer matches."""

    shard: Shard
    problem: str
    bytes: int
    found: int
    duplicates: int
    damage: Sequence[LostBytes]

    def losses(self) -> list[Lost]:
        """Return all losses that are certain or possible."""
        path, examples = self.shard.path, self.shard.examples
        if self.problem:
            return [Lost(path, 0, 0, examples, self.problem)]
        missing = examples - self.found
        is_counted = missing > 0 and not self.duplicates and self._has_no_doubt()
        most = missing if is_counted else examples
        losses = [
            Lost(path, part.start, part.stop, min(most, part.max_records), _DAMAGED)
            for part in self.damage
        ]
        if not is_counted:
            equal = f", {self.duplicates:,} of them equal to others" if self.duplicates else ""
            message = (
                f"found {self.found:,} of {counted(examples, 'record')}{equal}: they do not match "
                "the shard's hash; some may be missing, duplicated, or bytes inside another "
                "record's value"
            )
            losses.append(Lost(path, 0, 0, examples, message))
        elif (elsewhere := missing - sum(one.most_records for one in losses)) > 0:
            where = " at an unknown position"
            if self.bytes < self.shard.bytes:
                where = f": the data ends at byte {self.bytes:,} of {self.shard.bytes:,}"
            message = f"{counted(elsewhere, 'record')} lost{where}"
            losses.append(Lost(path, 0, 0, elsewhere, message))
        return losses

    def _has_no_doubt(self) -> bool:
        """Return whether no part of a damaged value can be among the records that were found.

        It would end before the checksum of its own record, so bytes are lost behind it, too.
        """
        if all(part.is_framed for part in self.damage):
            return True
        (first, *others) = self.damage
        return not others and (self.bytes == self.shard.bytes or first.stop == self.bytes)

    @property
    def min_lost(self) -> int:
        """`examples - found`, or 1 if these are equal, since the hash differs.

        It is negative if more records were found than were written.
        """
        return (self.shard.examples - self.found) or 1


def repair(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    progress: Progress | bool | None = None,
) -> Repair:
    """Write the intact records of a dataset as a new one, split by split in the same order.

    A record with correct checksums is intact. Values may hold framed records, too: where the length
    of a damaged record is damaged, those inside of its value come out as records. So do records of
    blocks that were written twice or to a wrong position. The result says so, since the hashes in
    the manifest show that they are not the records that were written. Nothing after the damage of a
    gzip stream can be read.

    The new dataset has the schema and settings of the old one. If it differs from the old one, it
    has no fingerprint, so that `write` never mistakes it for its own output. ``job.json`` lists the
    losses.

    Args:
        path: Path of the dataset's directory, its manifest, or its file prefix.
        output: Path of a directory that does not exist or is empty.
        progress: True shows a progress bar, and a `Progress` is updated; None shows nothing.

    Returns:
        The new manifest and the losses.

    Raises:
        UsageError: There is no dataset, the output is inside the dataset, or either is remote.
        TargetExists: The output is not empty.
        DataError: The manifest is damaged, so that the contents of the dataset are unknown.
        StorageError: The disk is full, or a file cannot be read or written.

    Example:
        >>> bt.repair("penguins/", "repaired/").lost
        ()
    """
    for location in (path, output):
        if storage.is_remote(location):
            raise UsageError(
                f"{os.fspath(location)!r} is remote: copy the dataset to a local directory, "
                "repair it there, and copy the result back"
            )
    file = manifest_path(path)
    manifest = Manifest.load(path)
    source = os.path.dirname(os.path.abspath(file))
    target = os.path.abspath(os.fspath(output))
    to = Target(target)
    job = Job(to, to.temporary("repair"))
    _check_output(source, job)
    os.makedirs(target, exist_ok=True)
    prefix = os.path.basename(file).removesuffix(MANIFEST_NAME)
    with (
        display_of(progress) as display,
        machine_faults(to.manifest),
        storage.lease(target) as held,
    ):
        give_up(to, job.directory)
        storage.make_directory(job.directory)
        try:
            advance = adder(display, "repairing", manifest.bytes)
            repaired, publication = _Repairer(manifest, source, job, prefix, advance).run()
        except BaseException:
            storage.remove_tree(job.directory)
            raise
        put_in_place(publication, held)
        storage.remove_tree(job.directory)
    return repaired


def _check_output(source: str, job: Job) -> None:
    target = job.target.directory
    real_source, real_target = os.path.realpath(source), os.path.realpath(target)
    if os.path.commonpath([real_source, real_target]) == real_source:
        raise UsageError(
            f"output {target!r} is inside the dataset that is to be repaired: "
            "choose a directory outside of it"
        )
    # What a repair that was killed has left may be there, and the lock of one that runs.
    is_free = os.path.isdir(job.directory) and not os.path.exists(job.target.manifest)
    is_file = os.path.exists(target) and not os.path.isdir(target)
    if is_file or not (is_free or {*storage.list_names(target)} <= {".lock"}):
        raise TargetExists(f"output {target!r} is not empty: choose another directory")


@dataclasses.dataclass
class _Repairer:
    """Writes all files of a repaired dataset except its manifest, and collects the losses."""

    old: Manifest
    source: str
    job: Job
    prefix: str
    advance: Callable[[int], None]
    lost: list[Lost] = dataclasses.field(default_factory=list)
    salvaged: list[_SalvagedShard] = dataclasses.field(default_factory=list)

    def run(self) -> tuple[Repair, Publication]:
        """Write the files; return the result with the new manifest, and what is to be published."""
        finished: dict[str, FinishedShard] = {}
        splits = {}
        names = ShardNames(shard_suffix(self.old.compression))
        for name, split in self.old.splits.items():
            new = list(self._salvage(name, split.shards))
            named = {names(name, number, len(new)): one for number, one in enumerate(new)}
            finished |= named
            splits[name] = Split(
                tuple(Shard(p, one.examples, one.bytes, one.xxh64) for p, one in named.items())
            )
        content = sum_text(one.content for one in finished.values())
        examples = sum(one.examples for one in finished.values())
        has_all = not self.salvaged or (examples, content) == (self.old.examples, self.old.content)
        for one in self.salvaged:
            message = "no record is lost, but some are not in their original position"
            self.lost += [Lost(one.shard.path, 0, 0, 0, message)] if has_all else one.losses()
        fewer = {one.shard.path: one.min_lost for one in self.salvaged if one.min_lost > 0}
        rejects, sidecars = self._rejects(), self._sidecars()
        schema = self.old.schema.without_observed() if self.lost else self.old.schema
        for name, text in zip(
            _SCHEMA_FILES, (schema.without_observed().dumps(), schema_pbtxt(schema)), strict=True
        ):
            sidecars[name] = text.encode()
        hashes = {name: data_hash(data) for name, data in sidecars.items()}
        hashes |= {
            index_name(name): one.index_xxh64 for name, one in finished.items() if one.index_xxh64
        }
        manifest = dataclasses.replace(
            self.old,
            fingerprint="" if self.lost or self.old.appended else self.old.fingerprint,
            job_files=(),
            appended=(),
            content=content,
            schema=schema,
            rejects={"rows": rejects.rows, "xxh64": rejects.xxh64},
            sidecars=hashes,
            splits=splits,
        )
        repaired = Repair(manifest, tuple(self.lost), {} if has_all else fewer, has_all)
        info = {"repaired": repaired.to_json(), "beam_tfrecord": __version__}
        text, shards = manifest.dumps(), list(finished.items())
        return repaired, Publication(self.job, shards, text, sidecars, rejects, info)

    def _salvage(self, split: str, shards: Sequence[Shard]) -> Iterator[FinishedShard]:
        """Write the intact records of each shard to a new file; yield those that are not empty."""
        for number, shard in enumerate(shards):
            path = os.path.join(self.source, shard.path)
            problem = "" if os.path.isfile(path) else "the file is missing"
            if problem and os.path.exists(path):
                problem = "it is not a regular file"
            writer = ShardWriter(self.job.directory, split, (number,), self.old.compression)
            damage: list[LostBytes] = []
            read_bytes = 0
            hashes = [np.empty(0, np.uint64)]
            try:
                if not problem:
                    scratch = self.job.directory
                    with record_stream(path, shard, self.old.compression, scratch) as data:
                        read_bytes = len(data)
                        for part in salvage(data):
                            if isinstance(part, LostBytes):
                                damage.append(part)
                            else:
                                hashes.append(writer.write(part.data, part.starts))
                new = writer.close()
            except BaseException:
                writer.abort()
                raise
            if new.xxh64 != shard.xxh64:
                duplicates = new.examples - len(np.unique(np.concatenate(hashes)))
                self.salvaged.append(
                    _SalvagedShard(shard, problem, read_bytes, new.examples, duplicates, damage)
                )
            self.advance(shard.bytes)
            if new.examples:
                yield new
            else:
                os.remove(new.path)
                if new.index_xxh64:
                    os.remove(new.index_path)

    def _rejects(self) -> SavedRejects:
        """Copy the file of rejected rows if it is intact, or add a loss."""
        tables, rows = [REJECTS_SCHEMA.empty_table()], 0
        for one in self.old.generations:
            _, *names = one.names(self.prefix)
            try:
                table = load_rejects(os.path.join(self.source, name) for name in names)
            except (OSError, DataError):
                table = None
            if names and (table is None or rejects_hash(table) != one.rejects.get("xxh64")):
                self.lost.append(Lost(names[0], 0, 0, 0, "the file of rejects is damaged"))
            elif names:
                tables.append(table)
                rows += one.rejects["rows"]
        if rows:
            joined = pa.concat_tables(tables)
            stored = save_rejects(joined, os.path.join(self.job.directory, SAVED_FILE))
            return SavedRejects(rows, rejects_hash(joined), stored)
        return SavedRejects(0, rejects_hash(REJECTS_SCHEMA.empty_table()), "")

    def _sidecars(self) -> dict[str, bytes]:
        """Copy intact sidecars but schema and indexes; add damaged ones to `lost`."""
        copied: dict[str, bytes] = {}
        for old_name, digest in self.old.sidecars.items():
            name = old_name.removeprefix(self.prefix)
            # These are made anew.
            if name in _SCHEMA_FILES or name.startswith(INDEX_DIRECTORY):
                continue
            path = os.path.join(self.source, old_name)
            # A name from a damaged manifest must not lead out of the new directory.
            if storage.is_plain_name(name) and os.path.isfile(path) and file_hash(path) == digest:
                with open(path, "rb") as file:
                    copied[name] = file.read()
            else:
                self.lost.append(Lost(old_name, 0, 0, 0, "the file is missing or damaged"))
        return copied
