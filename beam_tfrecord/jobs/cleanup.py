"""What a job that was killed while it published has left at its target, and how to clear it.

Shards get their names one after the other, and until the manifest is there no reader knows of them.
So the names are noted first: by the note the next job tells files of ours from anyone else's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterable

from beam_tfrecord.conforming import conforms
from beam_tfrecord.errors import DataError
from beam_tfrecord.hashes import file_hash
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.preprocess.fitted import FITTED
from beam_tfrecord.staging.manifest import stage_names
from beam_tfrecord.storage import (
    exists,
    is_plain_name,
    is_remote,
    publish_files,
    put,
    read_small,
    remove,
    remove_directory,
    remove_tree,
    status,
)

_NOTE_NAME = "publishing"


@dataclasses.dataclass(frozen=True)
class Note:
    """What a job is about to publish.

    Attributes:
        shards: The name of each shard in the temporary directory, its final one, and its bytes.
            Where the last step was tried again, those of the tries before follow the latest.
        sidecars: Name and XXH64, 16 hex digits, of each further file, of all tries likewise.
        old: Names of the files that are to go once the new ones are there.
    """

    shards: tuple[tuple[str, str, int], ...]
    sidecars: tuple[tuple[str, str], ...]
    old: frozenset[str]

    @classmethod
    def load(cls, directory: str) -> Note | None:
        """Read the note in a temporary directory; None where none is there, or no whole one."""
        try:
            noted = json.loads(read_small(os.path.join(directory, _NOTE_NAME)))
            shards = tuple((temporary, name, nbytes) for temporary, name, nbytes in noted["shards"])
            sidecars = tuple((name, digest) for name, digest in noted["sidecars"])
            note = cls(shards, sidecars, frozenset(noted["old"]))
        except (FileNotFoundError, DataError, KeyError, TypeError, ValueError, RecursionError):
            return None
        return note if note.is_sound else None

    @property
    def is_sound(self) -> bool:
        """Whether all that it names is at the target, or in its own directory: files are moved."""
        names = [name for _, name, _ in self.shards] + [name for name, _ in self.sidecars]
        return (
            conforms(self.shards, tuple[tuple[str, str, int], ...])
            and conforms(self.sidecars, tuple[tuple[str, str], ...])
            and all(map(is_plain_name, (*names, *self.old)))
            and all("/" not in one and is_plain_name(one) for one, _, _ in self.shards)
        )

    def save(self, directory: str) -> None:
        """Write the note to a temporary directory."""
        noted = {"shards": self.shards, "sidecars": self.sidecars, "old": sorted(self.old)}
        put(os.path.join(directory, _NOTE_NAME), json.dumps(noted).encode())

    def after(self, before: Note | None) -> Note:
        """Return this note with what a try before has noted."""
        if before is None:
            return self
        shards = dict.fromkeys((*self.shards, *before.shards))
        sidecars = dict.fromkeys((*self.sidecars, *before.sidecars))
        return Note(tuple(shards), tuple(sidecars), self.old | before.old)


def remove_leftovers(target: Target) -> None:
    """Remove what jobs have left at a target where the last of them has published."""
    for directory in target.leftovers():
        remove_tree(directory)


def clear_leftovers(target: Target, *, keep: str | None = None) -> None:
    """Remove what jobs that ended early have left at a target; the caller holds its lease.

    Args:
        target: The target.
        keep: Temporary directory of the job that goes on: shards that it had begun to publish go
            back there.
    """
    if not (leftovers := target.leftovers()):
        return
    named = names_at(target.manifest)
    for directory in leftovers:
        _undo_publishing(target, directory, named)
        if directory != keep:
            remove_tree(directory)


def clear_published(target: Target, spare: str, check: Callable[[], None]) -> None:
    """Remove what jobs have left that ended while they published; the caller holds the lease.

    A directory without a note may be that of a sink under way, which takes the lease at its end.

    Args:
        target: The target.
        spare: Temporary directory of a job that is publishing: all of that stays as it is.
        check: Called before anything is changed, such as `Lease.check`.
    """
    for directory in target.leftovers():
        if directory != spare and Note.load(directory) is not None:
            check()
            give_up(target, directory)


def give_up(target: Target, directory: str) -> None:
    """Remove all that a job has left which nobody goes on with; the caller holds its lease."""
    _undo_publishing(target, directory, names_at(target.manifest))
    remove_tree(directory)


def names_at(manifest_file: str) -> set[str] | None:
    """Return the names of the files that a manifest speaks of; none where there is no manifest.

    Returns:
        None where what is there is no whole manifest: any file may be one that it spoke of.

    Raises:
        StorageError: It cannot be read now.
    """
    if not exists(manifest_file):
        return set()
    try:
        manifest = Manifest.load(manifest_file)
    except DataError:
        return stage_names(manifest_file) or None
    return {shard.path for shard in manifest.shards} | set(manifest.sidecars)


def remove_replaced(target: Target, note: Note, named: set[str], check: Callable[[], None]) -> None:
    """Remove what a new dataset has replaced, and what tries before have named otherwise.

    Args:
        target: Where it is.
        note: What its job has noted.
        named: Names of its files.
        check: Called before anything is removed, such as `Lease.check`.
    """
    others = (shard for shard in note.shards if shard[1] not in named)
    ours = {name for _, name, nbytes in others if has_size(target, name, nbytes)}
    _remove_unnamed(target.directory, note.old | ours | _written(target, note, named), named, check)


def _remove_unnamed(
    directory: str,
    names: Iterable[str],
    named: set[str],
    check: Callable[[], None] = lambda: None,
) -> None:
    for name in sorted(names):
        if name in named or not _is_ours(name):
            continue
        check()
        with contextlib.suppress(FileNotFoundError):
            remove(os.path.join(directory, name))
        while (name := os.path.dirname(name)) != "":
            remove_directory(os.path.join(directory, name))


def has_size(target: Target, name: str, nbytes: int) -> bool:
    """Tell whether a file of so many bytes is at a target under a name."""
    entry = status(os.path.join(target.directory, name))
    return entry is not None and entry.bytes == nbytes


def _is_ours(name: str) -> bool:
    """Tell whether a name in a manifest is one that this package gives."""
    parts = name.split("/")
    is_plain = all(part not in ("", ".", "..") for part in parts)
    return is_plain and (len(parts) == 1 or parts[0].endswith(FITTED))


def _undo_publishing(target: Target, directory: str, named: set[str] | None) -> None:
    note = Note.load(directory)
    if note is None or named is None:
        return
    # The latest try comes first: what it has named is no longer that of the one before.
    for temporary, name, nbytes in note.shards:
        final = os.path.join(target.directory, name)
        back = os.path.join(directory, temporary)
        # A rename that was not reached yet has left the temporary file: what is there under the
        # final name is not that shard then. An object store copies, and keeps both.
        was_reached = is_remote(directory) or not exists(back)
        if name in named or not was_reached or not has_size(target, name, nbytes):
            continue
        if exists(back):
            remove(final)
        else:
            publish_files([(final, back)])
    _remove_unnamed(target.directory, note.old | _written(target, note, named), named)
    with contextlib.suppress(FileNotFoundError):
        remove(os.path.join(directory, _NOTE_NAME))


def _written(target: Target, note: Note, named: set[str]) -> set[str]:
    """Return the sidecars that tries have written and that the dataset there does not name."""
    return {
        name
        for name, digest in note.sidecars
        if name not in named and _has_hash(target, name, digest)
    }


def _has_hash(target: Target, name: str, digest: str) -> bool:
    path = os.path.join(target.directory, name)
    return exists(path) and file_hash(path) == digest
