"""`repair`: the intact records of a damaged dataset, as a new dataset, and what was lost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord._version import __version__
from beam_tfrecord.dataset.salvage import IntactRecords, LostBytes, salvage
from beam_tfrecord.dataset.verify import load_rejects
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from beam_tfrecord.exchange.merge import MASK64, Piece, PieceWriter
from beam_tfrecord.features.tfmd import schema_pbtxt
from beam_tfrecord.hashes import data_hash, file_hash
from beam_tfrecord.jobs.job_file import JOB_NAME, STORED_BYTES, STORED_HASHES, dump_job
from beam_tfrecord.manifest import MANIFEST_NAME, Manifest, Shard, Split, manifest_path
from beam_tfrecord.rejects import REJECTS_FILE, REJECTS_SCHEMA, rejects_hash, save_rejects
from beam_tfrecord.shards import ShardNames, shard_suffix
from beam_tfrecord.storage import is_plain_name, is_remote, put, sync_directory

UInt64Array = npt.NDArray[np.uint64]

_SCHEMA_FILES = ("schema.json", "schema.pbtxt")
_DAMAGED = "damaged"


@dataclasses.dataclass(frozen=True)
class Lost:
    """What one file of the damaged dataset lost.

    Attributes:
        path: The file.
        start: First lost byte of its record stream; 0 where the whole file is lost.
        stop: Byte behind the last.
        most_records: How many records were lost there, at most.
        message: Why, in a few words.
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
    """What `repair` did.

    Attributes:
        manifest: Of the new dataset.
        lost: What it lacks, in the order of the old manifest.
        lost_examples: By shard, how many examples it lacks at least. Bytes cannot tell more: a
            block that was written to a wrong place brings sound records in the place of others.
        has_all_examples: True where it has exactly the examples of the old dataset, by their hash.
    """

    manifest: Manifest
    lost: tuple[Lost, ...]
    lost_examples: Mapping[str, int]
    has_all_examples: bool

    @property
    def is_whole(self) -> bool:
        """True where everything is there, and in its place."""
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
class _Differing:
    """A shard of which something else was found than was written.

    Attributes:
        shard: What was written.
        found: How many records were.
        copies: How many of these are equal to an earlier one.
        lost: What is damaged.
    """

    shard: Shard
    found: int
    copies: int
    lost: tuple[LostBytes | Lost, ...]

    def losses(self) -> list[Lost]:
        """Return all that may be lost."""
        path, examples = self.shard.path, self.shard.examples
        missing = examples - self.found
        # The number of records that were found tells how many are missing only where these are
        # some of those that were written: between several places of damage they need not be,
        # unless the frames of the damaged ones lead from each to the next.
        is_followed = len(self.lost) <= 1 or all(
            isinstance(part, LostBytes) and part.is_framed for part in self.lost
        )
        is_sure = not any(isinstance(part, LostBytes) and part.unsure for part in self.lost)
        is_counted = missing > 0 and not self.copies and is_followed and is_sure
        most = missing if is_counted else examples
        losses = [
            _lost_of(self.shard, part, most) if isinstance(part, LostBytes) else part
            for part in self.lost
        ]
        if not is_counted:
            copies = f", {self.copies:,} of them equal to others" if self.copies else ""
            message = (
                f"found {self.found:,} of {_records(examples)}{copies}: they are not exactly those "
                "that were written; some may be missing, and others there twice or parts of values"
            )
            losses.append(Lost(path, 0, 0, examples, message))
        elif (elsewhere := missing - sum(one.most_records for one in losses)) > 0:
            message = f"{_records(elsewhere)} lost, nothing tells where"
            losses.append(Lost(path, 0, 0, elsewhere, message))
        return losses

    @property
    def least_lost(self) -> int:
        """How many of the records are lost at least; where as many were found, one is another."""
        missing = self.shard.examples - self.found
        return missing if missing else 1


def repair(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> Repair:
    """Write the intact records of a dataset as a new one, split by split in the same order.

    Records whose checksums are right are intact, unless they lie inside of a damaged one, whose
    values may hold framed records too; where nothing tells which they are, they are left out, and
    listed. Of a damaged gzip stream nothing behind the damage can be read. Records of blocks that
    were written twice or to a wrong place are sound, too: where the hashes in the manifest say that
    the records are not those that were written, this is told. The new dataset has the old one's
    schema and settings; where it differs it has no fingerprint, so that `write` never takes it for
    what it would write. ``job.json`` lists what was lost.

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
    job = _Repairing(manifest, source, target)
    repaired = job.run(os.path.basename(file).removesuffix(MANIFEST_NAME))
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


class _Repairing:
    """One repair: what was found so far, and where it goes."""

    def __init__(self, manifest: Manifest, source: str, target: str) -> None:
        self._old = manifest
        self._source = source
        self._target = target
        self._lost: list[Lost] = []
        self._differing: list[_Differing] = []

    def run(self, prefix: str) -> Repair:
        """Write all files but the manifest.

        Args:
            prefix: Of the names of the old dataset's files.
        """
        old = self._old
        pieces = {
            name: list(self._pieces(name, split.shards)) for name, split in old.splits.items()
        }
        splits = {name: Split(tuple(self._named(found))) for name, found in pieces.items()}
        every = [piece for found in pieces.values() for piece in found]
        stored = dict(
            zip((s.path for one in splits.values() for s in one.shards), every, strict=True)
        )
        content = f"{sum(piece.content for piece in every) & MASK64:016x}"
        examples = sum(piece.examples for piece in every)
        is_same = (examples, content) == (old.examples, old.content)
        has_all = is_same or not self._differing
        fewer = {}
        for one in self._differing:
            if has_all:
                message = "no record is lost, but not all are in their places"
                self._lost.append(Lost(one.shard.path, 0, 0, 0, message))
                continue
            self._lost += one.losses()
            if one.least_lost > 0:
                fewer[one.shard.path] = one.least_lost
        hashes = {path: one.stored_xxh64 for path, one in stored.items() if one.stored_xxh64}
        rejects, hashes_of_rejects = self._rejects(prefix)
        sidecars = self._sidecars(prefix)
        whole = not self._lost
        schema = old.schema if whole else old.schema.without_observed()
        for name, text in (("schema.json", schema.dumps()), ("schema.pbtxt", schema_pbtxt(schema))):
            sidecars[name] = self._put(name, text.encode())
        manifest = dataclasses.replace(
            old,
            fingerprint=old.fingerprint if whole else "",
            content=content,
            schema=schema,
            rejects=rejects,
            sidecars=sidecars,
            splits=splits,
        )
        repaired = Repair(manifest, tuple(self._lost), fewer, has_all)
        told = {
            "repaired": repaired.to_json(),
            "beam_tfrecord": __version__,
            STORED_BYTES: {path: piece.stored_bytes for path, piece in stored.items()},
            STORED_HASHES: hashes | hashes_of_rejects,
        }
        self._put(JOB_NAME, dump_job(told).encode())
        return repaired

    def _pieces(self, split: str, shards: tuple[Shard, ...]) -> Iterator[Piece]:
        """Write what is left of each shard; yield those that are not empty."""
        for number, shard in enumerate(shards):
            writer = PieceWriter(self._target, split, (number,), self._old.compression)
            try:
                lost, hashes = self._salvage(shard, writer)
                piece = writer.close()
            except BaseException:
                writer.abort()
                raise
            if piece.xxh64 != shard.xxh64:
                copies = len(hashes) - len(np.unique(hashes))
                self._differing.append(_Differing(shard, piece.examples, copies, tuple(lost)))
            if piece.examples:
                yield piece
            else:
                os.remove(piece.path)

    def _salvage(
        self, shard: Shard, writer: PieceWriter
    ) -> tuple[list[LostBytes | Lost], UInt64Array]:
        """Write what is intact of a shard; return what is not, and the hashes of the records."""
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

    def _named(self, pieces: list[Piece]) -> Iterator[Shard]:
        """Give shards their names, without gaps."""
        names = ShardNames(shard_suffix(self._old.compression))
        for number, piece in enumerate(pieces):
            name = names(piece.split, number, len(pieces))
            os.replace(piece.path, os.path.join(self._target, name))
            yield Shard(name, piece.examples, piece.bytes, piece.xxh64)

    def _rejects(self, prefix: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Copy the rejects where they are intact; return what the two manifests say of them."""
        known = self._old.rejects
        none = REJECTS_SCHEMA.empty_table()
        if known.get("rows"):
            name = prefix + REJECTS_FILE
            try:
                table = load_rejects(os.path.join(self._source, name))
                if rejects_hash(table) == known.get("xxh64"):
                    path = os.path.join(self._target, REJECTS_FILE)
                    os.makedirs(os.path.dirname(path))
                    return dict(known), {REJECTS_FILE: save_rejects(table, path)}
            except (OSError, DataError):
                pass
            self._lost.append(Lost(name, 0, 0, 0, "the file of rejects is damaged"))
        return {"rows": 0, "xxh64": rejects_hash(none)}, {}

    def _sidecars(self, prefix: str) -> dict[str, str]:
        """Copy intact sidecars; return their hashes. Those of the schema are written anew."""
        kept = {}
        for old_name, digest in self._old.sidecars.items():
            name = old_name.removeprefix(prefix)
            if name in _SCHEMA_FILES:
                continue
            path = os.path.join(self._source, old_name)
            # A name from a file is not to be trusted with where something is written.
            if is_plain_name(name) and os.path.isfile(path) and file_hash(path) == digest:
                with open(path, "rb") as file:
                    kept[name] = self._put(name, file.read())
            else:
                self._lost.append(Lost(old_name, 0, 0, 0, "the file is missing or damaged"))
        return kept

    def _put(self, name: str, data: bytes) -> str:
        path = os.path.join(self._target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        put(path, data)
        return data_hash(data)


def _lost_of(shard: Shard, part: LostBytes, most: int) -> Lost:
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
