"""Going on where an earlier attempt at the same job ended.

A job's temporary directory is named by its fingerprint, so the same command finds it again::

    plan.json      written first: what the job is made from, and how often it was tried
    kept-groups    the groups of units     kept-schema  types of the rows
    kept-types     types of mapped rows, where a pass of its own found them
    remarks.json   what a user should know of the types of the rows
    group-<key>    what a group of units became (see `exchange.marks`)
    done-<key>     what a merged shard became
    publishing     the names that shards are about to get

Nothing of another job is ever used. The fingerprint covers all settings, the map function's text,
and names and sizes of the input; the plan adds what changes when a file of the same size is edited
and the version of this package; and the key of a group covers its files and the types of its rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord._version import __version__
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.marks import GROUP_PREFIX, marked_files
from beam_tfrecord.jobs import sealed
from beam_tfrecord.jobs.faults import forget_faults
from beam_tfrecord.jobs.fingerprint import hash_of_each, input_sha256, state_sha256
from beam_tfrecord.manifest import FORMAT
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.storage import (
    list_names,
    make_directory,
    put,
    read_bytes,
    remove,
    remove_tree,
)
from beam_tfrecord.transforms.grouping import Group
from beam_tfrecord.type_checks import has_type

PLAN_NAME = "plan.json"
_FILES_TOLD = 10_000
GROUPS, SCHEMA, TYPES = "kept-groups", "kept-schema", "kept-types"
REMARKS = "remarks.json"


@dataclasses.dataclass(frozen=True)
class State:
    """How far a job is.

    Attributes:
        groups: Number of groups in the plan; None where it is not known yet.
        done: Groups that are done, as far as marks tell.
    """

    groups: int | None
    done: int


def begin(
    directory: str,
    fingerprint: str,
    files: Sequence[InputFile],
    *,
    source: Source,
    is_mapped: bool,
) -> int:
    """Make a job's temporary directory, or take over what an earlier attempt left in it.

    Args:
        directory: The directory.
        fingerprint: Of the job.
        files: The input.
        source: What reads it.
        is_mapped: Rows go through a user's function, so an edited file may change the types of
            rows in all the others.

    Returns:
        The number of this attempt, from 1.
    """
    # Units that were planned name their files by path.
    paths_sha256 = hash_of_each(sorted(file.path for file in files))
    identity = {
        "format": FORMAT,
        "beam_tfrecord": __version__,
        "stored": sealed.FORMAT,
        "fingerprint": fingerprint,
    }
    of_files = f"{input_sha256(files)} {state_sha256(files)} {paths_sha256}"
    listed_sha256 = hashlib.sha256(of_files.encode()).hexdigest()
    old = _read_plan(directory)
    is_same_input = old.get("input_sha256") == listed_sha256
    if any(old.get(name) != value for name, value in identity.items()) or (
        is_mapped and not is_same_input
    ):
        remove_tree(directory)
        old = {}
    elif not is_same_input or not _is_plan_of(directory, files, source):
        for name in (GROUPS, SCHEMA, TYPES, REMARKS):
            with contextlib.suppress(FileNotFoundError):
                remove(os.path.join(directory, name))
    make_directory(directory)
    forget_faults(directory)
    attempts = old.get("attempts")
    number = attempts + 1 if isinstance(attempts, int) else 1
    # For people: what decides is the hash of all.
    versions = {file.name: [file.bytes, file.version] for file in files[:_FILES_TOLD]}
    plan = {**identity, "attempts": number, "input_sha256": listed_sha256, "files": versions}
    put(os.path.join(directory, PLAN_NAME), json.dumps(plan, indent=1).encode())
    return number


def _is_plan_of(directory: str, files: Sequence[InputFile], source: Source) -> bool:
    """Tell whether the plan in a directory, if there is one, reads these files and no other."""
    groups = kept(directory, GROUPS)
    if groups is None:
        return True
    known = set(files)
    return all(
        isinstance(group, Group)
        and all(
            has_type(unit.detail, source.detail_type) and unit.file.outline() in known
            for unit in group.units
        )
        for group in groups
    )


def progress_of(directory: str) -> State:
    """Return how far the job in a directory is."""
    return State(count_groups(directory), count_done(directory))


def count_groups(directory: str) -> int | None:
    """Return the number of groups in the plan; None where it is not known yet."""
    groups = kept(directory, GROUPS)
    return None if groups is None else len(groups)


def count_done(directory: str) -> int:
    """Return how many groups are done, as far as marks tell."""
    return sum(name.startswith(GROUP_PREFIX) for name in list_names(directory))


def remove_unmarked(directory: str) -> None:
    """Remove files of an earlier attempt that no mark speaks of: it ended while it wrote them."""
    known = marked_files(directory)
    for name in list_names(directory):
        if name.lstrip(".").startswith(("run-", "shard-", "rejects")) and name not in known:
            with contextlib.suppress(FileNotFoundError):
                remove(os.path.join(directory, name))


def remove_all_but(directory: str, kept_name: str) -> None:
    """Remove the files of a directory of ours but one."""
    for name in list_names(directory):
        if name != kept_name:
            with contextlib.suppress(FileNotFoundError):
                remove(os.path.join(directory, name))


def _read_plan(directory: str) -> dict[str, Any]:
    try:
        plan = json.loads(read_bytes(os.path.join(directory, PLAN_NAME)))
    except (FileNotFoundError, NotADirectoryError, DataError, ValueError, RecursionError):
        return {}
    return plan if isinstance(plan, dict) else {}


def group_key(group: Group, schema: pa.Schema, *, makes_stubs: bool = False) -> str:
    """Return what tells the work on a group from any other work of the same job.

    Args:
        group: What is read.
        schema: Types of its rows.
        makes_stubs: The work is of stubs, which name their files by path.
    """
    units = [
        (unit.name, unit.file.name, unit.file.bytes, unit.file.version, unit.start, unit.stop)
        for unit in group.units
    ]
    states = [unit.file.state for unit in group.units]
    digest = hashlib.sha256(repr((group.number, group.first_unit, units, states)).encode())
    digest.update(schema.serialize())
    if makes_stubs:
        digest.update(repr([unit.file.path for unit in group.units]).encode())
    return digest.hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class Keep:
    """Wrap a generator function so that all it yields for its one element is kept.

    Attributes:
        function: From one element to any number.
        directory: The job's temporary directory; None: nothing is kept.
        name: Under which `kept` finds it.
    """

    function: Callable[[Any], Iterable[Any]]
    directory: str | None
    name: str

    def __call__(self, element: Any) -> Iterator[Any]:
        """Yield what the function yields."""
        if self.directory is None:
            yield from self.function(element)
            return
        outputs = list(self.function(element))
        sealed.save(os.path.join(self.directory, self.name), outputs)
        yield from outputs


def kept(directory: str | None, name: str) -> list[Any] | None:
    """Return what `Keep` kept; None where there is nothing."""
    if directory is None:
        return None
    found = sealed.load(os.path.join(directory, name))
    return found if isinstance(found, list) else None


def save_remarks(directory: str, remarks: Sequence[str]) -> None:
    """Write down for whoever publishes what a user should know of the types of the rows."""
    put(os.path.join(directory, REMARKS), json.dumps(remarks).encode())


def load_remarks(directory: str) -> list[str]:
    """Return what `save_remarks` wrote; nothing where it did not."""
    try:
        return [str(line) for line in json.loads(read_bytes(os.path.join(directory, REMARKS)))]
    except FileNotFoundError:
        return []


def load_groups(directory: str) -> list[Group]:
    """Return the groups of a plan that is known to be there.

    Raises:
        DataError: It is gone.
    """
    groups = kept(directory, GROUPS)
    if groups is None:
        raise DataError(f"the plan in {directory!r} is gone: run the job again")
    return groups


def kept_schema(directory: str | None, name: str) -> pa.Schema | None:
    """Return the one schema that was kept under a name; None where there is none."""
    found = kept(directory, name)
    return found[0] if found and isinstance(found[0], pa.Schema) else None
