"""Values that a job stores for its next attempt: JSON and raw bytes, sealed with a hash.

A file of them may lie in a directory that others write to as well, so nothing in it names code::

    head   magic, le64 XXH64 of all that follows, le64 bytes of the JSON
    JSON   one column of one value
    bytes  what the JSON refers to by position and lengths

A *column* stands for some values. It is a list of numbers, texts and nulls, or an object of one
item, by the kind of all values: ``(`` tuples, ``[`` lists, ``<`` sets and ``{`` dicts have their
lengths and a column of all that they hold; ``b`` bytes; ``n`` arrays, ``d`` dtypes, ``s`` Arrow
schemas and ``t`` Arrow types as columns of what they are made of; ``|`` values of several kinds.
The name of a class has the position of each value among the distinct objects, and a column for
each field of them: so a million units cost little more than a few long lists. Only classes that
jobs really store can be there, and every field must have its type.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import operator
import struct
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.features.tensors import dtype_of, is_foreign
from beam_tfrecord.storage import WholeFile, read_bytes
from beam_tfrecord.type_checks import has_type

_HEAD = struct.Struct("<8sQQ")
# Files of another format are not read: a job's attempt begins anew if it finds them.
FORMAT = 2
_MAGIC = b"BTFKEPT" + bytes([FORMAT])
_SEALED_FROM = 16

# By module, so that none is imported before it is needed.
_MODULES = {
    "batch": ("Reject",),
    "features.feature": ("ColumnStats", "Feature"),
    "features.schema": ("Schema",),
    "duplicate_count": ("DuplicateCount",),
    "exchange.checkpoints": ("Done",),
    "exchange.shard_writers": ("Piece",),
    "exchange.spill_files": ("BinCounts", "Run"),
    "exchange.write_summary": ("Discovered", "Tally"),
    "images": ("Refused",),
    "sources.base": ("Group", "InputFile", "Unit"),
    "sources.csv.read": ("CsvUnit",),
    "sources.images.listing": ("Pack",),
    "sources.numpy.source": ("_Contents",),
    "sources.parquet.source": ("ParquetUnit",),
    "sources.numpy.columns": ("Column",),
    "sources.numpy.files": ("StoredArray",),
}
_MODULE_OF = {
    name: f"beam_tfrecord.{module}" for module, names in _MODULES.items() for name in names
}
_SCALARS = frozenset((str, int, float, bool, type(None)))
_CONTAINERS = {"(": tuple, "[": list, "<": frozenset}
_CONTAINER_NAMES = {kind: name for name, kind in _CONTAINERS.items()}
_HOLDERS = frozenset((*_CONTAINER_NAMES, dict, np.ndarray))
_ARRAY_KINDS = "biuf"


def save(path: str, value: Any) -> None:
    """Store a value in a file, which need not outlast a crash of the machine.

    Raises:
        TypeError: There is no form for a value in it.
    """
    writer = _Writer()
    text = json.dumps(writer.column([value]), separators=(",", ":")).encode()
    payload = b"".join((len(text).to_bytes(8, "little"), text, *writer.parts))
    with WholeFile(path, outlasts=False) as file:
        file.write(_MAGIC + native.xxh64(payload, 0).to_bytes(8, "little"))
        file.write(payload)


def load(path: str) -> Any:
    """Return what `save` stored; None if there is no file, or a damaged one."""
    # Whatever goes wrong, the work is done again: the file only saves time.
    with contextlib.suppress(Exception):
        data = memoryview(read_bytes(path))
        magic, seal, text_bytes = _HEAD.unpack_from(data)
        if magic == _MAGIC and native.xxh64(data[_SEALED_FROM:], 0) == seal:
            end = _HEAD.size + text_bytes
            (value,) = _Reader(data[end:]).values(json.loads(bytes(data[_HEAD.size : end])))
            return value
    return None


@functools.cache
def _class_of(name: str) -> tuple[type, dict[str, Any]]:
    """Return a class by its name, and the types of its fields, in order.

    Raises:
        KeyError: No objects of that class are stored.
    """
    found = getattr(importlib.import_module(_MODULE_OF[name]), name)
    names = getattr(found, "_fields", None) or tuple(f.name for f in dataclasses.fields(found))
    hints = typing.get_type_hints(found)
    return found, {name: hints[name] for name in names}


class _Writer:
    """Turns values into what JSON can hold, and bytes that stand beside it."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._at = 0

    def column(self, values: Sequence[Any]) -> Any:
        """Return what stands for values."""
        types = set(map(type, values))
        if types <= _SCALARS:
            return list(values)
        if len(types) == 1:
            return self._of_one_type(types.pop(), values)
        by_type: dict[type, list[Any]] = {}
        for value in values:
            by_type.setdefault(type(value), []).append(value)
        numbers = {kind: number for number, kind in enumerate(by_type)}
        columns = [self.column(alike) for alike in by_type.values()]
        return {"|": [[numbers[type(value)] for value in values], columns]}

    def _of_one_type(self, kind: type, values: Sequence[Any]) -> dict[str, Any]:
        if _MODULE_OF.get(kind.__name__) == kind.__module__:
            return {kind.__name__: self._objects(kind, values)}
        if kind in _CONTAINER_NAMES:
            inside = [one for value in values for one in value]
            return {_CONTAINER_NAMES[kind]: [list(map(len, values)), self.column(inside)]}
        if issubclass(kind, Mapping):
            keys = [key for value in values for key in value]
            items = [item for value in values for item in value.values()]
            return {"{": [list(map(len, values)), self.column(keys), self.column(items)]}
        if kind is bytes:
            start = self._at
            self.parts += values
            self._at += sum(map(len, values))
            return {"b": [start, list(map(len, values))]}
        if issubclass(kind, np.generic):
            of_items: dict[str, Any] = self.column([value.item() for value in values])
            return of_items
        if kind is np.ndarray:
            dtypes = [self._array_dtype(value) for value in values]
            return {"n": [dtypes, self.column([value.tobytes() for value in values])]}
        if issubclass(kind, np.dtype):
            return {"d": self.column(list(map(_dtype_form, values)))}
        if kind is pa.Schema:
            return {"s": self.column(list(map(_schema_form, values)))}
        if issubclass(kind, pa.DataType):
            schemas = [pa.schema([pa.field("", value)]) for value in values]
            return {"t": self.column(list(map(_schema_form, schemas)))}
        raise TypeError(f"a {kind.__qualname__} cannot be stored for a job's next attempt")

    def _objects(self, kind: type, values: Sequence[Any]) -> list[Any]:
        # Units share their file, and all of one file what its scan has found.
        distinct = {id(value): value for value in values}
        places = {number: place for place, number in enumerate(distinct)}
        of_fields = (
            map(operator.attrgetter(name), distinct.values())
            for name in _class_of(kind.__name__)[1]
        )
        columns = [self.column(list(of_field)) for of_field in of_fields]
        return [[places[id(value)] for value in values], columns]

    @staticmethod
    def _array_dtype(value: npt.NDArray[Any]) -> str:
        if value.dtype.kind not in _ARRAY_KINDS or value.ndim != 1:
            raise TypeError(f"an array of {value.dtype} and shape {value.shape} cannot be stored")
        return value.dtype.str


class _Reader:
    """Turns back what a `_Writer` made; anything else is an error, of whatever class."""

    def __init__(self, parts: memoryview) -> None:
        self._parts = parts

    def values(self, column: Any) -> list[Any]:
        """Return the values that a column stands for."""
        if type(column) is list:
            if not _SCALARS.issuperset(map(type, column)):
                raise ValueError("a list that is no column")
            return column
        ((name, form),) = column.items()
        if name in _CONTAINERS:
            lengths, inside = form
            return list(map(_CONTAINERS[name], _cut(self.values(inside), lengths)))
        if name == "{":
            lengths, keys, items = form
            pairs = zip(self.values(keys), self.values(items), strict=True)
            return list(map(dict, _cut(pairs, lengths)))
        if name == "b":
            start, lengths = form
            ends = list(itertools.accumulate(lengths, initial=start))
            if min(lengths, default=0) < 0 or not 0 <= start <= ends[-1] <= len(self._parts):
                raise ValueError("bytes that are not there")
            return [bytes(self._parts[low:high]) for low, high in itertools.pairwise(ends)]
        if name == "n":
            dtypes, data = form
            return list(map(_array, dtypes, self.values(data)))
        if name == "d":
            return list(map(_dtype_of, self.values(form)))
        if name in ("s", "t"):
            schemas = [pa.ipc.read_schema(pa.py_buffer(data)) for data in self.values(form)]
            return schemas if name == "s" else [schema.field(0).type for schema in schemas]
        if name == "|":
            numbers, columns = form
            alike = [iter(self.values(one)) for one in columns]
            return [next(alike[number]) for number in numbers]
        places, columns = form
        distinct = _objects(name, [self.values(one) for one in columns])
        return [distinct[place] for place in places]


def _objects(name: str, columns: list[list[Any]]) -> list[Any]:
    """Return objects of a class from the values of each field.

    Raises:
        ValueError: A value is not of the type of its field.
    """
    kind, hints = _class_of(name)
    for (field, hint), values in zip(hints.items(), columns, strict=True):
        # Of objects, and of all that holds nothing, it is enough to know the class.
        of_type = {type(value): value for value in values}
        looked_at = of_type.values() if _HOLDERS.isdisjoint(of_type) else values
        if not all(has_type(value, hint) for value in looked_at):
            raise ValueError(f"{field} of {name} has a value of another type")
    rows = zip(*columns, strict=True)
    if issubclass(kind, tuple):
        return [tuple.__new__(kind, row) for row in rows]
    made = []
    for row in rows:
        new = object.__new__(kind)
        new.__dict__.update(zip(hints, row, strict=True))
        made.append(new)
    return made


def _cut(values: Iterable[Any], lengths: list[int]) -> Iterator[Iterator[Any]]:
    """Yield so many values at a time; all of them, in the end."""
    rest = iter(values)
    for length in lengths:
        yield itertools.islice(rest, length)
    if next(rest, None) is not None:
        raise ValueError("more values than the lengths say")


def _array(dtype: str, data: bytes) -> npt.NDArray[Any]:
    kind = np.dtype(dtype)
    if kind.kind not in _ARRAY_KINDS:
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(data, kind)


def _schema_form(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data


def _dtype_form(dtype: np.dtype[Any]) -> Any:
    """Return what `_dtype_of` makes a dtype of: that of a file's header, or a name of ml_dtypes."""
    if is_foreign(dtype):
        return dtype.name
    return np.lib.format.dtype_to_descr(dtype)


def _dtype_of(form: Any) -> np.dtype[Any]:
    found = dtype_of(form) if isinstance(form, str) else np.lib.format.descr_to_dtype(form)
    if found.hasobject:
        raise ValueError("a dtype of Python objects")
    return found
