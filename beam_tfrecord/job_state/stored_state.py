"""Stores the state of a job for its next attempt, in files that hold values and run no code.

Others may write to the directory of such a file. So the reader says which type it expects, and the
file names no classes: `load` returns a value whose fields all have their types, or None. The file
is the XXH64 of the value's MessagePack, and the MessagePack.

A unit is the smallest piece of the input that one worker reads; a task has several units.
The plan of a job is in these files of its temporary directory::

    kept-tasks     the tasks of reading
    kept-schema    the schema of the rows
    kept-types     the schema of mapped rows, if it was inferred from them
    rows-<id>      mapped rows until then, only for the attempt that wrote them
    raw-schema     the schema of rows, if a separate pipeline found it
    strata         limits of splits, if a separate pipeline found them from counts of all rows
    remarks        lines for the user about the types of the rows
    task-<key>     results of a task (see `job_state.checkpoints`)
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import InputFile, Source, Unit
from beam_tfrecord.sources.read_tasks import ReadTask
from beam_tfrecord.storage import WholeFile, list_names, read_bytes, remove

_LOGGER = logging.getLogger(__name__)

# Files of another format are not read: an attempt that finds one begins from the start.
FORMAT = 4
_SEAL_BYTES = 8

TASKS, SCHEMA, TYPES = "kept-tasks", "kept-schema", "kept-types"
RAW_SCHEMA = "raw-schema"
STRATA = "strata"
REMARKS = "remarks"
TASK_PREFIX = "task-"
KEPT_ROWS = "rows-"

T = TypeVar("T")
FileT = TypeVar("FileT", bound=InputFile)
Detail = TypeVar("Detail")


def save(path: str, value: Any) -> None:
    """Store a value in a file, which need not outlast a crash of the machine."""
    data = msgspec.msgpack.encode(value, enc_hook=_encoded)
    with WholeFile(path, outlasts=False) as file:
        file.write(_seal(data))
        file.write(data)


def load(path: str, kind: type[T]) -> T | None:
    """Return the value of type `kind` that `save` stored; None if there is no such file."""
    try:
        stored = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    data = stored[_SEAL_BYTES:]
    if stored[:_SEAL_BYTES] == _seal(data):
        # No error matters: without the file, the job only does some work again.
        with contextlib.suppress(Exception):
            try:
                return msgspec.msgpack.decode(data, type=kind, dec_hook=_decoded)
            except msgspec.ValidationError as error:
                _LOGGER.debug("%s is not used: %s", path, error)
    return None


def _seal(data: bytes) -> bytes:
    return native.xxh64(data, FORMAT).to_bytes(_SEAL_BYTES, "little")


def _encoded(value: Any) -> Any:
    """Return a value of NumPy or Arrow as one of MessagePack."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1:
        return value.dtype.str, value.tobytes()
    if isinstance(value, pa.DataType):
        return _encoded(pa.schema([pa.field("", value)]))
    if isinstance(value, pa.Schema):
        return value.serialize().to_pybytes()
    raise TypeError(f"a {type(value).__qualname__} cannot be stored for a job's next attempt")


def _decoded(kind: Any, value: Any) -> Any:
    """Return the value of type `kind` for what `_encoded` returned."""
    origin = typing.get_origin(kind) or kind
    if origin is np.ndarray:
        dtype, data = value
        (scalar,) = typing.get_args(typing.get_args(kind)[1])
        if np.dtype(dtype).type is not scalar:
            raise ValueError(f"an array of {dtype}")
        return np.frombuffer(data, dtype)
    if origin in (pa.Schema, pa.DataType):
        schema = pa.ipc.read_schema(pa.py_buffer(value))
        return schema if origin is pa.Schema else schema.field(0).type
    raise TypeError(f"a {origin.__qualname__} is not stored")


# A `Unit`, with numbers in place of its file and its detail, which other units share.
_Unit: Any = msgspec.defstruct(
    "_Unit",
    [
        (name, int if name in ("file", "detail") else kind)
        for name, kind in typing.get_type_hints(Unit).items()
    ],
    array_like=True,
)


class _StoredTasks(msgspec.Struct, Generic[FileT, Detail], array_like=True):
    """All tasks of a job: each is its number, its first unit, its units and its share of them."""

    files: list[InputFile]
    own_files: list[FileT]
    details: list[Detail]
    tasks: list[tuple[int, int, list[_Unit], tuple[int, int]]]


def save_tasks(directory: str, tasks: Sequence[ReadTask]) -> None:
    """Store the tasks of a job."""
    units = [unit for task in tasks for unit in task.units]
    files = list({id(unit.file): unit.file for unit in units}.values())
    files.sort(key=lambda file: type(file) is not InputFile)
    own = [file for file in files if type(file) is not InputFile]
    details = {id(unit.detail): unit.detail for unit in units}
    file_numbers = {id(file): number for number, file in enumerate(files)}
    detail_numbers = {key: number for number, key in enumerate(details)}

    def stored(unit: Unit) -> _Unit:
        shared = {"file": file_numbers[id(unit.file)], "detail": detail_numbers[id(unit.detail)]}
        return _Unit(**{**vars(unit), **shared})

    described = [(of.number, of.first_unit, list(map(stored, of.units)), of.share) for of in tasks]
    plan = _StoredTasks(files[: len(files) - len(own)], own, list(details.values()), described)
    try:
        save(os.path.join(directory, TASKS), plan)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the path {error.object!r:.200} is not utf-8: rename its directories"
        ) from error


def load_tasks(directory: str | None, source: Source) -> list[ReadTask] | None:
    """Return the stored tasks of a job that reads `source`; None if there are none."""
    if directory is None:
        return None
    kind: Any = _StoredTasks[source.file_type, source.detail_type]  # type: ignore[name-defined]
    plan: _StoredTasks[InputFile, Any] | None = load(os.path.join(directory, TASKS), kind)
    if plan is None:
        return None
    files = [*plan.files, *plan.own_files]

    def restored(stored: _Unit) -> Unit:
        shared = {"file": files[stored.file], "detail": plan.details[stored.detail]}
        return Unit(**{**msgspec.structs.asdict(stored), **shared})

    return [
        ReadTask(number, first, tuple(map(restored, of)), share)
        for number, first, of, share in plan.tasks
    ]


def count_tasks(directory: str) -> int | None:
    """Return the number of tasks in the plan; None if there is no plan yet."""
    plan = load(os.path.join(directory, TASKS), _StoredTasks[Any, Any])
    return None if plan is None else len(plan.tasks)


def count_done(directory: str) -> int:
    """Return the number of tasks that have a checkpoint."""
    return sum(name.startswith(TASK_PREFIX) for name in list_names(directory))


def forget_done(directory: str) -> None:
    """Remove the checkpoints of all tasks."""
    for name in list_names(directory):
        if name.startswith(TASK_PREFIX):
            remove(os.path.join(directory, name))


def task_key(task: ReadTask, schema: pa.Schema) -> str:
    """Return a hash of everything that decides the result of a task within its job."""
    units = [
        (unit.name, unit.file.name, unit.file.bytes, unit.file.stamp, unit.start, unit.stop)
        for unit in task.units
    ]
    digest = hashlib.sha256(repr((task.number, task.first_unit, units, task.share)).encode())
    digest.update(schema.serialize())
    return digest.hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class Stored:
    """A wrapper of a generator function, for one element, that stores its tasks or its schema."""

    function: Callable[[Any], Iterable[Any]]
    directory: str | None
    name: str

    def __call__(self, element: Any) -> Iterator[Any]:
        """Yield the outputs of the function, after all of them are stored."""
        outputs = list(self.function(element))
        if self.directory is not None and self.name == TASKS:
            save_tasks(self.directory, outputs)
        elif self.directory is not None:
            save(os.path.join(self.directory, self.name), outputs)
        yield from outputs


def save_remarks(directory: str, remarks: Sequence[str]) -> None:
    """Store lines for the user about the types of the rows, for the step that publishes."""
    save(os.path.join(directory, REMARKS), list(remarks))


def load_remarks(directory: str) -> list[str]:
    """Return the stored lines for the user; empty if none are stored."""
    return load(os.path.join(directory, REMARKS), list[str]) or []


def load_schema(directory: str | None, name: str) -> pa.Schema | None:
    """Return the schema that is stored under a name; None if there is none."""
    if directory is None:
        return None
    found = load(os.path.join(directory, name), list[pa.Schema])
    return found[0] if found else None
