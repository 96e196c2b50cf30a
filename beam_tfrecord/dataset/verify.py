"""`verify`: check everything a manifest says about a dataset against its files."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord import native
from beam_tfrecord.dataset.verify_examples import DuplicateFinder, SchemaFit, SplitChecker
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.hashes import data_hash, file_hash
from beam_tfrecord.jobs.job_file import JOB_NAME, STORED_HASHES, load_job
from beam_tfrecord.manifest import (
    BY_BYTES,
    MANIFEST_NAME,
    Manifest,
    Shard,
    directory_of,
    manifest_path,
)
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.records.blocks import RecordFault, read_blocks
from beam_tfrecord.rejects import REJECTS_FILE, REJECTS_SCHEMA, rejects_hash
from beam_tfrecord.staging.manifest import StageFile, StageManifest, is_stage
from beam_tfrecord.storage import (
    absolute_path,
    exists,
    file_size,
    list_names,
    open_read,
    read_bytes,
    read_small,
)


@dataclasses.dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        path: File, relative to the manifest.
        where: Place within it; empty where the whole file is at fault.
        message: What is wrong.
    """

    path: str
    where: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.path, self.where, self.message) if part)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes:
        faults: What is wrong, in the order of the manifest; empty where all is well.
        shards: Shards read.
        examples: Sound examples read.
        bytes: Size of the record streams read.
        notes: What is no fault but worth knowing.
    """

    faults: tuple[Fault, ...]
    shards: int = 0
    examples: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True where there is no fault."""
        return not self.faults

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return dataclasses.asdict(self) | {"ok": self.ok}


__all__ = ["Fault", "Verification", "verify"]

_CONTENT_BITS = 64
_DUPLICATES_SHOWN = 10


def verify(path: str | os.PathLike[str], *, threads: int | None = None) -> Verification:
    """Check a dataset, or a stage: every CRC, count, size and hash, the schema, and stray files.

    Where the bytes of an example, its group or a column decides its split, that is checked too: of
    every example in shards of up to 4 MiB, of one in 16 in larger ones.

    Every shard is read once, several at a time; memory is a few blocks a thread. Examples that are
    in more than one split with the same bytes are a fault where the bytes decide the split, a note
    where they may be. It takes 8 bytes for each example outside of the largest split and, above 64
    million of them, looks at a fixed part only.

    Args:
        path: The dataset's directory, file prefix, or manifest.
        threads: How many shards to read at a time; None: as many as there are cores.

    Raises:
        UsageError: There is no dataset.
    """
    if is_stage(path):
        return verify_stage(path)
    file = manifest_path(path)
    try:
        manifest = Manifest.load(path)
    except DataError as error:
        return Verification((Fault(os.path.basename(file), "", str(error)),))
    duplicates = DuplicateFinder(manifest)
    splits = SplitChecker(manifest)
    checker = ShardChecker(directory_of(file), manifest, duplicates, splits)
    checked = _check_all(manifest, checker, duplicates.largest, threads)
    others = DatasetFiles(file, manifest)
    faults = [*others.faults(), *(fault for one in checked for fault in one.faults)]
    faults += _content_faults(os.path.basename(file), manifest, checked)
    shared = duplicates.shared()
    if not any(one.faults for one in checked):
        faults += _schema_faults(os.path.basename(file), manifest, checker.unseen_features())
        if not len(shared):
            faults += _split_faults(manifest, checker, splits)
    notes = list(others.notes())
    if len(shared) and manifest.split_by == BY_BYTES:
        faults += _duplicate_faults(manifest, checker, duplicates.largest, shared)
    elif len(shared):
        part = f" (of one in {duplicates.parts} looked at)" if duplicates.parts > 1 else ""
        notes.append(f"{len(shared):,} distinct examples{part} are in more than one split")
    return Verification(
        faults=tuple(faults),
        shards=len(checked),
        examples=sum(one.examples for one in checked),
        bytes=sum(one.bytes for one in checked),
        notes=tuple(notes),
    )


def _check_all(
    manifest: Manifest, checker: ShardChecker, largest: str, threads: int | None
) -> list[CheckedShard]:
    """Return what checking gave, in the order of the manifest."""
    # The largest split last: its examples are looked up among those of the others.
    order = sorted(manifest.splits, key=lambda name: name == largest)
    shards = [shard for name in order for shard in manifest.splits[name].shards]
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        of_path = dict(zip((s.path for s in shards), pool.map(checker.check, shards), strict=True))
    return [of_path[shard.path] for shard in manifest.shards]


def _content_faults(name: str, manifest: Manifest, checked: list[CheckedShard]) -> Iterator[Fault]:
    # A damaged shard has told its own story: the sum over all would only repeat it.
    content = sum(one.content for one in checked) % 2**_CONTENT_BITS
    if not any(one.faults for one in checked) and f"{content:016x}" != manifest.content:
        yield Fault(
            name, "content", f"the hash of all examples is {content:016x}, not {manifest.content}"
        )


def _schema_faults(name: str, manifest: Manifest, unseen: tuple[str, ...]) -> Iterator[Fault]:
    """Yield what the schema says of columns that no example has."""
    for column in unseen:
        observed = manifest.schema[column].observed
        if observed is not None and (having := manifest.examples - observed.missing):
            yield Fault(
                name, f"column {column!r}", f"no example has it, the schema says {having:,}"
            )
    described = [feature.observed is not None for feature in manifest.schema.features]
    if any(described) and not all(described):
        column = manifest.schema.names[described.index(False)]
        yield Fault(
            name, f"column {column!r}", "the schema lacks what was seen when it was written"
        )


def _split_faults(manifest: Manifest, checker: ShardChecker, splits: SplitChecker) -> list[Fault]:
    misnamed = list(splits.misnamed())
    misplaced = list(splits.misplaced())
    if misplaced and manifest.split_by == BY_BYTES:
        # Examples that came encoded were split by their canonical form.
        splits.clear()
        for shard in manifest.shards:
            checker.look_again(shard)
        misplaced = list(splits.misplaced())
    return [Fault(path, "", message) for path, message in misnamed + misplaced]


def _duplicate_faults(
    manifest: Manifest,
    checker: ShardChecker,
    largest: str,
    shared: npt.NDArray[np.uint64],
) -> Iterator[Fault]:
    """Yield where examples are that another split has too, outside of the largest split."""
    places = (
        (shard.path, record)
        for name, split in manifest.splits.items()
        if name != largest
        for shard in split.shards
        for record in checker.records_of(shard, shared)
    )
    for path, record in itertools.islice(places, _DUPLICATES_SHOWN):
        yield Fault(path, f"record {record}", "another split has the same example")
    if len(shared) > _DUPLICATES_SHOWN:
        yield Fault("", "", f"{len(shared):,} distinct examples are in more than one split")


_FAULTS_A_SHARD = 100
# Large enough that threads seldom wait for each other, small enough for the shared cache.
_BLOCK_BYTES = 2**22


@dataclasses.dataclass(frozen=True)
class CheckedShard:
    """What reading one shard gave.

    Attributes:
        faults: What is wrong.
        examples: Sound examples.
        bytes: Size of the sound part of the record stream.
        content: Sum of the hashes of the examples.
    """

    faults: list[Fault]
    examples: int = 0
    bytes: int = 0
    content: int = 0


class ShardChecker:
    """Checks shards; one object serves all threads.

    Args:
        directory: Where the shards are.
        manifest: What is said of them.
        duplicates: Told the hashes of the examples.
        splits: Told what decides their splits.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        duplicates: DuplicateFinder,
        splits: SplitChecker,
    ) -> None:
        self._directory = directory
        self._compression = manifest.compression
        self._fit = SchemaFit(manifest.schema, manifest.examples)
        self._seed = purpose_seed(0, "content")
        self._duplicates = duplicates
        self._splits = splits

    def check(self, shard: Shard) -> CheckedShard:
        """Read a shard and compare it with what the manifest says."""
        faults: list[Fault] = []

        def damaged(fault: RecordFault) -> None:
            faults.append(Fault(shard.path, fault.where, fault.reason))

        path = os.path.join(self._directory, shard.path)
        looks_for_duplicates = self._duplicates.is_needed and shard.examples > 0
        stream_hash = native.XXH64(0)
        examples = nbytes = content = 0
        candidates: list[npt.NDArray[np.uint64]] = []
        look_at_split = self._splits.looker(shard)
        try:
            for block in read_blocks(
                path,
                compression=self._compression,
                block_bytes=_BLOCK_BYTES,
                on_fault=damaged,
                is_once=True,
            ):
                stream_hash.update(block.data)
                examples += len(block.starts)
                nbytes += len(block.data)
                hashes = native.hash_records(block.data, block.starts, self._seed)
                content += int(hashes.sum(dtype=np.uint64))
                if looks_for_duplicates:
                    candidates.append(self._duplicates.candidates(shard.path, hashes))
                look_at_split(block)
                if misfit := self._fit.first_misfit(block):
                    record, message = misfit
                    faults.append(Fault(shard.path, f"record {record}", message))
        except DataError as error:
            is_missing = isinstance(error.__context__, FileNotFoundError)
            message = "the file is missing" if is_missing else str(error)
            faults = [Fault(shard.path, "", message)]
        except OSError as error:
            faults = [Fault(shard.path, "", f"the file cannot be read: {error.strerror}")]
        if looks_for_duplicates:
            self._duplicates.end_shard(shard.path, candidates)
        if not faults:
            faults += _sum_faults(shard, examples, nbytes, f"{stream_hash.intdigest():016x}")
        return CheckedShard(_cut_short(faults), examples, nbytes, content)

    def unseen_features(self) -> tuple[str, ...]:
        """Return the features that the schema says some examples have, and none had."""
        return self._fit.unseen()

    def look_again(self, shard: Shard) -> None:
        """Read a shard for the hashes of its examples in canonical form."""
        look_at_split = self._splits.looker(shard, is_canonical=True)
        path = os.path.join(self._directory, shard.path)
        for block in read_blocks(path, compression=self._compression, on_fault=lambda _: None):
            look_at_split(block)

    def records_of(self, shard: Shard, hashes: npt.NDArray[np.uint64]) -> Iterator[int]:
        """Yield the numbers of the records whose example has one of `hashes`."""
        path = os.path.join(self._directory, shard.path)
        for block in read_blocks(path, compression=self._compression, on_fault=lambda _: None):
            seen = native.hash_records(block.data, block.starts, self._seed)
            for record in np.flatnonzero(np.isin(seen, hashes)).tolist():
                yield block.first_record + record


def _sum_faults(shard: Shard, examples: int, nbytes: int, digest: str) -> Iterator[Fault]:
    if examples != shard.examples:
        yield Fault(shard.path, "", f"{examples:,} examples, the manifest says {shard.examples:,}")
    if nbytes != shard.bytes:
        yield Fault(shard.path, "", f"{nbytes:,} bytes, the manifest says {shard.bytes:,}")
    elif digest != shard.xxh64:
        yield Fault(shard.path, "", f"the hash is {digest}, the manifest says {shard.xxh64}")


def _cut_short(faults: list[Fault]) -> list[Fault]:
    more = len(faults) - _FAULTS_A_SHARD
    if more <= 0:
        return faults
    return [*faults[:_FAULTS_A_SHARD], Fault(faults[0].path, "", f"{more:,} more faults")]


SCHEMA_FILE = "schema.json"
# Ends of the names of files that are small.
_TEXTS = (".json", ".pbtxt")
_SHARD_LIKE = re.compile(r"[^._].*-\d+-of-\d+\.tfrecord(\.gz)?")


class DatasetFiles:
    """The files of a dataset beside its shards.

    Args:
        manifest_file: Path of the manifest, which the names of the others follow.
        manifest: What it says.
    """

    def __init__(self, manifest_file: str, manifest: Manifest) -> None:
        self._directory = directory_of(manifest_file)
        # Of a dataset with a file prefix, that prefix and a dash.
        self._prefix = os.path.basename(manifest_file).removesuffix(MANIFEST_NAME)
        self._manifest = manifest

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of all of them."""
        for name, digest in self._manifest.sidecars.items():
            of_hash = list(self._hash_faults(name, digest, "the manifest"))
            yield from of_hash
            if name == self._prefix + SCHEMA_FILE and not of_hash:
                yield from self._schema_faults(name)
        of_job = list(self._job_faults())
        yield from of_job
        # What is known to be damaged is not worth parsing.
        if self._prefix + REJECTS_FILE not in {fault.path for fault in of_job}:
            yield from self._rejects_faults()
        yield from self._stray_faults()

    def notes(self) -> Iterator[str]:
        """Yield what could not be checked."""
        covers_more = self._manifest.compression or self._manifest.rejects.get("rows")
        if covers_more and not exists(self._path(self._prefix + JOB_NAME)):
            yield (
                f"{self._prefix}{JOB_NAME} is missing: gzip headers and the file of rejects are "
                "checked by their content alone"
            )

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    def _hash_faults(self, name: str, digest: str, source: str) -> Iterator[Fault]:
        try:
            path = self._path(name)
            seen = data_hash(read_small(path)) if name.endswith(_TEXTS) else file_hash(path)
        except (OSError, DataError) as error:
            yield Fault(name, "", f"the file cannot be read: {_reason(error)}")
            return
        if seen != digest:
            yield Fault(name, "", f"the hash is {seen}, {source} says {digest}")

    def _schema_faults(self, name: str) -> Iterator[Fault]:
        try:
            schema = Schema.loads(read_small(self._path(name)).decode())
        except (UsageError, UnicodeDecodeError) as error:
            yield Fault(name, "", f"the file cannot be read: {error}")
            return
        if schema.dumps() != self._manifest.schema.dumps():
            yield Fault(name, "", "the schema is not that of the manifest")

    def _job_faults(self) -> Iterator[Fault]:
        name = self._prefix + JOB_NAME
        try:
            job = load_job(read_small(self._path(name)).decode())
        except FileNotFoundError:
            return
        except OSError as error:
            yield Fault(name, "", f"the file cannot be read: {error.strerror}")
            return
        except (DataError, UnicodeDecodeError) as error:
            yield Fault(name, "", f"the file {_reason(error)}")
            return
        stored: Mapping[str, Any] = job.get(STORED_HASHES, {})
        for path, digest in stored.items():
            # Files that are gone are told where they are read.
            if exists(self._path(path)):
                yield from self._hash_faults(path, digest, name)

    def _rejects_faults(self) -> Iterator[Fault]:
        known = self._manifest.rejects
        name = self._prefix + REJECTS_FILE
        if not known.get("rows"):
            return
        try:
            table = load_rejects(self._path(name))
        except FileNotFoundError:
            yield Fault(name, "", "the file is missing")
            return
        except (OSError, DataError) as error:
            yield Fault(name, "", f"the file cannot be read: {str(error).splitlines()[0]}")
            return
        seen = rejects_hash(table)
        if table.num_rows != known["rows"]:
            yield Fault(name, "", f"{table.num_rows:,} rows, the manifest says {known['rows']:,}")
        elif seen != known.get("xxh64"):
            yield Fault(name, "", f"the hash is {seen}, the manifest says {known.get('xxh64')}")

    def _stray_faults(self) -> Iterator[Fault]:
        """Yield the files that readers who go by names would take for shards."""
        known = {shard.path for shard in self._manifest.shards}
        alike = _shard_names(known)
        for name in list_names(self._directory):
            if name in known or name.startswith((".", "_")):
                continue
            if alike.fullmatch(name):
                yield Fault(
                    name,
                    "",
                    "named like a shard of this dataset but not in its manifest: remove it",
                )


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "was changed after it was written"
    return (getattr(error, "strerror", None) or str(error)).splitlines()[0]


def load_rejects(path: str) -> pa.Table:
    """Read a file of rejects.

    Raises:
        OSError: It cannot be read.
        DataError: It is no file of rejects.
    """
    try:
        table = pq.read_table(pa.BufferReader(read_bytes(path)))
    except (ValueError, pa.ArrowException) as error:
        raise DataError(str(error)) from error
    if not table.schema.equals(REJECTS_SCHEMA):
        raise DataError("it has other columns than a file of rejects")
    return table


def _shard_names(known: set[str]) -> re.Pattern[str]:
    """Return what shards are named like: those of the manifest, but for their numbers.

    A dataset without shards, or one of several splits, may have lost a split: so every usual name
    counts, unless the manifest's own names are of another form.
    """
    if all(_SHARD_LIKE.fullmatch(name) for name in known):
        return _SHARD_LIKE
    forms = {re.sub(r"\d+", "0", name) for name in known}
    return re.compile("|".join(re.escape(form).replace("0", r"\d+") for form in sorted(forms)))


def verify_stage(path: str | os.PathLike[str]) -> Verification:
    """Check size, hash and number of rows of every file of a stage, and that no other lies there.

    Args:
        path: Directory of the stage, or its manifest.
    """
    try:
        manifest = StageManifest.load(path)
    except DataError as error:
        return Verification((Fault(MANIFEST_NAME, "", str(error)),))
    directory = absolute_path(path)
    if directory.endswith(".json"):
        directory = os.path.dirname(directory)
    faults = [fault for file in manifest.files for fault in _faults_of(directory, file)]
    known = {file.path for file in manifest.files}
    faults += [
        Fault(name, "", "is named like a file of this stage but is not in its manifest")
        for name in list_names(directory)
        if name.startswith("part-") and name.endswith(".parquet") and name not in known
    ]
    at_fault = {fault.path for fault in faults}
    sound = [file for file in manifest.files if file.path not in at_fault]
    return Verification(
        tuple(faults),
        shards=len(manifest.files),
        examples=sum(file.rows for file in sound),
        bytes=sum(file.bytes for file in sound),
    )


def _faults_of(directory: str, file: StageFile) -> Iterator[Fault]:
    path = os.path.join(directory, file.path)
    try:
        nbytes, xxh64 = file_size(path), file_hash(path)
    except FileNotFoundError:
        yield Fault(file.path, "", "is missing")
        return
    except (OSError, DataError) as error:
        yield Fault(file.path, "", f"cannot be read: {error}")
        return
    if nbytes != file.bytes:
        yield Fault(file.path, "", f"has {nbytes:,} bytes, the manifest says {file.bytes:,}")
    elif xxh64 != file.xxh64:
        yield Fault(file.path, "", f"has hash {xxh64}, the manifest says {file.xxh64}")
    elif (rows := _rows_in(path)) != file.rows:
        yield Fault(file.path, "", f"has {rows:,} rows, the manifest says {file.rows:,}")


def _rows_in(path: str) -> int:
    with open_read(path, buffer_bytes=0) as file:
        return int(pq.ParquetFile(pa.PythonFile(file, mode="r")).metadata.num_rows)
