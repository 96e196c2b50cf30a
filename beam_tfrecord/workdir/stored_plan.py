"""Stores the plan of a job for its next attempt: groups of units, schemas and remarks.

A unit is the smallest piece of the input that one worker reads; a group, a task of several units.
The files lie in the job's temporary directory::

    kept-groups    the groups of units
    kept-schema    the schema of the rows
    kept-types     the schema of mapped rows, if a separate pass over the rows found it
    raw-schema     the schema of rows, if a separate pipeline found it
    remarks.json   lines for the user about the types of the rows
    group-<key>    results of a group of units (see `exchange.checkpoints`)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.groups import Group
from beam_tfrecord.storage import list_names, put, read_bytes
from beam_tfrecord.workdir import object_file

GROUPS, SCHEMA, TYPES = "kept-groups", "kept-schema", "kept-types"
RAW_SCHEMA = "raw-schema"
REMARKS = "remarks.json"
GROUP_PREFIX = "group-"


def count_groups(directory: str) -> int | None:
    """Return the number of groups in the plan; None if there is no plan yet."""
    groups = load_stored(directory, GROUPS)
    return None if groups is None else len(groups)


def count_done(directory: str) -> int:
    """Return the number of groups that have a checkpoint."""
    return sum(name.startswith(GROUP_PREFIX) for name in list_names(directory))


def group_key(group: Group, schema: pa.Schema) -> str:
    """Return a hash of everything that decides the result of a group within its job."""
    units = [
        (unit.name, unit.file.name, unit.file.bytes, unit.file.stamp, unit.start, unit.stop)
        for unit in group.units
    ]
    digest = hashlib.sha256(repr((group.number, group.first_unit, units)).encode())
    digest.update(schema.serialize())
    return digest.hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class Stored:
    """A wrapper of a generator function, for one element, that stores all outputs in a file."""

    function: Callable[[Any], Iterable[Any]]
    directory: str | None
    name: str

    def __call__(self, element: Any) -> Iterator[Any]:
        """Yield the outputs of the function, after all of them are stored."""
        if self.directory is None:
            yield from self.function(element)
            return
        outputs = list(self.function(element))
        object_file.save(os.path.join(self.directory, self.name), outputs)
        yield from outputs


def load_stored(directory: str | None, name: str) -> list[Any] | None:
    """Return the outputs that `Stored` has stored; None if there is no such file."""
    if directory is None:
        return None
    found = object_file.load(os.path.join(directory, name))
    return found if isinstance(found, list) else None


def save_remarks(directory: str, remarks: Sequence[str]) -> None:
    """Store lines for the user about the types of the rows, for the step that publishes."""
    put(os.path.join(directory, REMARKS), json.dumps(remarks).encode())


def load_remarks(directory: str) -> list[str]:
    """Return the stored lines for the user; empty if none are stored."""
    try:
        return [str(line) for line in json.loads(read_bytes(os.path.join(directory, REMARKS)))]
    except FileNotFoundError:
        return []


def load_groups(directory: str) -> list[Group]:
    """Return the stored groups."""
    groups = load_stored(directory, GROUPS)
    if groups is None:
        raise DataError(f"the plan in {directory!r} is gone: run the job again")
    return groups


def load_schema(directory: str | None, name: str) -> pa.Schema | None:
    """Return the schema that is stored under a name; None if there is none."""
    found = load_stored(directory, name)
    return found[0] if found and isinstance(found[0], pa.Schema) else None
