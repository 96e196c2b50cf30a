"""Publishes the finished files of a job in its output, by steps that can be repeated or undone.

A target is the directory or file prefix of a dataset or stage. Its manifest names the shards and
the side files (schema, labels, …). A target has these states, and changes only by these steps::

    the old dataset, or none
      │ save a note in the temporary directory: names to appear, names to remove at the end
    noted
      │ remove what `describe` wrote, then the old manifest
    open: there is no manifest, so no dataset
      │ give shards their names, write side files, rejects and job.json, sync
    complete
      │ write the new manifest, sync
    published
      │ remove what was replaced, then the temporary directory
    the new dataset

A job that appends rows replaces nothing but the manifest, in one step (`put_beside`), before which
it removes what `describe` wrote.

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
from collections.abc import Callable, Iterable, Sequence

import msgspec

from beam_tfrecord import storage
from beam_tfrecord.errors import DataError, StorageError, TargetExists
from beam_tfrecord.format.hashes import file_hash
from beam_tfrecord.format.job_file import JOB_NAME, PUBLICATION, STORED_BYTES, read_job
from beam_tfrecord.format.manifest import FITTED, MANIFEST_NAME, Manifest, prefix_of
from beam_tfrecord.format.rejects import REJECTS_FILE, SAVED_FILE, SavedRejects
from beam_tfrecord.format.stage import stage_names
from beam_tfrecord.job_state.job import Target
from beam_tfrecord.publish.publication import NOTE_NAME, FinishedFile, Note, Publication
from beam_tfrecord.records.shard_index import INDEX_DIRECTORY


def put_in_place(publication: Publication, lease: storage.Lease) -> None:
    """Publish the files of a job at its target, in place of the old dataset if there is one.

    A try that finds the note of an earlier try continues from there. It never undoes a step, since
    the worker of the earlier try may still be running.
    """
    job, info = publication.job, publication.info
    target, directory = job.target, job.directory
    check = lease.check
    check()
    _check_apart(publication)
    before = Note.load(directory)
    unnamed = _unnamed(target, publication.files, directory, is_first=before is None)
    sidecars = {target.name(name): data for name, data in publication.sidecars.items()}
    note = publication.note(names_at(target.manifest) or (), sidecars).after(before)
    note.save(directory)
    check()
    if published_names(target, info.get(PUBLICATION)) is None:
        _remove_old_manifest(target)
        _give_names(target, unnamed, check)
        check()
        _write_beside(publication)
        check()
        _put(target.manifest, publication.manifest_text.encode(), directory)
        storage.sync_directory(target.directory)
    # Else the worker of another try, which was thought dead, has published in the meantime.
    remove_replaced(target, note, publication.names, check)


def put_beside(publication: Publication, lease: storage.Lease, version: str) -> bool:
    """Publish appended files beside those of the dataset; return False if others were faster.

    Nothing that the manifest names is touched. The ``job.json`` of the new rows comes first, and
    claims their names: if there is one already, the names belong to another try or job. The last
    step replaces the manifest if it still has `version`, that is, if nobody else has appended rows.
    So a job that lost its lease without knowing cannot harm another one.
    """
    target, directory = publication.job.target, publication.job.directory
    lease.check()
    _check_apart(publication)
    if not storage.is_remote(directory):
        _roll_back(target, directory)  # the names that an earlier try has given
    unnamed = _unnamed(target, publication.files, directory, is_first=True)
    name, text, before = publication.job_names[0], publication.job_text(), Note.load(directory)
    note = publication.note(publication.replaces, {name: text}, version)
    # Until the claim succeeds, shards of these names may be those of another.
    dataclasses.replace(note, shards=()).after(before).save(directory)
    claim = os.path.join(target.directory, name)
    if not storage.put_if(claim, text, "", temporary=_half(directory)):
        return False
    note.after(before).save(directory)
    _give_names(target, unnamed, lease.check)
    storage.sync_directory(target.directory)
    lease.check()
    remove_described(target.manifest)
    manifest = publication.manifest_text.encode()
    is_put = storage.put_if(target.manifest, manifest, version, temporary=_half(directory))
    storage.sync_directory(target.directory)
    return is_put


def _check_apart(publication: Publication) -> None:
    """Refuse names of files of another dataset in the directory."""
    others = names_of_others(publication.job.target)
    if shared := sorted(publication.names & others.keys(), key=len):
        raise TargetExists(
            f"nothing was published: {shared[0]!r} is a file of another dataset there, that of "
            f"{others[shared[0]]!r}: choose another directory"
        )


def _give_names(target: Target, files: Sequence[FinishedFile], check: Callable[[], None]) -> None:
    for subdirectory in {os.path.dirname(file.name) for file in files}:
        storage.make_directory(os.path.join(target.directory, subdirectory))
    pairs = [(file.path, os.path.join(target.directory, file.name)) for file in files]
    storage.publish_files(pairs, check=check)


def _write_beside(publication: Publication) -> None:
    """Write side files, rejects and ``job.json``, which have to be there before the manifest."""
    target, directory = publication.job.target, publication.job.directory
    for name, data in publication.sidecars.items():
        storage.make_directory(os.path.dirname(target.path(name)))
        _put(target.path(name), data, directory)
    _publish_rejects(target, publication.rejects, os.path.join(directory, SAVED_FILE))
    _put(target.path(JOB_NAME), publication.job_text(), directory)
    storage.sync_directory(target.directory)


def published_names(target: Target, publication: str | None) -> list[str] | None:
    """Return the names of a publication's shards if it is complete at a target, else None.

    The ``job.json`` of a publication is written before its manifest, and never beside the manifest
    of another publication.
    """
    if publication is None or not storage.exists(target.manifest):
        return None
    job = read_job(target.path(JOB_NAME))
    if job.get(PUBLICATION) != publication:
        return None
    stored: dict[str, int] = job[STORED_BYTES]
    is_complete = all(_has_size(target, name, nbytes) for name, nbytes in stored.items())
    return list(stored) if is_complete else None


def finish_publishing(target: Target, directory: str, check: Callable[[], None]) -> None:
    """Remove the files that a publication replaced, if its worker died before doing so."""
    note, named = Note.load(directory), names_at(target.manifest)
    if note is not None and named:
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
    with storage.WholeFile(path, temporary=_half(directory)) as file:
        file.write(data)


def _half(directory: str) -> str:
    return os.path.join(directory, f"half-{uuid.uuid4().hex}")


def _publish_rejects(target: Target, rejects: SavedRejects, saved: str) -> None:
    """Give the file of rejects its name, or remove an old one."""
    path = target.path(REJECTS_FILE)
    if rejects.rows:
        storage.make_directory(os.path.dirname(path))
        storage.publish_files([(saved, path)])
        return
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        storage.remove(path)
    # The directory stays if it holds files of the user.
    storage.remove_directory(os.path.dirname(path))


# Lists the files that `describe` wrote, with their hashes.
DESCRIBED = "described.json"
_DESCRIBING = ("croissant.json", "dataset_info.json", "features.json", ".labels.txt")


class _Described(msgspec.Struct):
    files: dict[str, str]


def remove_described(manifest_file: str) -> None:
    """Remove the files that `describe` wrote; the caller holds the lease.

    Files that somebody has edited stay.
    """
    listed = manifest_file.removesuffix(MANIFEST_NAME) + DESCRIBED
    if not storage.exists(listed):
        return
    # Another try may remove them at the same time.
    with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
        described = msgspec.json.decode(storage.read_small(listed), type=_Described)
        # The last one comes first: without it, nobody looks for the others.
        for name, digest in reversed(described.files.items()):
            path = os.path.join(os.path.dirname(listed), name)
            is_ours = "/" not in name and storage.is_plain_name(name) and name.endswith(_DESCRIBING)
            if is_ours and storage.exists(path) and file_hash(path) == digest:
                storage.remove(path)
    with contextlib.suppress(FileNotFoundError):
        storage.remove(listed)


def _remove_old_manifest(target: Target) -> None:
    remove_described(target.manifest)
    with contextlib.suppress(FileNotFoundError):
        storage.remove(target.manifest)
        storage.sync_directory(target.directory)


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


# A job that appends locks a file of this name and its token as long as it runs.
APPENDS = ".lock-"


def clear_dead(target: Target) -> None:
    """Remove what killed jobs that appended have left in a local directory."""
    if storage.is_remote(target.directory):
        return
    with contextlib.suppress(TargetExists), storage.lease(target.directory):
        for name in storage.list_names(target.directory):
            if name.startswith(APPENDS):
                with contextlib.suppress(TargetExists), storage.lease(target.directory, name):
                    give_up(target, target.temporary(name.removeprefix(APPENDS)))


def give_up(target: Target, directory: str) -> None:
    """Remove all files of a job that nobody continues; the caller holds its lease."""
    if _roll_back(target, directory):
        storage.remove_tree(directory)


def abandon(directory: str, *, keep: str = "") -> None:
    """Remove the temporary files of a job that failed, except the one named `keep`.

    Once it has begun to publish, the next job removes them, which then holds the lease.
    """
    names = storage.list_names(directory)
    if NOTE_NAME in names:
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
    return manifest.names(prefix_of(manifest_file))


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
    directories = (*FITTED, INDEX_DIRECTORY, os.path.dirname(REJECTS_FILE))
    return storage.is_plain_name(name) and (not slash or first.endswith(directories))


def _roll_back(target: Target, directory: str) -> bool:
    """Give the shards of a note their temporary names back, and remove its side files.

    Return False, and do nothing, if they may still be published by a job that has lost its lease
    and does not know.
    """
    # Before the names are read: a try cannot publish once the manifest is another one.
    entry = storage.status(target.manifest)
    note, named = Note.load(directory), names_at(target.manifest)
    if note is None or named is None:
        return True
    if storage.is_remote(directory) and note.version and entry and entry.version == note.version:
        return False
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
        storage.remove(os.path.join(directory, NOTE_NAME))
    return True


def _has_hash(target: Target, name: str, digest: str) -> bool:
    path = os.path.join(target.directory, name)
    return storage.exists(path) and file_hash(path) == digest
