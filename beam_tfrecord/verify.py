"""`verify`: check everything a manifest says about a dataset against its files."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.manifest import Manifest, Shard, manifest_path
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.reader_blocks import RecordFault, read_blocks
from beam_tfrecord.verify_fit import SchemaFit

UInt64Array = npt.NDArray[np.uint64]

# 64 million hashes of 8 bytes: 0.5 GB, sorted in place.
MAX_HASHES = 2**26
_FAULTS_A_SHARD = 100
_CONTENT_BITS = 64
_SHARD_LIKE = re.compile(r"[^._].*-\d+-of-\d+\.tfrecord(\.gz)?")


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


@dataclasses.dataclass(frozen=True)
class _Checked:
    """What reading one shard gave; `hashes` are those kept to find duplicates."""

    faults: list[Fault]
    examples: int = 0
    bytes: int = 0
    content: int = 0
    hashes: UInt64Array = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))


def verify(path: str | os.PathLike[str], *, threads: int | None = None) -> Verification:
    """Check a dataset: every CRC, count, size and hash, the schema, and stray files.

    Every shard is read once, several at a time; memory is a few blocks a thread. Where rows of one
    dataset are in more than one split with the same bytes, a note says so; it keeps 8 bytes an
    example and, above 64 million examples, looks at a fixed part of them only.

    Args:
        path: The dataset's directory, file prefix, or manifest.
        threads: How many shards to read at a time; None: as many as there are cores.

    Raises:
        UsageError: There is no dataset.
    """
    file = manifest_path(path)
    directory = os.path.dirname(os.path.abspath(file))
    try:
        manifest = Manifest.load(path)
    except DataError as error:
        return Verification((Fault(os.path.basename(file), "", str(error)),))
    checker = _ShardChecker(directory, manifest)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        checked = list(pool.map(checker.check, manifest.shards))
    faults = list(_sidecar_faults(directory, manifest))
    faults += [fault for one in checked for fault in one.faults]
    # A damaged shard has told its own story: the sum over all would only repeat it.
    content = sum(one.content for one in checked) % 2**_CONTENT_BITS
    if not any(one.faults for one in checked) and f"{content:016x}" != manifest.content:
        faults.append(
            Fault(
                os.path.basename(file),
                "content",
                f"the hash of all examples is {content:016x}, not {manifest.content}",
            )
        )
    faults += _stray_faults(directory, manifest)
    return Verification(
        faults=tuple(faults),
        shards=len(checked),
        examples=sum(one.examples for one in checked),
        bytes=sum(one.bytes for one in checked),
        notes=tuple(_duplicate_notes(manifest, checked)),
    )


class _ShardChecker:
    """Checks shards; one object serves all threads."""

    def __init__(self, directory: str, manifest: Manifest) -> None:
        self._directory = directory
        self._compression = manifest.compression
        self._fit = SchemaFit(manifest.schema)
        self._seed = purpose_seed(0, "content")
        self._keep_mask = duplicate_mask(manifest)

    def check(self, shard: Shard) -> _Checked:
        """Read a shard and compare it with what the manifest says."""
        faults: list[Fault] = []

        def damaged(fault: RecordFault) -> None:
            faults.append(Fault(shard.path, fault.where, fault.reason))

        path = os.path.join(self._directory, shard.path)
        stream_hash = native.XXH64(0)
        examples = nbytes = content = 0
        kept: list[UInt64Array] = []
        try:
            for block in read_blocks(path, compression=self._compression, on_fault=damaged):
                stream_hash.update(block.data)
                examples += len(block.starts)
                nbytes += len(block.data)
                hashes = native.hash_records(block.data, block.starts, self._seed)
                content += int(hashes.sum(dtype=np.uint64))
                if self._keep_mask is not None:
                    kept.append(hashes[hashes & self._keep_mask == 0])
                if misfit := self._fit.first_misfit(block):
                    record, message = misfit
                    faults.append(Fault(shard.path, f"record {record}", message))
        except DataError:
            return _Checked([Fault(shard.path, "", "the file is missing")])
        except OSError as error:
            return _Checked([Fault(shard.path, "", f"the file cannot be read: {error.strerror}")])
        if not faults:
            faults += _sum_faults(shard, examples, nbytes, f"{stream_hash.intdigest():016x}")
        return _Checked(
            _cut_short(faults), examples, nbytes, content, np.concatenate(kept or [_no_hashes()])
        )


def _no_hashes() -> UInt64Array:
    return np.empty(0, dtype=np.uint64)


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


def _sidecar_faults(directory: str, manifest: Manifest) -> Iterator[Fault]:
    for name, digest in manifest.sidecars.items():
        try:
            with open(os.path.join(directory, name), "rb") as file:
                seen = f"{native.xxh64(file.read(), 0):016x}"
        except OSError as error:
            yield Fault(name, "", f"the file cannot be read: {error.strerror}")
            continue
        if seen != digest:
            yield Fault(name, "", f"the hash is {seen}, the manifest says {digest}")


def _stray_faults(directory: str, manifest: Manifest) -> Iterator[Fault]:
    """Yield the files that readers who go by names would take for shards."""
    known = {shard.path for shard in manifest.shards}
    alike = _shard_names(known)
    for name in sorted(os.listdir(directory)):
        if name in known or name.startswith((".", "_")):
            continue
        if alike.fullmatch(name):
            yield Fault(
                name, "", "named like a shard of this dataset but not in its manifest: remove it"
            )


def _shard_names(known: set[str]) -> re.Pattern[str]:
    """Return what shards are named like: those of the manifest, but for their numbers.

    A dataset without shards, or one of several splits, may have lost a split: so every usual name
    counts, unless the manifest's own names are of another form.
    """
    if all(_SHARD_LIKE.fullmatch(name) for name in known):
        return _SHARD_LIKE
    forms = {re.sub(r"\d+", "0", name) for name in known}
    return re.compile("|".join(re.escape(form).replace("0", r"\d+") for form in sorted(forms)))


def duplicate_mask(manifest: Manifest) -> np.uint64 | None:
    """Return the hash bits that must be zero for an example to be looked at for duplicates.

    None: not at all, since there is one split or columns decide it.
    """
    filled = [split for split in manifest.splits.values() if split.examples]
    if len(filled) < 2 or manifest.group is not None or manifest.key is not None:
        return None
    parts = 1
    while manifest.examples // parts > MAX_HASHES:
        parts *= 2
    return np.uint64(parts - 1)


def _duplicate_notes(manifest: Manifest, checked: list[_Checked]) -> Iterator[str]:
    mask = duplicate_mask(manifest)
    if mask is None:
        return
    of_shard: Mapping[str, UInt64Array] = {
        shard.path: one.hashes for shard, one in zip(manifest.shards, checked, strict=True)
    }
    each = [
        np.unique(np.concatenate([of_shard[shard.path] for shard in split.shards]))
        for split in manifest.splits.values()
        if split.shards
    ]
    together = np.sort(np.concatenate(each))
    shared = np.unique(together[1:][together[1:] == together[:-1]])
    if len(shared):
        part = f" (of one in {int(mask) + 1} looked at)" if mask else ""
        yield f"{len(shared):,} distinct examples{part} are in more than one split"
