"""Putting finished files in place, in the order that a reader can rely on at every moment.

Whatever happens on the way, there is never a manifest that points to something missing: the old
manifest goes away before the first file is replaced, and leftovers of the old dataset go away
after the new manifest is there.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfrecord.errors import DataError, StorageError
from beam_tfrecord.exchange.merge import Piece
from beam_tfrecord.hashes import data_hash, file_hash
from beam_tfrecord.jobs.cleanup import Note, has_size, names_at, remove_replaced
from beam_tfrecord.jobs.job_file import (
    JOB_NAME,
    PUBLICATION,
    STORED_BYTES,
    STORED_HASHES,
    dump_job,
    load_job,
)
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.rejects import REJECTS_FILE, SAVED_FILE, SavedRejects
from beam_tfrecord.storage import (
    Lease,
    WholeFile,
    exists,
    list_files,
    make_directory,
    publish_files,
    read_small,
    remove,
    remove_directory,
    sync_directory,
)


def put_in_place(
    target: Target,
    pieces: Sequence[tuple[str, Piece]],
    manifest_text: str,
    *,
    sidecars: Mapping[str, bytes],
    rejects: SavedRejects,
    directory: str,
    job: Mapping[str, Any],
    lease: Lease | None,
) -> None:
    """Give files their names, and write the manifest that speaks of them.

    Where a try before has begun with that, this one goes on: it never takes a step back, for that
    worker may only be thought dead.

    Args:
        target: Where to.
        pieces: The final name of each file, and where it is now.
        manifest_text: Of all that.
        sidecars: Further files by name, which the manifest names with the target's prefix.
        rejects: Saved in the temporary directory.
        directory: The job's temporary directory.
        job: What varies from run to run, for ``job.json``; its `PUBLICATION` tells what is
            published here from all else, whoever tries it.
        lease: The right to write there, which is checked before every step; None: nobody else
            writes.

    Raises:
        LeaseLost: The directory is another job's by now; nothing of that job was touched.
        StorageError: Files of the job are gone; nothing was touched.
    """
    check = _no_check if lease is None else lease.check
    check()
    before = Note.load(directory)
    unnamed = _unnamed(target, pieces, directory, is_first=before is None)
    note = Note(
        tuple((os.path.basename(piece.path), name, piece.stored_bytes) for name, piece in pieces),
        tuple((target.name(name), data_hash(data)) for name, data in sidecars.items()),
        frozenset(names_at(target.manifest) or ()),
    ).after(before)
    note.save(directory)
    check()
    named = {name for name, _ in pieces} | {target.name(name) for name in sidecars}
    if published_names(target, job.get(PUBLICATION)) is not None:
        # A worker that was thought dead has published meanwhile.
        remove_replaced(target, note, named, check)
        return
    _take_away_old_manifest(target)
    publish_files(
        [(piece.path, os.path.join(target.directory, name)) for name, piece in unnamed],
        check=check,
    )
    check()
    for name, data in sidecars.items():
        make_directory(os.path.dirname(target.path(name)))
        _put(target.path(name), data, directory)
    hashes = _publish_rejects(target, rejects, os.path.join(directory, SAVED_FILE))
    hashes |= {name: piece.stored_xxh64 for name, piece in pieces if piece.stored_xxh64}
    stored = {name: piece.stored_bytes for name, piece in pieces}
    told = {**job, STORED_BYTES: stored, STORED_HASHES: hashes}
    _put(target.path(JOB_NAME), dump_job(told).encode(), directory)
    sync_directory(target.directory)
    check()
    _put(target.manifest, manifest_text.encode(), directory)
    sync_directory(target.directory)
    remove_replaced(target, note, named, check)


def published_names(target: Target, publication: str | None) -> list[str] | None:
    """Return the names of the files at a target, if what is there is a certain publication.

    Its ``job.json`` is written before its manifest, and while that of another one is there none is.

    Returns:
        None where it is not there, or not whole.
    """
    if publication is None or not exists(target.manifest):
        return None
    try:
        job = load_job(read_small(target.path(JOB_NAME)).decode())
    except (FileNotFoundError, DataError, UnicodeDecodeError):
        return None
    if job.get(PUBLICATION) != publication:
        return None
    stored: dict[str, int] = job[STORED_BYTES]
    is_whole = all(has_size(target, name, nbytes) for name, nbytes in stored.items())
    return list(stored) if is_whole else None


def finish_publishing(target: Target, directory: str, check: Callable[[], None]) -> None:
    """Remove what was replaced, where the worker died that had published before it came to that.

    Args:
        target: What was published.
        directory: The job's temporary directory; it may be gone.
        check: Called before anything is changed, such as `Lease.check`.
    """
    note, named = Note.load(directory), names_at(target.manifest)
    if note is not None and named is not None:
        remove_replaced(target, note, named, check)


def _unnamed(
    target: Target, pieces: Sequence[tuple[str, Piece]], directory: str, *, is_first: bool
) -> list[tuple[str, Piece]]:
    """Return the pieces that have not got their names yet; each must be somewhere.

    Args:
        target: Where to.
        pieces: The final name of each, and where it was written.
        directory: The job's temporary directory.
        is_first: No try before can have given any of them its name.

    Raises:
        StorageError: One is neither here nor there.
    """
    there = {os.path.basename(entry.path): entry.bytes for entry in list_files(directory)}
    unnamed = []
    for name, piece in pieces:
        if there.get(os.path.basename(piece.path)) == piece.stored_bytes:
            unnamed.append((name, piece))
        elif is_first or not _is_named(target, name, piece):
            raise StorageError(
                f"{piece.path!r} is gone: another job has cleared away what this one has written, "
                "and this one stops before it changes anything: run it again"
            )
    return unnamed


def _is_named(target: Target, name: str, piece: Piece) -> bool:
    if not has_size(target, name, piece.stored_bytes):
        return False
    path = os.path.join(target.directory, name)
    return file_hash(path) == (piece.stored_xxh64 or piece.xxh64)


def _put(path: str, data: bytes, directory: str) -> None:
    # Half of a file, where the job is killed now, lies among what the next job clears away. No two
    # tries write to one: what the first has given its name must not change any more.
    half = os.path.join(directory, f"half-{uuid.uuid4().hex}")
    with WholeFile(path, temporary=half) as file:
        file.write(data)


def _no_check() -> None:
    return


def _publish_rejects(target: Target, rejects: SavedRejects, saved: str) -> dict[str, str]:
    """Give the file of rejects its name, or take away an old one; return its hash by its name."""
    path = target.path(REJECTS_FILE)
    if rejects.rows:
        make_directory(os.path.dirname(path))
        publish_files([(saved, path)])
        return {target.name(REJECTS_FILE): rejects.stored_xxh64}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        remove(path)
    # Files that are not ours keep the directory.
    remove_directory(os.path.dirname(path))
    return {}


def _take_away_old_manifest(target: Target) -> None:
    with contextlib.suppress(FileNotFoundError):
        remove(target.manifest)
        sync_directory(target.directory)
