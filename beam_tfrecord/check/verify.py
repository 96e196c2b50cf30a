"""Checks the files of a dataset, or of a stage (the output of ``extract``), against its manifest.

The manifest lists the files with their counts, sizes and hashes. Each disagreement is a fault.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord import native, storage
from beam_tfrecord.base.progress import Progress, adder, display_of
from beam_tfrecord.base.text import counted
from beam_tfrecord.check.verify_examples import DuplicateFinder, SchemaFit, SplitChecker
from beam_tfrecord.dataset.without_manifest import FileRecords, foreign_files, is_foreign
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash, file_hash, sum_text
from beam_tfrecord.format.job_file import STORED_HASHES, load_job
from beam_tfrecord.format.manifest import BY_BYTES, Manifest, directory_of, manifest_path, prefix_of
from beam_tfrecord.format.manifest_parts import Generation, Shard
from beam_tfrecord.format.rejects import load_rejects, rejects_hash
from beam_tfrecord.format.sort_keys import purpose_seed
from beam_tfrecord.format.stage import StageFile, StageManifest, is_stage
from beam_tfrecord.job_state.job import Target
from beam_tfrecord.native.kernel_types import UInt64Array
from beam_tfrecord.publish.publication import Note
from beam_tfrecord.records.examples import Discovered, merge_discovered
from beam_tfrecord.records.tfrecord import RecordBlock, RecordFault, read_blocks
from beam_tfrecord.sources.base import InputFile

_DUPLICATES_SHOWN = 10
_FAULTS_A_FILE = 100
# Large enough that threads seldom wait for each other, small enough for the shared cache.
_BLOCK_BYTES = 2**22
SCHEMA_FILE = "schema.json"
# Sidecars with these suffixes are small: one that is huge is not read.
_TEXTS = (".json", ".pbtxt")
_SHARD_LIKE = re.compile(r"[^._].*-\d+-of-\d+\.tfrecord(\.gz)?")


@dataclasses.dataclass(frozen=True)
class Fault:
    """One disagreement between a dataset and its manifest."""

    path: str
    where: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.path, self.where, self.message) if part)


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of `verify`."""

    faults: tuple[Fault, ...]
    shards: int = 0
    examples: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if there is no fault."""
        return not self.faults

    def __str__(self) -> str:
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join([*map(str, self.faults), *notes, self.summary])

    @property
    def summary(self) -> str:
        """The numbers of shards, examples and faults, in words."""
        faults = counted(len(self.faults), "fault") if self.faults else "no faults"
        shards, examples = counted(self.shards, "shard"), counted(self.examples, "example")
        return f"verified {shards}, {examples}: {faults}"

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return dataclasses.asdict(self) | {"ok": self.ok}


def verify(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> Verification:
    """Check a dataset, or a stage: every CRC, count, size and hash, the schema, and stray files.

    If the bytes of an example or its group columns decide its split, the split is checked too: of
    every example in shards of up to 4 MiB, of one in 16 in larger shards.

    Every shard is read once; only if splits are wrong are shards read again to locate the examples.
    Several shards are read at a time, and memory is a few blocks per thread.

    Equal examples in several splits are faults if the bytes decide the split, and a note otherwise.
    This check needs 8 bytes for each example outside of the largest split. If there are more than
    64 million such examples, it covers a fixed fraction of them.

    TFRecord files of other programs have no manifest: every CRC is checked, that each record is a
    tf.train.Example, and that each feature has one kind. A note says what cannot be checked.

    Args:
        path: Path of a dataset: directory, manifest or file prefix; or of other TFRecord files.
        threads: Number of shards to read at a time; None means the number of cores.
        progress: True shows a progress bar, and a `Progress` is updated; None shows nothing.

    Returns:
        The faults and the numbers of what was read. A damaged manifest is a fault, too.

    Raises:
        UsageError: There is no dataset at `path`.

    Example:
        >>> bt.verify("penguins/").faults
        ()
    """
    with display_of(progress) as display:
        if is_foreign(path):
            return _verify_foreign(path, threads, display)
        return _verify_stage(path, display) if is_stage(path) else _verify(path, threads, display)


def _verify(
    path: str | os.PathLike[str], threads: int | None, progress: Progress | None
) -> Verification:
    file = manifest_path(path)
    name = os.path.basename(file)
    try:
        manifest = Manifest.load(path)
    except DataError as error:
        return _bad_manifest(file, error)
    checker = _ShardChecker(directory_of(file), manifest, progress)
    checked = checker.check_all(threads)
    faults = [fault for one in checked for fault in one.faults]
    shared = checker.duplicates.shared()
    if not faults:
        # A damaged shard also changes the totals; reporting these would repeat its faults.
        content = sum_text(one.content for one in checked)
        if content != manifest.content:
            message = f"the hash of all examples is {content}, not {manifest.content}"
            faults.append(Fault(name, "content", message))
        if not len(shared):
            faults += checker.split_faults()
    others = _OtherFiles(file, manifest)
    notes = list(others.notes())
    if len(shared) and manifest.split_by == BY_BYTES:
        faults += checker.duplicate_faults(shared)
    elif len(shared):
        notes.append(checker.duplicates.note(shared))
    return Verification(
        faults=(*others.faults(), *faults),
        shards=len(checked),
        examples=sum(one.examples for one in checked),
        bytes=sum(one.bytes for one in checked),
        notes=tuple(notes),
    )


def _bad_manifest(file: str, error: DataError) -> Verification:
    """Return the only fault of a dataset or stage whose manifest cannot be read."""
    message = str(error).replace(file, "the file", 1)
    return Verification((Fault(os.path.basename(file), "", message),))


@dataclasses.dataclass(frozen=True)
class _CheckedShard:
    """The result for one shard: faults, intact examples, bytes, and the sum of their hashes."""

    faults: Sequence[Fault]
    examples: int
    bytes: int
    content: int


class _ShardChecker:
    """Reads shards and checks their records; thread-safe."""

    def __init__(self, directory: str, manifest: Manifest, progress: Progress | None) -> None:
        self._fit = SchemaFit(manifest.schema)
        self.duplicates = DuplicateFinder(manifest)
        self._splits = SplitChecker(manifest)
        self._directory = directory
        self._manifest = manifest
        self._seed = purpose_seed(0, "content")
        self._advance = adder(progress, "verifying", manifest.bytes)

    def check_all(self, threads: int | None) -> list[_CheckedShard]:
        """Return the result for every shard, in the order of the manifest."""
        # `DuplicateFinder` needs the smaller splits first, to look up the largest one in them.
        splits = self._manifest.splits
        order = sorted(splits, key=lambda name: name == self.duplicates.largest)
        shards = [shard for name in order for shard in splits[name].shards]
        with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
            results = pool.map(self._check, shards)
            by_path = {shard.path: one for shard, one in zip(shards, results, strict=True)}
        return [by_path[shard.path] for shard in self._manifest.shards]

    def _blocks(
        self, shard: Shard, on_fault: Callable[[RecordFault], None] = lambda _: None
    ) -> Iterator[RecordBlock]:
        return read_blocks(
            os.path.join(self._directory, shard.path),
            compression=self._manifest.compression,
            block_bytes=_BLOCK_BYTES,
            on_fault=on_fault,
            is_once=True,
        )

    def _hashes(self, block: RecordBlock) -> UInt64Array:
        return native.hash_records(block.data, block.starts, self._seed)

    def _check(self, shard: Shard) -> _CheckedShard:
        """Read a shard and compare its records and totals with the manifest."""
        faults: list[Fault] = []
        stream_hash = native.XXH64(0)
        examples = nbytes = content = 0
        observe_split = self._splits.observer(shard)
        try:
            for block in self._blocks(
                shard, lambda fault: faults.append(Fault(shard.path, fault.where, fault.reason))
            ):
                stream_hash.update(block.data)
                examples += len(block.starts)
                nbytes += len(block.data)
                self._advance(len(block.data))
                hashes = self._hashes(block)
                content += int(hashes.sum(dtype=np.uint64))
                self.duplicates.add(shard.path, hashes)
                observe_split(block)
                if misfit := self._fit.first_misfit(block):
                    record, message = misfit
                    faults.append(Fault(shard.path, f"record {record}", message))
        except (DataError, OSError) as error:
            faults.append(_unreadable(shard.path, error))
        self.duplicates.end_shard(shard.path)
        if not faults:
            totals = _total_faults(shard, examples, nbytes, f"{stream_hash.intdigest():016x}")
            faults += _faults_of(shard.path, totals)
        return _CheckedShard(_first_of(faults), examples, nbytes, content)

    def split_faults(self) -> list[Fault]:
        """Return a fault for each shard with the name or with examples of another split."""
        misnamed = list(self._splits.misnamed())
        misplaced = list(self._splits.misplaced())
        if misplaced and self._manifest.split_by == BY_BYTES:
            # `write` splits examples that it receives encoded by their canonical form.
            splits = SplitChecker(self._manifest, hash_canonical=True)
            for shard in self._manifest.shards:
                observe_split = splits.observer(shard)
                for block in self._blocks(shard):
                    observe_split(block)
            misplaced = list(splits.misplaced())
        return [Fault(path, "", message) for path, message in misnamed + misplaced]

    def duplicate_faults(self, shared: UInt64Array) -> Iterator[Fault]:
        """Yield faults for the first ten examples with these hashes, but of the largest split."""
        places = (
            (shard.path, block.first_record + record)
            for name, split in self._manifest.splits.items()
            if name != self.duplicates.largest
            for shard in split.shards
            for block in self._blocks(shard)
            for record in np.flatnonzero(np.isin(self._hashes(block), shared)).tolist()
        )
        for path, record in itertools.islice(places, _DUPLICATES_SHOWN):
            yield Fault(path, f"record {record}", "another split has the same example")
        if len(shared) > _DUPLICATES_SHOWN:
            all_of = f"{len(shared):,} distinct examples are in more than one split"
            message = f"{all_of}: only the first {_DUPLICATES_SHOWN} of the places are listed"
            yield Fault("", "", message)


def _total_faults(shard: Shard, examples: int, nbytes: int, digest: str) -> Iterator[str]:
    if examples != shard.examples:
        yield f"{counted(examples, 'example')}, the manifest says {shard.examples:,}"
    if nbytes != shard.bytes:
        yield f"{counted(nbytes, 'byte')}, the manifest says {shard.bytes:,}"
    elif digest != shard.xxh64:
        yield f"the hash is {digest}, the manifest says {shard.xxh64}"


class _OtherFiles:
    """Checks all files of a dataset except its shards.

    These are sidecars (such as the schema), the file of rejected rows, ``job.json``, and files that
    are named like shards but are not in the manifest.
    """

    def __init__(self, manifest_file: str, manifest: Manifest) -> None:
        self._directory = directory_of(manifest_file)
        self._prefix = prefix_of(manifest_file)
        self._schema = self._prefix + SCHEMA_FILE
        self._manifest = manifest

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of all of these files."""
        for name, digest in self._manifest.sidecars.items():
            yield from _faults_of(name, self._sidecar_faults(name, digest))
        for one in self._manifest.generations:
            job, *rejects = one.names(self._prefix)
            job_faults = list(self._job_faults(job))
            yield from job_faults
            # A damaged file is not parsed: its wrong hash is already a fault.
            if rejects and not {fault.path for fault in job_faults} & set(rejects):
                yield from _faults_of(rejects[0], self._rejects_faults(one, rejects))
        known = {shard.path for shard in self._manifest.shards} | self._noted()
        alike = _shard_names(known)
        message = "named like a shard of this dataset but not in its manifest: remove it"
        for name in storage.list_names(self._directory):
            # Programs that find shards by their names would read these, too.
            if name not in known and not name.startswith((".", "_")) and alike.fullmatch(name):
                yield Fault(name, "", message)

    def notes(self) -> Iterator[str]:
        """Yield what a missing ``job.json`` leaves unchecked, and what is not published yet."""
        covers_more = self._manifest.compression or self._manifest.rejected_rows
        for one in self._manifest.generations:
            job = one.names(self._prefix)[0]
            if covers_more and not storage.exists(self._path(job)):
                yield (
                    f"{job} is missing: gzip headers and the file of rejects are checked by their "
                    "content alone"
                )
        if names := sorted(self._noted() & set(storage.list_names(self._directory))):
            yield f"{names[0]} is of a job that publishes, or was stopped: run its command again"

    def _noted(self) -> set[str]:
        """Return the names of files that a job has published, or meant to, beside the manifest."""
        target = Target(self._directory, self._prefix[:-1] or None)
        notes = filter(None, map(Note.load, target.leftovers()))
        names = {name for note in notes for _, name, _ in note.shards}
        return names - self._manifest.names(self._prefix)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _sidecar_faults(self, name: str, digest: str) -> Iterator[str]:
        path = self._path(name)
        seen = data_hash(storage.read_small(path)) if name.endswith(_TEXTS) else file_hash(path)
        if seen != digest:
            yield f"the hash is {seen}, the manifest says {digest}"
        elif name == self._schema:
            stored = Schema.loads(storage.read_small(path).decode())
            if stored.without_observed() != self._manifest.schema.without_observed():
                yield "the schema is not that of the manifest"

    def _job_faults(self, name: str) -> Iterator[Fault]:
        try:
            # Damage that is not UTF-8 then changes the text, and so the hash in it.
            job = load_job(storage.read_small(self._path(name)).decode(errors="replace"))
        except FileNotFoundError:
            return
        except OSError as error:
            yield _unreadable(name, error)
            return
        except DataError as error:
            yield Fault(name, "", f"the file {error}")
            return
        for stored, digest in job.get(STORED_HASHES, {}).items():
            # Other checks report missing files.
            if storage.exists(self._path(stored)):
                yield from _faults_of(stored, self._stored_faults(stored, digest, name))

    def _stored_faults(self, name: str, digest: str, job: str) -> Iterator[str]:
        if (seen := file_hash(self._path(name))) != digest:
            yield f"the hash is {seen}, {job} says {digest}"

    def _rejects_faults(self, one: Generation, names: Sequence[str]) -> Iterator[str]:
        known = one.rejects.get("xxh64")
        if (seen := rejects_hash(load_rejects(map(self._path, names)))) != known:
            yield f"the hash is {seen}, the manifest says {known}"


def _first_of(faults: list[Fault]) -> list[Fault]:
    """Return the first faults of a file, and the number of the others."""
    if (more := len(faults) - _FAULTS_A_FILE) <= 0:
        return faults
    return [*faults[:_FAULTS_A_FILE], Fault(faults[0].path, "", f"{more:,} more faults")]


def _faults_of(name: str, messages: Iterator[str]) -> list[Fault]:
    """Return a fault for each message of a check, or one fault if an error stops the check."""
    try:
        return [Fault(name, "", message) for message in messages]
    except (OSError, DataError, UsageError, ValueError) as error:
        return [_unreadable(name, error)]


def _unreadable(name: str, error: Exception) -> Fault:
    if any(isinstance(one, FileNotFoundError) for one in (error, error.__context__)):
        return Fault(name, "", "the file is missing")
    reason = getattr(error, "strerror", None) or str(error)
    return Fault(name, "", f"the file cannot be read: {reason.partition(chr(10))[0]}")


def _shard_names(known: set[str]) -> re.Pattern[str]:
    """Return the pattern of names that look like shards of a dataset.

    If all names in the manifest, `known`, have the usual form ``…-00000-of-00001.tfrecord``, it
    matches every name of this form: a stray shard may be of a split that is not in the manifest.
    Otherwise it matches the names in the manifest with any numbers.
    """
    if all(_SHARD_LIKE.fullmatch(name) for name in known):
        return _SHARD_LIKE
    forms = {re.sub(r"\d+", "0", name) for name in known}
    return re.compile("|".join(re.escape(form).replace("0", r"\d+") for form in sorted(forms)))


def _verify_stage(path: str | os.PathLike[str], progress: Progress | None) -> Verification:
    """Check size, hash and rows of every file of a stage, and find files not in its manifest."""
    file = storage.absolute_path(manifest_path(path))
    try:
        manifest = StageManifest.load(file)
    except DataError as error:
        return _bad_manifest(file, error)
    directory = directory_of(file)
    advance = adder(progress, "verifying", sum(file.bytes for file in manifest.files))
    faults = []
    for part in manifest.files:
        faults += _faults_of(part.path, _stage_file_faults(directory, part))
        advance(part.bytes)
    damaged = {fault.path for fault in faults}
    sound = [file for file in manifest.files if file.path not in damaged]
    known = {file.path for file in manifest.files}
    faults += [
        Fault(name, "", "named like a file of this stage but not in its manifest: remove it")
        for name in storage.list_names(directory)
        if name.startswith("part-") and name.endswith(".parquet") and name not in known
    ]
    return Verification(
        tuple(faults),
        shards=len(manifest.files),
        examples=sum(file.rows for file in sound),
        bytes=sum(file.bytes for file in sound),
    )


def _stage_file_faults(directory: str, file: StageFile) -> Iterator[str]:
    path = os.path.join(directory, file.path)
    nbytes, xxh64 = storage.file_size(path), file_hash(path)
    if nbytes != file.bytes:
        yield f"{counted(nbytes, 'byte')}, the manifest says {file.bytes:,}"
    elif xxh64 != file.xxh64:
        yield f"the hash is {xxh64}, the manifest says {file.xxh64}"
    else:
        with storage.open_read(path, buffer_bytes=0) as opened:
            rows = int(pq.ParquetFile(pa.PythonFile(opened, mode="r")).metadata.num_rows)
        if rows != file.rows:
            yield f"{counted(rows, 'row')}, the manifest says {file.rows:,}"


def _verify_foreign(
    path: str | os.PathLike[str], threads: int | None, progress: Progress | None
) -> Verification:
    """Check TFRecord files: checksums, that records are Examples, and the kinds of features."""
    _, files = foreign_files(path)
    advance = adder(progress, "verifying", sum(file.bytes for file in files))

    def check(file: InputFile) -> tuple[FileRecords, list[Fault]]:
        contents, faults = FileRecords(file), list[Fault]()
        try:
            contents.read(lambda where, reason: faults.append(Fault(file.name, where, reason)))
        except (DataError, OSError) as error:
            faults.append(Fault(file.name, "", str(error)))
        advance(file.bytes)
        return contents, _first_of(faults)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        checked = list(pool.map(check, files))
    faults = [fault for _, of_file in checked for fault in of_file]
    features: Mapping[str, Discovered] = {}
    for contents, _ in checked:
        try:
            features = merge_discovered(features, contents.features)
        except DataError as error:
            faults.append(Fault(contents.file.name, "", str(error)))
    note = (
        "there is no manifest: missing files, records and columns, other values, order and splits "
        "cannot be noticed"
    )
    return Verification(
        tuple(faults),
        shards=len(files),
        examples=sum(contents.records for contents, _ in checked),
        bytes=sum(contents.bytes for contents, _ in checked),
        notes=(note,),
    )
