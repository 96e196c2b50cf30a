"""Computes the fingerprint of a job, and finds the results of earlier attempts at the same job.

The temporary directory of a job is named by its fingerprint, so a repeated call finds it again::

    plan.json      the first file: hashes that identify job and input, and the number of attempts
    kept-…         tasks and schemas (see `job_state.stored_state`)
    task-<key>     results of a task (see `job_state.checkpoints`)
    done-<key>     a merged shard
    publishing     names of files that are about to be published (see `publish.transaction`)
    progress-…     how far each process is, only for display (see `job_state.progress_files`)

A *unit* is a part of the input that is always read as one piece, and a *task* has some units.
Three values ensure that a job never uses results of another job. The fingerprint covers all
settings, the map function's text, and the names and sizes of the input files. ``plan.json`` adds
the version of this package, and hashes that change when a file is edited. The key of a task covers
its files and the types of its rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from beam_tfrecord import storage
from beam_tfrecord._version import __version__
from beam_tfrecord.errors import DataError
from beam_tfrecord.format import manifest_parts
from beam_tfrecord.format.job_file import INPUT, INPUT_STATE, INPUTS
from beam_tfrecord.format.manifest import FORMAT
from beam_tfrecord.job_state import stored_state
from beam_tfrecord.job_state.checkpoints import marked_files
from beam_tfrecord.job_state.job import Identity
from beam_tfrecord.job_state.progress_files import PROGRESS_PREFIX
from beam_tfrecord.job_state.worker_errors import forget_faults
from beam_tfrecord.rows.user_function import MapFunction, is_interactive
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.storage.paths import public_path


def identity_of(
    source: Source,
    files: Sequence[InputFile],
    decisive: Mapping[str, Any],
    functions: Sequence[MapFunction] = (),
) -> Identity:
    """Return the identity of an output: its fingerprint and the description of its input.

    The fingerprints are empty if the source is not stable. The fingerprint of everything is also
    empty if the source code of a function is unknown.
    """
    described = source_of(source, files)
    if not source.is_stable:
        return Identity(source=described)
    decisive = {**decisive, "source": described, "options": source.options_for(files)}
    if source.selection is not None:
        decisive["selection"] = source.selection.identity()
    without = ""
    if functions and is_interactive():
        without = fingerprint_of(decisive, has_functions=False)
    if any(function.sha256 is None for function in functions):
        return Identity(source=described, without_functions=without)
    return Identity(fingerprint_of(decisive), described, without)


def source_of(source: Source, files: Sequence[InputFile]) -> dict[str, Any]:
    """Return the description of the input for the manifest."""
    return {"kind": source.kind, "files": [_listed(file) for file in files], **source.facts}


def fingerprint_of(decisive: Mapping[str, Any], *, has_functions: bool = True) -> str:
    """Return the fingerprint of an output: a hash of what decides it, and of the writing rules."""

    def described(value: Any) -> Any:
        if not isinstance(value, MapFunction):
            return str(value)
        return value.identity() if has_functions else "function"

    rules = {"rules": manifest_parts.RULES}
    text = json.dumps(rules | dict(decisive), default=described, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def hash_of_each(values: Iterable[Any]) -> str:
    """Return the SHA-256 of the `repr` of a list of values, without the complete text in memory."""
    digest = hashlib.sha256(b"[")
    for number, value in enumerate(values):
        digest.update(f"{', ' if number else ''}{value!r}".encode())
    digest.update(b"]")
    return digest.hexdigest()


def _listed(file: InputFile) -> dict[str, Any]:
    listed = {"path": file.name, "bytes": file.bytes}
    return listed if not file.digest else {**listed, "files": file.inside, "digest": file.digest}


def listed_file(file: InputFile) -> list[Any]:
    """Return what tells whether a dataset has the rows of a file: path, bytes, version, digest.

    Data in memory has its digest as path. A pack of files has the paths of its first and last one,
    a URL none of its query, which may be signed anew.
    """
    if file.last:
        first, last = (os.path.join(file.path, name) for name in (file.name, file.last))
        return [first, file.bytes, file.version, file.digest, last]
    path = file.digest if file.inside == 1 and file.digest else public_path(file.path)
    return [path, file.bytes, file.version, file.digest]


def time_text(listed: Sequence[Any]) -> str:
    """Return size and time of a result of `listed_file`, for messages."""
    nbytes, version = listed[1:3]
    when = f"version {version}"
    if version.isdecimal() and len(version) == 19:  # nanoseconds
        when = datetime.datetime.fromtimestamp(int(version) / 1e9).isoformat(" ", "seconds")
    return f"{nbytes:,} bytes of {when}"


def input_info(files: Sequence[InputFile]) -> dict[str, Any]:
    """Return the entries of ``job.json`` that change when a file of the input is edited.

    The first is a hash of names, sizes and modification times, which can differ for a copy of the
    same files. The second is a hash of change times and inodes, which also shows a file that was
    replaced by another of the same size and time, but changes with a chmod, too. It is None if a
    file has no such state. The third is the files themselves, for jobs that append others.
    """
    listed = sorted((file.name, file.bytes, file.stamp[0], file.digest) for file in files)
    states = sorted((file.name, file.stamp[1]) for file in files)
    has_states = all(state for _, state in states)
    return {
        INPUT: hash_of_each(listed),
        INPUT_STATE: hash_of_each(states) if has_states else None,
        INPUTS: list(map(listed_file, files)),
    }


PLAN_NAME = "plan.json"


class _PlanFile(msgspec.Struct):
    """The content of ``plan.json``."""

    format: str
    beam_tfrecord: str
    stored: int
    fingerprint: str
    input_sha256: str
    attempts: int

    def is_of_job(self, other: _PlanFile) -> bool:
        """Return whether both are of the same job and version, of any input and attempt."""
        alike = {"input_sha256": other.input_sha256, "attempts": other.attempts}
        return msgspec.structs.replace(self, **alike) == other


@dataclasses.dataclass(frozen=True)
class State:
    """The progress of a job."""

    tasks: int | None
    done: int


def begin(
    directory: str,
    fingerprint: str,
    files: Sequence[InputFile],
    *,
    source: Source,
    of_all_rows: bool,
) -> int:
    """Make the temporary directory of a job, or remove results there that cannot be used again."""
    # The units in a stored plan contain the paths of their files.
    listed = sorted((file.path, file.name, file.bytes, *file.stamp, file.digest) for file in files)
    plan = _PlanFile(FORMAT, __version__, stored_state.FORMAT, fingerprint, hash_of_each(listed), 1)
    old = _read_plan(directory)
    is_same_input = old is not None and old.input_sha256 == plan.input_sha256
    if old is None or not old.is_of_job(plan) or (of_all_rows and not is_same_input):
        storage.remove_tree(directory)
        old = None
    elif not is_same_input or not _is_plan_of(directory, files, source):
        for name in (
            stored_state.TASKS,
            stored_state.SCHEMA,
            stored_state.TYPES,
            stored_state.RAW_SCHEMA,
            stored_state.REMARKS,
        ):
            with contextlib.suppress(FileNotFoundError):
                storage.remove(os.path.join(directory, name))
    storage.make_directory(directory)
    forget_faults(directory)
    plan.attempts = 1 if old is None else old.attempts + 1
    storage.put(os.path.join(directory, PLAN_NAME), msgspec.json.encode(plan))
    return plan.attempts


def _is_plan_of(directory: str, files: Sequence[InputFile], source: Source) -> bool:
    """Return whether the stored tasks in a directory read only `files`; True without tasks."""
    tasks, known = stored_state.load_tasks(directory, source), set(files)
    if tasks is None:
        return not storage.exists(os.path.join(directory, stored_state.TASKS))
    return all(unit.file.outline() in known for task in tasks for unit in task.units)


def progress_of(directory: str) -> State:
    """Return the progress of the job whose temporary directory is `directory`."""
    return State(stored_state.count_tasks(directory), stored_state.count_done(directory))


def remove_unmarked(directory: str) -> None:
    """Remove the unfinished files of an earlier attempt, which no checkpoint names."""
    known = marked_files(directory)
    for name in storage.list_names(directory):
        of_attempt = ("run-", "shard-", "rejects", stored_state.KEPT_ROWS, PROGRESS_PREFIX)
        if name.lstrip(".").startswith(of_attempt) and name not in known:
            with contextlib.suppress(FileNotFoundError):
                storage.remove(os.path.join(directory, name))


def _read_plan(directory: str) -> _PlanFile | None:
    try:
        return msgspec.json.decode(
            storage.read_bytes(os.path.join(directory, PLAN_NAME)), type=_PlanFile
        )
    except (FileNotFoundError, NotADirectoryError, DataError, msgspec.MsgspecError, RecursionError):
        return None
