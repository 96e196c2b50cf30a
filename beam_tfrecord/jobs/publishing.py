"""Putting finished files in place, in the order that a reader can rely on at every moment.

Whatever happens on the way, there is never a manifest that points to something missing: the old
manifest goes away before the first file is replaced, and leftovers of the old dataset go away
after the new manifest is there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.exchange.merge import Piece
from beam_tfrecord.jobs.job_file import JOB_NAME, STORED_HASHES, dump_job
from beam_tfrecord.jobs.leavings import names_at, note_publishing, noted_old, remove_unnamed
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.rejects import REJECTS_FILE, SAVED_FILE, SavedRejects
from beam_tfrecord.storage import (
    Lease,
    WholeFile,
    exists,
    make_directory,
    publish_files,
    remove,
    remove_directory,
    status,
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
        job: What varies from run to run, for ``job.json``.
        lease: The right to write there, which is checked before every step; None: nobody else
            writes.

    Raises:
        LeaseLost: The directory is another job's by now; nothing of that job was touched.
    """
    check = _no_check if lease is None else lease.check
    check()
    before = noted_old(directory)
    old = sorted(names_at(target.manifest) | (before or set()))
    unnamed = pieces if before is None else _unnamed(target, pieces)
    note_publishing(
        directory, {piece.path: (name, piece.stored_bytes) for name, piece in pieces}, old
    )
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
    told = {**job, "stored_bytes": stored, STORED_HASHES: hashes}
    _put(target.path(JOB_NAME), dump_job(told).encode(), directory)
    sync_directory(target.directory)
    check()
    _put(target.manifest, manifest_text.encode(), directory)
    sync_directory(target.directory)
    named = {name for name, _ in pieces} | {target.name(name) for name in sidecars}
    remove_unnamed(target.directory, old, named)


def _unnamed(target: Target, pieces: Sequence[tuple[str, Piece]]) -> list[tuple[str, Piece]]:
    """Return the pieces that have not got their names yet."""
    return [
        (name, piece)
        for name, piece in pieces
        if exists(piece.path) or not _has(os.path.join(target.directory, name), piece)
    ]


def _has(path: str, piece: Piece) -> bool:
    entry = status(path)
    return entry is not None and entry.bytes == piece.stored_bytes


def _put(path: str, data: bytes, directory: str) -> None:
    # Half of a file, where the job is killed now, lies among what the next job clears away.
    with WholeFile(path, temporary=os.path.join(directory, "half")) as file:
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
