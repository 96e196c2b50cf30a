"""What a job publishes, and the note of it that a later job needs to go on or to undo."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from beam_tfrecord.errors import DataError
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.job_file import JOB_NAME, STORED_BYTES, STORED_HASHES, dump_job
from beam_tfrecord.format.rejects import REJECTS_FILE, SAVED_FILE, SavedRejects
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job
from beam_tfrecord.records.shard_index import index_name
from beam_tfrecord.storage import file_size, is_plain_name, put, read_small

NOTE_NAME = "publishing"


@dataclasses.dataclass(frozen=True)
class FinishedFile:
    """A shard or an index that still has its temporary name."""

    name: str
    path: str
    bytes: int
    xxh64: str


@dataclasses.dataclass(frozen=True)
class Publication:
    """All files that a job publishes."""

    job: Job
    named: Sequence[tuple[str, FinishedShard]]
    manifest_text: str
    sidecars: Mapping[str, bytes]
    rejects: SavedRejects
    info: Mapping[str, Any]
    mark: str = ""
    # Of a job that compacts: hashes of the files of rejects that stay, and the old names.
    stored: Mapping[str, str] = dataclasses.field(default_factory=dict)
    replaces: frozenset[str] = frozenset()

    @property
    def names(self) -> set[str]:
        """Names of all files that belong to the manifest."""
        sidecars = (self.job.target.name(name) for name in self.sidecars)
        return {*(file.name for file in self.files), *sidecars, *self.job_names}

    @property
    def job_names(self) -> list[str]:
        """Names of ``job.json`` and of the file of rejects, with the mark of appended rows."""
        names = (JOB_NAME, REJECTS_FILE) if self.rejects.rows else (JOB_NAME,)
        return [self.job.target.name(marked(name, self.mark)) for name in names]

    def job_text(self) -> bytes:
        """Return the content of ``job.json``."""
        rejects = dict.fromkeys(self.job_names[1:], self.rejects.stored_xxh64)
        shards = {name: one.stored_xxh64 for name, one in self.named if one.stored_xxh64}
        stored = {name: shard.stored_bytes for name, shard in self.named}
        hashes = {**rejects, **self.stored, **shards}
        return dump_job({**self.info, STORED_BYTES: stored, STORED_HASHES: hashes}).encode()

    @property
    def files(self) -> list[FinishedFile]:
        """The shards, the indexes of those that have one, and the rejects of appended rows."""
        shards = [
            FinishedFile(name, one.path, one.stored_bytes, one.stored_xxh64 or one.xxh64)
            for name, one in self.named
        ]
        saved = os.path.join(self.job.directory, SAVED_FILE)
        rejects = [
            FinishedFile(name, saved, file_size(saved), self.rejects.stored_xxh64)
            for name in self.job_names[1:]
            if self.mark
        ]
        return [
            *shards,
            *(
                FinishedFile(index_name(name), one.index_path, one.index_bytes, one.index_xxh64)
                for name, one in self.named
                if one.index_xxh64
            ),
            *rejects,
        ]

    def note(self, old: Iterable[str], sidecars: Mapping[str, bytes], version: str = "") -> Note:
        """Return the note to save before any file gets its final name.

        Args:
            old: Names of the files to remove at the end.
            sidecars: Content of the side files to write, by name.
            version: Version of the manifest that is to be replaced, if only that one may be.
        """
        shards = ((os.path.basename(file.path), file.name, file.bytes) for file in self.files)
        hashes = ((name, data_hash(data)) for name, data in sidecars.items())
        return Note(tuple(shards), tuple(hashes), frozenset(old), version)


def marked(name: str, mark: str) -> str:
    """Return the name of a file of appended rows, such as ``job-g00002.json`` for ``job.json``."""
    stem, suffix = os.path.splitext(name)
    return f"{stem}{mark}{suffix}"


@dataclasses.dataclass(frozen=True)
class Note:
    """The record of a publication that is about to begin, saved in the temporary directory."""

    shards: tuple[tuple[str, str, int], ...]
    sidecars: tuple[tuple[str, str], ...]
    old: frozenset[str]
    version: str = ""

    @classmethod
    def load(cls, directory: str) -> Note | None:
        """Read the note in a temporary directory; None if there is none, or a damaged one.

        A note makes the package move and remove files. So a note is refused if a name in it leads
        out of the target or of the temporary directory.
        """
        try:
            text = read_small(os.path.join(directory, NOTE_NAME))
            note = msgspec.json.decode(text, type=cls)
        except (FileNotFoundError, DataError, msgspec.MsgspecError, RecursionError):
            return None
        temporaries = [temporary for temporary, _, _ in note.shards]
        names = [name for _, name, _ in note.shards] + [name for name, _ in note.sidecars]
        is_sound = all(map(is_plain_name, (*temporaries, *names, *note.old)))
        return note if is_sound and not any("/" in name for name in temporaries) else None

    def save(self, directory: str) -> None:
        """Write the note to a temporary directory."""
        put(os.path.join(directory, NOTE_NAME), msgspec.json.encode(self))

    def after(self, before: Note | None) -> Note:
        """Return this note with the entries of an earlier try after its own."""
        if before is None:
            return self
        shards = dict.fromkeys((*self.shards, *before.shards))
        sidecars = dict.fromkeys((*self.sidecars, *before.sidecars))
        return Note(tuple(shards), tuple(sidecars), self.old | before.old, self.version)
