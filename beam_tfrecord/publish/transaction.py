"""Publishes the finished files of a job in its output, by steps that can be repeated or undone.

A target is the directory or file prefix of a dataset or stage. Its manifest names the shards and
the side files (schema, labels, …). A target has these states, and changes only by these steps::

    the old dataset, or none
      │ save a note in the temporary directory: names to appear, names to remove at the end
    noted
      │ remove the old manifest
    open: there is no manifest, so no dataset
      │ give shards their names, write side files, rejects and job.json, sync
    complete
      │ write the new manifest, sync
    published
      │ remove what was replaced, then the temporary directory
    the new dataset

So at every moment a manifest names only files that are there. If a job is killed before the state
*published*, the next job gives shards their temporary names back and removes side files
(`clear_leftovers`). If a job is killed later, the next job or try removes what was replaced. A try
is one of several executions of the last step of the same job. The note lists the files of the old
and the new dataset, and no other files are removed. No step replaces or removes a file that the
manifest of another dataset in the directory names (`names_of_others`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from beam_tfrecord import storage
from beam_tfrecord.errors import DataError, StorageError, TargetExists
from beam_tfrecord.format import job_file
from beam_tfrecord.format.hashes import data_hash, file_hash
from beam_tfrecord.format.manifest import FITTED, MANIFEST_NAME, Manifest
from beam_tfrecord.format.rejects import REJECTS_FILE, SAVED_FILE, SavedRejects
from beam_tfrecord.format.stage import stage_names
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.records.shard_index import INDEX_DIRECTORY, index_name


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

    @property
    def names(self) -> set[str]:
        """Names of all files that the manifest names."""
        sidecars = (self.job.target.name(name) for name in self.sidecars)
        return {*(file.name for file in self.files), *sidecars}

    @property
    def files(self) -> list[FinishedFile]:
        """The shards, and the indexes of those that have one."""
        shards = [
            FinishedFile(name, one.path, one.stored_bytes, one.stored_xxh64 or one.xxh64)
            for name, one in self.named
        ]
        return shards + [
            FinishedFile(index_name(name), one.index_path, one.index_bytes, one.index_xxh64)
            for name, one in self.named
            if one.index_xxh64
        ]

    def note(self) -> Note:
        """Return the note to save before any file gets its final name."""
        target = self.job.target
        return Note(
            tuple((os.path.basename(file.path), file.name, file.bytes) for file in self.files),
            tuple((target.name(name), data_hash(data)) for name, data in self.sidecars.items()),
            frozenset(names_at(target.manifest) or ()),
        )


def put_in_place(publication: Publication, lease: storage.Lease) -> None:
    """Publish the files of a job at its target, in place of the old dataset if there is one.

    A try that finds the note of an earlier try continues from there. It never undoes a step, since
    the worker of the earlier try may still be running.
    """
    job, info = publication.job, publication.info
    target, directory = job.target, job.directory
    check = lease.check
    check()
    others = names_of_others(target)
    if shared := sorted(publication.names & others.keys(), key=len):
        raise TargetExists(
            f"nothing was published: {shared[0]!r} is a file of another dataset there, that of "
            f"{others[shared[0]]!r}: choose another directory"
        )
    before = Note.load(directory)
    unnamed = _unnamed(target, publication.files, directory, is_first=before is None)
    note = publication.note().after(before)
    note.save(directory)
    check()
    if published_names(target, info.get(job_file.PUBLICATION)) is None:
        _remove_old_manifest(target)
        for subdirectory in {os.path.dirname(file.name) for file in unnamed}:
            storage.make_directory(os.path.join(target.directory, subdirectory))
        storage.publish_files(
            [(file.path, os.path.join(target.directory, file.name)) for file in unnamed],
            check=check,
        )
        check()
        _write_beside(publication)
        check()
        _put(target.manifest, publication.manifest_text.encode(), directory)
        storage.sync_directory(target.directory)
    # Else the worker of another try, which was thought dead, has published in the meantime.
    remove_replaced(target, note, publication.names, check)


def _write_beside(publication: Publication) -> None:
    """Write side files, rejects and ``job.json``, which have to be there before the manifest."""
    target, directory = publication.job.target, publication.job.directory
    for name, data in publication.sidecars.items():
        storage.make_directory(os.path.dirname(target.path(name)))
        _put(target.path(name), data, directory)
    hashes = _publish_rejects(target, publication.rejects, os.path.join(directory, SAVED_FILE))
    hashes |= {name: one.stored_xxh64 for name, one in publication.named if one.stored_xxh64}
    stored = {name: shard.stored_bytes for name, shard in publication.named}
    info = {**publication.info, job_file.STORED_BYTES: stored, job_file.STORED_HASHES: hashes}
    _put(target.path(job_file.JOB_NAME), job_file.dump_job(info).encode(), directory)
    storage.sync_directory(target.directory)


def published_names(target: Target, publication: str | None) -> list[str] | None:
    """Return the names of a publication's shards if it is complete at a target, else None.

    The ``job.json`` of a publication is written before its manifest, and never beside the manifest
    of another publication.
    """
    if publication is None or not storage.exists(target.manifest):
        return None
    job = job_file.read_job(target.path(job_file.JOB_NAME))
    if job.get(job_file.PUBLICATION) != publication:
        return None
    stored: dict[str, int] = job[job_file.STORED_BYTES]
    is_complete = all(_has_size(target, name, nbytes) for name, nbytes in stored.items())
    return list(stored) if is_complete else None


def finish_publishing(target: Target, directory: str, check: Callable[[], None]) -> None:
    """Remove the files that a publication replaced, if its worker died before doing so."""
    note, named = Note.load(directory), names_at(target.manifest)
    if note is not None and named is not None:
        remove_replaced(target, note, named, check)


def _unnamed(
    target: Target, files: Iterable[FinishedFile], directory: str, *, is_first: bool
) -> list[FinishedFile]:
    """Return the files that do not have their final names yet."""
    there = {os.path.basename(entry.path): entry.bytes for entry in storage.list_files(directory)}
    unnamed = []
    for file in files:
        if there.get(os.path.basename(file.path)) == file.bytes:
            unnamed.append(file)
        elif (
            is_first
            or not _has_size(target, file.name, file.bytes)
            or not _has_hash(target, file.name, file.xxh64)
        ):
            raise StorageError(
                f"{file.path!r} is gone: another job has cleared away what this one has written, "
                "and this one stops before it changes anything: run it again"
            )
    return unnamed


def _put(path: str, data: bytes, directory: str) -> None:
    # If the job is killed now, the next job removes the half-written file with the directory. Each
    # try has its own half-written file: a file with its final name must not change any more.
    half = os.path.join(directory, f"half-{uuid.uuid4().hex}")
    with storage.WholeFile(path, temporary=half) as file:
        file.write(data)


def _publish_rejects(target: Target, rejects: SavedRejects, saved: str) -> dict[str, str]:
    """Give the file of rejects its name, or remove an old one; return its hash by its name.

    The result is empty if there are no rejects.
    """
    path = target.path(REJECTS_FILE)
    if rejects.rows:
        storage.make_directory(os.path.dirname(path))
        storage.publish_files([(saved, path)])
        return {target.name(REJECTS_FILE): rejects.stored_xxh64}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        storage.remove(path)
    # The directory stays if it holds files of the user.
    storage.remove_directory(os.path.dirname(path))
    return {}


def _remove_old_manifest(target: Target) -> None:
    with contextlib.suppress(FileNotFoundError):
        storage.remove(target.manifest)
        storage.sync_directory(target.directory)


_NOTE_NAME = "publishing"


@dataclasses.dataclass(frozen=True)
class Note:
    """The record of a publication that is about to begin, saved in the temporary directory."""

    shards: tuple[tuple[str, str, int], ...]
    sidecars: tuple[tuple[str, str], ...]
    old: frozenset[str]

    @classmethod
    def load(cls, directory: str) -> Note | None:
        """Read the note in a temporary directory; None if there is none, or a damaged one.

        A note makes the package move and remove files. So a note is refused if a name in it leads
        out of the target or of the temporary directory.
        """
        try:
            text = storage.read_small(os.path.join(directory, _NOTE_NAME))
            note = msgspec.json.decode(text, type=cls)
        except (FileNotFoundError, DataError, msgspec.MsgspecError, RecursionError):
            return None
        temporaries = [temporary for temporary, _, _ in note.shards]
        names = [name for _, name, _ in note.shards] + [name for name, _ in note.sidecars]
        is_sound = all(map(storage.is_plain_name, (*temporaries, *names, *note.old)))
        return note if is_sound and not any("/" in name for name in temporaries) else None

    def save(self, directory: str) -> None:
        """Write the note to a temporary directory."""
        storage.put(os.path.join(directory, _NOTE_NAME), msgspec.json.encode(self))

    def after(self, before: Note | None) -> Note:
        """Return this note with the entries of an earlier try after its own."""
        if before is None:
            return self
        shards = dict.fromkeys((*self.shards, *before.shards))
        sidecars = dict.fromkeys((*self.sidecars, *before.sidecars))
        return Note(tuple(shards), tuple(sidecars), self.old | before.old)


def remove_leftovers(target: Target) -> None:
    """Remove the temporary directories at a target, after its last job has published."""
    for directory in target.leftovers():
        storage.remove_tree(directory)


def clear_leftovers(target: Target, *, keep: str | None = None) -> None:
    """Remove the files that jobs which ended early left at a target; the caller holds its lease."""
    for directory in target.leftovers():
        if directory == keep:
            _roll_back(target, directory)
        else:
            give_up(target, directory)


def clear_published(target: Target, keep: str, check: Callable[[], None]) -> None:
    """Remove the files of jobs that ended while they published; the caller holds the lease.

    A directory without a note stays: a pipeline that still runs, and takes the lease only at its
    end, may use it.
    """
    for directory in target.leftovers():
        if directory != keep and Note.load(directory) is not None:
            check()
            give_up(target, directory)


def give_up(target: Target, directory: str) -> None:
    """Remove all files of a job that nobody continues; the caller holds its lease."""
    _roll_back(target, directory)
    storage.remove_tree(directory)


def abandon(directory: str, *, keep: str = "") -> None:
    """Remove the temporary files of a job that failed, except the one named `keep`.

    Once it has begun to publish, the next job removes them, which then holds the lease.
    """
    names = storage.list_names(directory)
    if _NOTE_NAME in names:
        return
    if keep not in names:
        storage.remove_tree(directory)
        return
    names.remove(keep)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            storage.remove(os.path.join(directory, name))


def names_at(manifest_file: str) -> set[str] | None:
    """Return the names of the files of a manifest."""
    if not storage.exists(manifest_file):
        return set()
    try:
        manifest = Manifest.load(manifest_file)
    except DataError:
        return stage_names(manifest_file) or None
    return {shard.path for shard in manifest.shards} | set(manifest.sidecars)


def names_of_others(target: Target) -> dict[str, str]:
    """Return the names that other datasets in the directory take, each with its manifest.

    All names of a dataset begin with its prefix, so others can share one only if one of the two
    prefixes begins with the other.
    """
    found: dict[str, str] = {}
    prefix = target.prefix or ""
    for name in storage.list_names(target.directory):
        other, path = name.removesuffix(MANIFEST_NAME)[:-1], os.path.join(target.directory, name)
        is_near = prefix.startswith(other) or other.startswith(prefix)
        if name.endswith(MANIFEST_NAME) and path != target.manifest and is_near:
            found |= dict.fromkeys(names_at(path) or (), path)
    return found


def remove_replaced(target: Target, note: Note, named: set[str], check: Callable[[], None]) -> None:
    """Remove the files that a new dataset replaced, and files of earlier tries with other names."""
    others = [shard for shard in note.shards if shard[1] not in named]
    ours = {name for _, name, nbytes in others if _has_size(target, name, nbytes)}
    _remove_unnamed(target, note, named, check, shards=ours)


def _remove_unnamed(
    target: Target,
    note: Note,
    named: set[str],
    check: Callable[[], None],
    *,
    shards: Iterable[str] = (),
) -> None:
    """Remove old files and side files of a note, and `shards`, except files in `named`."""
    sidecars = {
        name
        for name, digest in note.sidecars
        if name not in named and _has_hash(target, name, digest)
    }
    for name in sorted(note.old.union(sidecars, shards) - named - names_of_others(target).keys()):
        if not _is_ours(name):
            continue
        check()
        with contextlib.suppress(FileNotFoundError):
            storage.remove(os.path.join(target.directory, name))
        while (name := os.path.dirname(name)) != "":
            storage.remove_directory(os.path.join(target.directory, name))


def _has_size(target: Target, name: str, nbytes: int) -> bool:
    """Return whether a target has a file of that name and size."""
    entry = storage.status(os.path.join(target.directory, name))
    return entry is not None and entry.bytes == nbytes


def _is_ours(name: str) -> bool:
    """Return whether this package makes files of such names; it makes few in directories."""
    first, slash, _ = name.partition("/")
    return storage.is_plain_name(name) and (not slash or first.endswith((*FITTED, INDEX_DIRECTORY)))


def _roll_back(target: Target, directory: str) -> None:
    """Give the shards of a note their temporary names back, and remove its side files."""
    note, named = Note.load(directory), names_at(target.manifest)
    if note is None or named is None:
        return
    named |= names_of_others(target).keys()
    # The latest try comes first: a file that it has named is no longer the shard of an earlier try.
    for temporary, name, nbytes in note.shards:
        final = os.path.join(target.directory, name)
        back = os.path.join(directory, temporary)
        # If a shard still has its temporary name, it was not renamed, so the file with its final
        # name is another one. An object store copies instead, and keeps both.
        was_reached = storage.is_remote(directory) or not storage.exists(back)
        if name in named or not was_reached or not _has_size(target, name, nbytes):
            continue
        if storage.exists(back):
            storage.remove(final)
        else:
            storage.publish_files([(final, back)])
    _remove_unnamed(target, note, named, lambda: None)
    with contextlib.suppress(FileNotFoundError):
        storage.remove(os.path.join(directory, _NOTE_NAME))


def _has_hash(target: Target, name: str, digest: str) -> bool:
    path = os.path.join(target.directory, name)
    return storage.exists(path) and file_hash(path) == digest
