"""Checkpoints: results of a group of units, or of a shard, for the next attempt at a job.

A checkpoint is written after the files that it names, and is sealed with a hash; so it never names
a file that is not complete. Its key covers all that decides those files.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.plan import Window
from beam_tfrecord.exchange.shard_writers import Piece
from beam_tfrecord.exchange.spill_files import Run, read_index
from beam_tfrecord.exchange.write_summary import Tally
from beam_tfrecord.job_batch import Part
from beam_tfrecord.layout import is_split_name
from beam_tfrecord.records.tfrecord import record_sizes
from beam_tfrecord.storage import exists, file_size, list_names, read_into
from beam_tfrecord.workdir import object_file
from beam_tfrecord.workdir.stored_plan import GROUP_PREFIX

SHARD_PREFIX = "done-"

T = TypeVar("T", Run, Piece)


@dataclasses.dataclass(frozen=True, eq=False)
class Done:
    """All that the rows of one group became.

    Attributes:
        tally: Sums over its rows.
        runs: Files of its records, where they still are to be merged.
        pieces: Shards of it, where they were written straight away.
        sizes: Bytes of each run.
        boot: Start of the machine in which all this was written; empty where that is not known.
    """

    tally: Tally
    runs: tuple[Run, ...] = ()
    pieces: tuple[Piece, ...] = ()
    sizes: tuple[int, ...] = ()
    boot: str = ""


@functools.cache
def boot_id() -> str:
    """Return an id of this start of the machine; empty if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def mark_group(directory: str, key: str, done: Sequence[Done]) -> None:
    """Keep what the parts of a group became."""
    runs = tuple(run for part in done for run in part.runs)
    merged = Done(
        functools.reduce(Tally.merge, (part.tally for part in done), Tally()),
        tuple(map(_named, runs)),
        tuple(_named(piece) for part in done for piece in part.pieces),
        tuple(file_size(run.path) for run in runs),
        boot_id(),
    )
    files = tuple(map(os.path.basename, merged.tally.reject_files))
    tally = dataclasses.replace(merged.tally, reject_files=files)
    object_file.save(_group_path(directory, key), dataclasses.replace(merged, tally=tally))


class GroupMarks:
    """Sees the parts of groups go by, and marks each group of which all has come.

    Args:
        directory: The job's temporary directory.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._key = ""
        self._count = 0
        self._done: list[Done] = []

    def follow(self, part: Part | None) -> None:
        """Take note of the part that comes next."""
        if part is not None and part.number == 0:
            self._key, self._count, self._done = part.key, 0, []
        if part is None or (part.key, part.number) != (self._key, self._count):
            # A runner has torn the group apart: nobody here sees all of it.
            self._key = ""
        self._count += 1

    def add(self, done: Done) -> None:
        """Take note of what the parts so far became, since the last call."""
        # Results that get no checkpoint are dropped: a bundle may have any number of runs.
        if self._key:
            self._done.append(done)

    def end(self) -> None:
        """Mark the group, if it was all there."""
        if self._key:
            mark_group(self._directory, self._key, self._done)
        self._key, self._done = "", []


def find_group(directory: str, key: str) -> Done | None:
    """Return the results of a group in an earlier attempt; None if a file is not complete."""
    done: Done | None = _load(_group_path(directory, key), Done)
    if done is None:
        return None
    runs = tuple(_located(run, directory) for run in done.runs)
    pieces = tuple(_located(piece, directory) for piece in done.pieces)
    rejects = tuple(os.path.join(directory, name) for name in done.tally.reject_files)
    # Runs and rejects are not synced: a crash of the machine may have taken any part of them.
    is_crash_free = done.boot == boot_id() != ""
    sizes = zip(runs, done.sizes, strict=True)
    if not (
        all(_is_whole_run(run.path, size, is_crash_free) for run, size in sizes)
        and all(map(_is_whole_piece, pieces))
        and all(is_crash_free and exists(path) for path in rejects)
    ):
        return None
    tally = dataclasses.replace(done.tally, reject_files=rejects)
    return dataclasses.replace(done, tally=tally, runs=runs, pieces=pieces)


def shard_key(windows: Iterable[Window], runs: Sequence[str]) -> str:
    """Return the key of a shard: places of its records, and runs that hold them."""
    names = [os.path.basename(path) for path in runs]
    return hashlib.sha256(repr((tuple(windows), names)).encode()).hexdigest()[:32]


def mark_shard(directory: str, key: str, piece: Piece) -> None:
    """Keep a merged shard."""
    object_file.save(os.path.join(directory, f"{SHARD_PREFIX}{key}"), _named(piece))


def mark_run(directory: str, key: str, run: Run) -> None:
    """Keep a run that was merged from others."""
    done = Done(Tally(), (_named(run),), sizes=(file_size(run.path),), boot=boot_id())
    object_file.save(os.path.join(directory, f"{SHARD_PREFIX}{key}"), done)


def find_run(directory: str, key: str) -> Run | None:
    """Return a run that an earlier attempt merged from others; None where it is not there."""
    found = _load(os.path.join(directory, f"{SHARD_PREFIX}{key}"), Done)
    if found is None or len(found.runs) != 1:
        return None
    run = _located(found.runs[0], directory)
    is_crash_free = found.boot == boot_id() != ""
    return run if _is_whole_run(run.path, found.sizes[0], is_crash_free) else None


def find_shard(directory: str, key: str) -> Piece | None:
    """Return a shard that an earlier attempt merged; None where it is not there."""
    found = _load(os.path.join(directory, f"{SHARD_PREFIX}{key}"), Piece)
    if found is None:
        return None
    piece = _located(found, directory)
    return piece if _is_whole_piece(piece) else None


def marked_files(directory: str) -> set[str]:
    """Return the names of the files that marks in a directory speak of."""
    names = set()
    for name in list_names(directory):
        if name.startswith((GROUP_PREFIX, SHARD_PREFIX)):
            found = _load(os.path.join(directory, name), Piece | Done)
            if isinstance(found, Piece):
                names.add(found.path)
            elif found is not None:
                names |= {run.path for run in found.runs} | {piece.path for piece in found.pieces}
                names |= set(found.tally.reject_files)
    return names


def _load(path: str, kind: Any) -> Any:
    """Return the mark in a file; None where there is none of that kind that can be true."""
    mark = object_file.load(path)
    return mark if isinstance(mark, kind) and _is_sound(mark) else None


def _is_sound(mark: Piece | Done) -> bool:
    # Others may write here: a mark must not lead out of the directory.
    if isinstance(mark, Piece):
        return _is_name(mark.path) and is_split_name(mark.split)
    counts = [one for run in mark.runs for one in run.counts.items()]
    return (
        len(mark.sizes) == len(mark.runs)
        and all(map(_is_sound, mark.pieces))
        and all(_is_name(run.path) for run in mark.runs)
        and all(map(_is_name, mark.tally.reject_files))
        and all(is_split_name(name) and one.is_sound for name, one in counts)
    )


def _is_name(path: str) -> bool:
    return os.path.basename(path) == path and path not in ("", ".", "..")


def _group_path(directory: str, key: str) -> str:
    return os.path.join(directory, f"{GROUP_PREFIX}{key}")


def _named(file: T) -> T:
    # The output may have been moved when the job goes on.
    return dataclasses.replace(file, path=os.path.basename(file.path))


def _located(file: T, directory: str) -> T:
    return dataclasses.replace(file, path=os.path.join(directory, os.path.basename(file.path)))


def _is_whole_piece(piece: Piece) -> bool:
    # Shards are on the disk before they have their name, so no crash makes them another.
    return exists(piece.path) and file_size(piece.path) == piece.stored_bytes


def _is_whole_run(path: str, size: int, is_crash_free: bool) -> bool:
    if not exists(path) or file_size(path) != size:
        return False
    try:
        index = read_index(path)
    except (DataError, EOFError):
        return False
    end = max((int(offsets[-1]) for _, offsets in index.splits.values()), default=0)
    return is_crash_free or _has_sound_records(path, end)


def _has_sound_records(path: str, end: int) -> bool:
    """Tell whether the checksums of all records of a run are right."""
    entries: Any = np.empty(end, np.uint8)
    read_into(path, 0, entries.data)
    try:
        starts, _ = native.scan_run(entries)
    except ValueError:
        return False
    framed = np.empty(int(record_sizes(entries, starts).sum()), np.uint8)
    native.gather(entries, starts, np.arange(len(starts)), framed, 0)
    return len(native.scan_frames(framed, True).starts) == len(starts)
