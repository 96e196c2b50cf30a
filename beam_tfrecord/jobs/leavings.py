"""What a job that was killed while it published has left at its target, and how to clear it.

Shards get their names one after the other, and until the manifest is there no reader knows of them.
So the names are noted first: by the note the next job tells files of ours from anyone else's.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.jobs.target import Target
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.preprocess.fitted import TRANSFORM_FN, TRANSFORMED_METADATA
from beam_tfrecord.staging.manifest import stage_names
from beam_tfrecord.storage import (
    exists,
    is_remote,
    publish_files,
    put,
    read_bytes,
    remove,
    remove_directory,
    remove_tree,
    status,
)

NOTE_NAME = "publishing"


def note_publishing(
    directory: str, shards: Mapping[str, tuple[str, int]], old: Iterable[str]
) -> None:
    """Note what is about to be published.

    Args:
        directory: The job's temporary directory.
        shards: By the temporary path of each shard, its final name and its size in bytes.
        old: Names of the files of the dataset that is replaced.
    """
    named = [[os.path.basename(path), name, nbytes] for path, (name, nbytes) in shards.items()]
    note = json.dumps({"shards": named, "old": sorted(old)})
    put(os.path.join(directory, NOTE_NAME), note.encode())


def noted_old(directory: str) -> set[str] | None:
    """Return the names of what is being replaced, as a try at the last step has noted them.

    Args:
        directory: The job's temporary directory.

    Returns:
        None where no try has begun to publish.
    """
    note = _read_note(os.path.join(directory, NOTE_NAME))
    return set(note.get("old", ())) if note else None


def remove_leavings(target: Target) -> None:
    """Remove what jobs have left at a target where the last of them has published."""
    for directory in target.leftovers():
        remove_tree(directory)


def clear_leavings(target: Target, keep: str | None = None) -> None:
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


def names_at(manifest_file: str) -> set[str]:
    """Return the names of the files that a manifest speaks of; none where it is not whole."""
    try:
        manifest = Manifest.load(manifest_file)
    except (BeamTFRecordError, FileNotFoundError):
        return stage_names(manifest_file)
    return {shard.path for shard in manifest.shards} | set(manifest.sidecars)


def remove_unnamed(directory: str, names: Iterable[str], named: set[str]) -> None:
    """Remove files of a former dataset, but for those that the present one has too."""
    for name in names:
        if name in named or not _is_ours(name):
            continue
        with contextlib.suppress(FileNotFoundError):
            remove(os.path.join(directory, name))
        while (name := os.path.dirname(name)) != "":
            remove_directory(os.path.join(directory, name))


def _is_ours(name: str) -> bool:
    """Tell whether a name in a manifest is one that this package gives."""
    parts = name.split("/")
    is_plain = all(part not in ("", ".", "..") for part in parts)
    return is_plain and (len(parts) == 1 or parts[0].endswith((TRANSFORM_FN, TRANSFORMED_METADATA)))


def _undo_publishing(target: Target, directory: str, named: set[str]) -> None:
    path = os.path.join(directory, NOTE_NAME)
    note = _read_note(path)
    for temporary, name, nbytes in note.get("shards", ()):
        final = os.path.join(target.directory, name)
        back = os.path.join(directory, temporary)
        # A rename that was not reached yet has left the temporary file: what is there under the
        # final name is not that shard then. An object store copies, and keeps both.
        was_reached = is_remote(directory) or not exists(back)
        entry = status(final)
        if name in named or not was_reached or entry is None or entry.bytes != nbytes:
            continue
        if exists(back):
            remove(final)
        else:
            publish_files([(final, back)])
    remove_unnamed(target.directory, note.get("old", ()), named)
    with contextlib.suppress(FileNotFoundError):
        remove(path)


def _read_note(path: str) -> dict[str, Any]:
    try:
        note = json.loads(read_bytes(path))
    except (FileNotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
