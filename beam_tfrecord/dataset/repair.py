"""`repair`: writes the intact records of a damaged dataset as a new one and lists its losses."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord._version import __version__
from beam_tfrecord.dataset.salvage import IntactRecords, LostBytes, salvage
from beam_tfrecord.dataset.verify import load_rejects
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from beam_tfrecord.exchange.shard_writers import MASK64, Piece, PieceWriter
from beam_tfrecord.features.feature_spec import schema_pbtxt
from beam_tfrecord.hashes import data_hash, file_hash
from beam_tfrecord.layout import ShardNames, shard_suffix
from beam_tfrecord.manifest import MANIFEST_NAME, Manifest, Shard, Split, manifest_path
from beam_tfrecord.rejects import REJECTS_FILE, REJECTS_SCHEMA, rejects_hash, save_rejects
from beam_tfrecord.storage import is_plain_name, is_remote, put, sync_directory
from beam_tfrecord.workdir.job_file import JOB_NAME, STORED_BYTES, STORED_HASHES, dump_job

_SCHEMA_FILES = ("schema.json", "schema.pbtxt")
_DAMAGED = "damaged"


@dataclasses.dataclass(frozen=True)
class Lost:
    """A loss in one file of the damaged dataset.

    Attributes:
        path: The file.
        start: First lost byte of its record stream; 0 if the complete file is lost.
        stop: Position behind the last lost byte; 0 if the place is unknown.
        most_records: Number of records that were lost there, at most.
        message: The reason, in a few words.
    """

    path: str
    start: int
    stop: int
    most_records: int
    message: str

    def __str__(self) -> str:
        if not self.stop:
            return f"{self.path}: {self.message}"
        place = f"{self.path}: bytes {self.start:,} to {self.stop:,}"
        unsure = "" if self.message == _DAMAGED else f" ({self.message})"
        return f"{place}: at most {_records(self.most_records)} lost{unsure}"


@dataclasses.dataclass(frozen=True)
class Repair:
    """The result of `repair`.

    Attributes:
        manifest: The manifest of the new dataset.
        lost: All losses, in the order of the old manifest.
        lost_examples: By shard, the number of lost examples at least. More cannot be said: a block
            that was written to a wrong place puts intact records in the place of others.
        has_all_examples: True if the new dataset has exactly the old examples, by their hash.
    """

    manifest: Manifest
    lost: tuple[Lost, ...]
    lost_examples: Mapping[str, int]
    has_all_examples: bool

    @property
    def is_whole(self) -> bool:
        """True if nothing is missing and everything is in its place."""
        return not self.lost

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "examples": self.manifest.examples,
            "lost": [dataclasses.asdict(one) for one in self.lost],
            "lost_examples": dict(self.lost_examples),
            "has_all_examples": self.has_all_examples,
        }


@dataclasses.dataclass(frozen=True)
class _SalvagedShard:
    """A shard whose records are not those that were written.

    Attributes:
        shard: The manifest's description of it.
        found: Number of intact records.
        duplicates: Number of these that equal an earlier one.
        lost: The damage.
    """

    shard: Shard
    found: int
    duplicates: int
    lost: Sequence[LostBytes | Lost]

    def losses(self) -> list[Lost]:
        """Return all that may be lost."""
        path, examples = self.shard.path, self.shard.examples
        missing = examples - self.found
        damage = [part for part in self.lost if isinstance(part, LostBytes)]
        # The number of intact records gives the number of missing ones only if the intact ones are
        # among those that were written. Between several places of damage they may not be, unless
        # the frames of the damaged records lead from each to the next.
        is_followed = len(self.lost) <= 1 or (
            len(damage) == len(self.lost) and all(part.is_framed for part in damage)
        )
        is_sure = not any(part.unsure for part in damage)
        is_counted = missing > 0 and not self.duplicates and is_followed and is_sure
        most = missing if is_counted else examples
        losses = [
            _loss_of(self.shard, part, most) if isinstance(part, LostBytes) else part
            for part in self.lost
        ]
        if not is_counted:
            equal = f", {self.duplicates:,} of them equal to others" if self.duplicates else ""
            message = (
                f"found {self.found:,} of {_records(examples)}{equal}: they are not exactly those "
                "that were written; some may be missing, and others there twice or parts of values"
            )
            losses.append(Lost(path, 0, 0, examples, message))
        elif (elsewhere := missing - sum(one.most_records for one in losses)) > 0:
            message = f"{_records(elsewhere)} lost, at an unknown place"
            losses.append(Lost(path, 0, 0, elsewhere, message))
        return losses

    @property
    def least_lost(self) -> int:
        """Number of lost records at least; if as many as written were found, one is another."""
        return (self.shard.examples - self.found) or 1


def repair(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> Repair:
    """Write the intact records of a dataset as a new one, split by split in the same order.

    A record with correct checksums is intact, unless it lies inside of a damaged one, whose
    values may hold framed records too; records for which this cannot be decided are left out, and
    listed. Nothing behind the damage of a gzip stream can be read. Records of blocks that were
    written twice or to a wrong place are intact, too: if the hashes in the manifest show that the
    records are not those that were written, the result says so. The new dataset has the old one's
    schema and settings; if it differs it has no fingerprint, so that `write` never mistakes it for
    its own output. ``job.json`` lists what was lost.

    Args:
        path: The dataset's directory, file prefix, or manifest.
        output: A directory that does not exist or is empty.

    Raises:
        UsageError: There is no dataset, the output is inside of it, or either is remote.
        TargetExists: The output holds something.
        DataError: The manifest is damaged, so that nothing says what the dataset was.
    """
    for place in (path, output):
        if is_remote(place):
            raise UsageError(
                f"{os.fspath(place)!r} is remote: copy the dataset to a local directory, "
                "repair it there, and copy the result back"
            )
    file = manifest_path(path)
    manifest = Manifest.load(path)
    source = os.path.dirname(os.path.abspath(file))
    target = os.path.abspath(os.fspath(output))
    _check_output(source, target)
    os.makedirs(target, exist_ok=True)
    prefix = os.path.basename(file).removesuffix(MANIFEST_NAME)
    repaired = _Repairer(manifest, source, target, prefix).run()
    sync_directory(target)
    put(os.path.join(target, MANIFEST_NAME), repaired.manifest.dumps().encode())
    sync_directory(target)
    return repaired


def _check_output(source: str, target: str) -> None:
    real_source, real_target = os.path.realpath(source), os.path.realpath(target)
    if os.path.commonpath([real_source, real_target]) == real_source:
        raise UsageError(
            f"output {target!r} is inside the dataset that is to be repaired: "
            "choose a directory outside of it"
        )
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise TargetExists(f"output {target!r} is not empty: choose another directory")


class _Repairer:
    """Writes all files of a repaired dataset but its manifest, and collects the losses.

    Args:
        manifest: The manifest of the damaged dataset.
        source: Its directory.
        target: The directory of the new dataset.
        prefix: The beginning of the names of the old dataset's files.
    """

    def __init__(self, manifest: Manifest, source: str, target: str, prefix: str) -> None:
        self._old = manifest
        self._source = source
        self._target = target
        self._prefix = prefix
        self._lost: list[Lost] = []
        self._salvaged: list[_SalvagedShard] = []

    def run(self) -> Repair:
        """Write the files."""
        old = self._old
        pieces: dict[str, Piece] = {}
        splits = {}
        for name, split in old.splits.items():
            named = self._named(list(self._pieces(name, split.shards)))
            pieces |= named
            splits[name] = Split(
                tuple(Shard(p, one.examples, one.bytes, one.xxh64) for p, one in named.items())
            )
        content = f"{sum(piece.content for piece in pieces.values()) & MASK64:016x}"
        examples = sum(piece.examples for piece in pieces.values())
        has_all = not self._salvaged or (examples, content) == (old.examples, old.content)
        for one in self._salvaged:
            message = "no record is lost, but not all are in their places"
            self._lost += [Lost(one.shard.path, 0, 0, 0, message)] if has_all else one.losses()
        fewer = {one.shard.path: one.least_lost for one in self._salvaged if one.least_lost > 0}
        rejects, hashes_of_rejects = self._rejects()
        sidecars = self._sidecars()
        schema = old.schema.without_observed() if self._lost else old.schema
        for name, text in zip(_SCHEMA_FILES, (schema.dumps(), schema_pbtxt(schema)), strict=True):
            sidecars[name] = self._put(name, text.encode())
        manifest = dataclasses.replace(
            old,
            fingerprint="" if self._lost else old.fingerprint,
            content=content,
            schema=schema,
            rejects=rejects,
            sidecars=sidecars,
            splits=splits,
        )
        repaired = Repair(manifest, tuple(self._lost), {} if has_all else fewer, has_all)
        hashes = {path: one.stored_xxh64 for path, one in pieces.items() if one.stored_xxh64}
        job = {
            "repaired": repaired.to_json(),
            "beam_tfrecord": __version__,
            STORED_BYTES: {path: piece.stored_bytes for path, piece in pieces.items()},
            STORED_HASHES: hashes | hashes_of_rejects,
        }
        self._put(JOB_NAME, dump_job(job).encode())
        return repaired

    def _pieces(self, split: str, shards: Sequence[Shard]) -> Iterator[Piece]:
        """Write the intact records of each shard; yield the shards that are not empty."""
        for number, shard in enumerate(shards):
            writer = PieceWriter(self._target, split, (number,), self._old.compression)
            try:
                lost, hashes = self._salvage(shard, writer)
                piece = writer.close()
            except BaseException:
                writer.abort()
                raise
            if piece.xxh64 != shard.xxh64:
                duplicates = len(hashes) - len(np.unique(hashes))
                self._salvaged.append(_SalvagedShard(shard, piece.examples, duplicates, lost))
            if piece.examples:
                yield piece
            else:
                os.remove(piece.path)

    def _salvage(
        self, shard: Shard, writer: PieceWriter
    ) -> tuple[Sequence[LostBytes | Lost], npt.NDArray[np.uint64]]:
        """Write the intact records of a shard; return the damage, and the records' hashes."""
        path = os.path.join(self._source, shard.path)
        if not os.path.isfile(path):
            message = "it is no regular file" if os.path.exists(path) else "the file is missing"
            return [Lost(shard.path, 0, 0, shard.examples, message)], np.empty(0, np.uint64)
        lost: list[LostBytes | Lost] = []
        hashes = [np.empty(0, np.uint64)]
        for part in salvage(path, shard, compression=self._old.compression, scratch=self._target):
            if isinstance(part, IntactRecords):
                hashes.append(writer.write(part.data, part.starts))
            else:
                lost.append(part)
        return lost, np.concatenate(hashes)

    def _named(self, pieces: Sequence[Piece]) -> dict[str, Piece]:
        """Give the shards of a split their names, without gaps."""
        names = ShardNames(shard_suffix(self._old.compression))
        named = {names(p.split, i, len(pieces)): p for i, p in enumerate(pieces)}
        for name, piece in named.items():
            os.replace(piece.path, os.path.join(self._target, name))
        return named

    def _rejects(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Copy the rejects if they are intact; return their entries in manifest and job.json."""
        known = self._old.rejects
        if known.get("rows"):
            name = self._prefix + REJECTS_FILE
            try:
                table = load_rejects(os.path.join(self._source, name))
                if rejects_hash(table) == known.get("xxh64"):
                    path = os.path.join(self._target, REJECTS_FILE)
                    os.makedirs(os.path.dirname(path))
                    return dict(known), {REJECTS_FILE: save_rejects(table, path)}
            except (OSError, DataError):
                pass
            self._lost.append(Lost(name, 0, 0, 0, "the file of rejects is damaged"))
        return {"rows": 0, "xxh64": rejects_hash(REJECTS_SCHEMA.empty_table())}, {}

    def _sidecars(self) -> dict[str, str]:
        """Copy intact sidecars, except those of the schema, and return their hashes."""
        copied = {}
        for old_name, digest in self._old.sidecars.items():
            name = old_name.removeprefix(self._prefix)
            if name in _SCHEMA_FILES:
                continue
            path = os.path.join(self._source, old_name)
            # A name that was read from a file must not decide the directory that is written to.
            if is_plain_name(name) and os.path.isfile(path) and file_hash(path) == digest:
                with open(path, "rb") as file:
                    copied[name] = self._put(name, file.read())
            else:
                self._lost.append(Lost(old_name, 0, 0, 0, "the file is missing or damaged"))
        return copied

    def _put(self, name: str, data: bytes) -> str:
        path = os.path.join(self._target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        put(path, data)
        return data_hash(data)


def _loss_of(shard: Shard, part: LostBytes, most: int) -> Lost:
    message = _DAMAGED
    if part.unsure:
        one = part.unsure == 1
        message = (
            f"of these, {part.unsure:,} {'is' if one else 'are'} left out because "
            f"{'it' if one else 'they'} may be part of a damaged value"
        )
    return Lost(shard.path, part.start, part.stop, min(most, part.most_records), message)


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"
