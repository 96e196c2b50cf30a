"""Checkpoints: files with the results of finished work, which let a job resume after a failure.

There is one for each finished *task* (the units that one worker reads together) and for
each merged file. A checkpoint is written after the files that it names, and contains a hash of its
content. Its key covers all that decides the content of those files. A crash of the machine may
still damage files that were not synced to the disk, so a checkpoint is used only after a check of
its files.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.format.layout import is_split_name
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.job_state.run_files import SORT_KEY_BYTES, SpillRun, read_index
from beam_tfrecord.job_state.stored_state import TASK_PREFIX
from beam_tfrecord.job_state.stored_state import load as load_state
from beam_tfrecord.job_state.stored_state import save as save_state
from beam_tfrecord.rows.batch import BatchPosition
from beam_tfrecord.storage import exists, file_size, list_names, read_into

MERGED_PREFIX = "done-"

T = TypeVar("T", SpillRun, "FinishedShard")


@dataclasses.dataclass(frozen=True)
class FinishedShard:
    """A finished shard (or Parquet file of a stage) that still has its temporary name."""

    split: str
    order: tuple[int, ...]
    path: str
    examples: int
    bytes: int
    xxh64: str
    content: int
    stored_bytes: int
    stored_xxh64: str = ""
    index_bytes: int = 0
    index_xxh64: str = ""
    copies: Tally = Tally()

    @property
    def index_path(self) -> str:
        """Path of the index that belongs to the shard, if it has one."""
        return f"{self.path}.idx"


@dataclasses.dataclass(frozen=True, eq=False)
class Done:
    """The results of one task, or of one merge."""

    tally: Tally
    runs: tuple[SpillRun, ...] = ()
    shards: tuple[FinishedShard, ...] = ()
    sizes: tuple[int, ...] = ()
    boot: str = ""

    @property
    def files(self) -> list[SpillRun | FinishedShard]:
        """All runs and shards."""
        return [*self.runs, *self.shards]


@functools.cache
def boot_id() -> str:
    """Return the id of the current boot of this machine; empty if the system has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class TaskCheckpoint:
    """Collects the files of one task, and saves its checkpoint if no batch was missed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._key = ""
        self._count = 0
        self._files: list[SpillRun | FinishedShard] = []

    def follow(self, position: BatchPosition | None) -> None:
        """Record the position of the next batch in its task; None means unknown."""
        if position is not None and position.number == 0:
            self._key, self._count, self._files = position.key, 0, []
        if position is None or (position.key, position.number) != (self._key, self._count):
            # A runner has spread the task over bundles, so that none sees all of it.
            self._key = ""
        self._count += 1

    def add(self, file: SpillRun | FinishedShard) -> None:
        """Record a file that holds records of the task."""
        # Without a checkpoint, a bundle may write any number of runs: do not collect them.
        if self._key:
            self._files.append(file)

    def save(self, tally: Tally) -> None:
        """Save the checkpoint of the task if all its batches came here in order."""
        if self._key:
            _save(os.path.join(self._directory, TASK_PREFIX + self._key), tally, self._files)
        self._key, self._files = "", []


def save_merged(directory: str, key: str, file: SpillRun | FinishedShard) -> None:
    """Save the checkpoint of a run or shard that was merged from runs."""
    _save(os.path.join(directory, MERGED_PREFIX + key), Tally(), [file])


def _save(path: str, tally: Tally, files: Sequence[SpillRun | FinishedShard]) -> None:
    runs = [file for file in files if isinstance(file, SpillRun)]
    shards = [file for file in files if isinstance(file, FinishedShard)]
    rejects = tuple(map(os.path.basename, tally.reject_files))
    done = Done(
        dataclasses.replace(tally, reject_files=rejects),
        # Only the names: the output may be moved before the job resumes.
        tuple(_located(run, "") for run in runs),
        tuple(_located(shard, "") for shard in shards),
        tuple(file_size(run.path) for run in runs),
        boot_id(),
    )
    save_state(path, done)


def find_task(directory: str, key: str) -> Done | None:
    """Return the results of a task from an earlier attempt; None unless all files are complete."""
    return _find(os.path.join(directory, TASK_PREFIX + key))


def find_merged(directory: str, key: str) -> SpillRun | FinishedShard | None:
    """Return the run or shard that an earlier attempt merged; None unless it is complete."""
    done = _find(os.path.join(directory, MERGED_PREFIX + key))
    files = [] if done is None else done.files
    return files[0] if len(files) == 1 else None


def _find(path: str) -> Done | None:
    done = _load(path)
    if done is None:
        return None
    directory = os.path.dirname(path)
    runs = tuple(_located(run, directory) for run in done.runs)
    shards = tuple(_located(shard, directory) for shard in done.shards)
    rejects = tuple(os.path.join(directory, name) for name in done.tally.reject_files)
    # Files of runs and rejects are not synced: a crash of the machine may have damaged them.
    is_crash_free = done.boot == boot_id() != ""
    sizes = zip(runs, done.sizes, strict=True)
    if not (
        all(_is_complete_run(run.path, size, is_crash_free) for run, size in sizes)
        and all(map(_is_complete_shard, shards))
        and all(is_crash_free and exists(path) for path in rejects)
    ):
        return None
    tally = dataclasses.replace(done.tally, reject_files=rejects)
    return dataclasses.replace(done, tally=tally, runs=runs, shards=shards)


def marked_files(directory: str) -> set[str]:
    """Return the names of all files that the checkpoints in a directory list."""
    names = set()
    for name in list_names(directory):
        if name.startswith((TASK_PREFIX, MERGED_PREFIX)):
            done = _load(os.path.join(directory, name))
            if done is not None:
                names |= {file.path for file in done.files}
                names |= {shard.index_path for shard in done.shards if shard.index_xxh64}
                names |= set(done.tally.reject_files)
    return names


def _load(path: str) -> Done | None:
    """Return a checkpoint; None if there is none, or if its content is invalid."""
    done = load_state(path, Done)
    return None if done is None or not _is_sound(done) else done


def _is_sound(done: Done) -> bool:
    # Other users may write here: the paths of a checkpoint must not lead out of the directory.
    counts = [one for run in done.runs for one in run.counts.items()]
    paths = [file.path for file in done.files]
    splits = [name for name, _ in counts] + [shard.split for shard in done.shards]
    return (
        len(done.sizes) == len(done.runs)
        and all(map(_is_name, (*paths, *done.tally.reject_files)))
        and all(map(is_split_name, splits))
        and all(one.is_sound for _, one in counts)
    )


def _is_name(path: str) -> bool:
    return os.path.basename(path) == path and path not in ("", ".", "..")


def _located(file: T, directory: str) -> T:
    return dataclasses.replace(file, path=os.path.join(directory, os.path.basename(file.path)))


def _is_complete_shard(shard: FinishedShard) -> bool:
    # Shards are synced before they get their name, so a crash cannot change them.
    files = [(shard.path, shard.stored_bytes)]
    if shard.index_xxh64:
        files.append((shard.index_path, shard.index_bytes))
    return all(exists(path) and file_size(path) == nbytes for path, nbytes in files)


def _is_complete_run(path: str, size: int, is_crash_free: bool) -> bool:
    if not exists(path) or file_size(path) != size:
        return False
    try:
        index = read_index(path)
    except (DataError, EOFError):
        return False
    end = max((int(offsets[-1]) for _, offsets in index.splits.values()), default=0)
    return is_crash_free or _has_sound_records(path, end)


def _has_sound_records(path: str, end: int) -> bool:
    """Return whether the checksums of all records in the first `end` bytes of a run match."""
    entries: Any = np.empty(end, np.uint8)
    read_into(path, 0, entries.data)
    try:
        starts, _ = native.scan_run(entries)
    except ValueError:
        return False
    framed = np.empty(end - SORT_KEY_BYTES * len(starts), np.uint8)
    native.gather(entries, starts, None, np.arange(len(starts)), framed, 0)
    return len(native.scan_frames(framed, True).starts) == len(starts)
