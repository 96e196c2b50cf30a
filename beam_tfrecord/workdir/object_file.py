"""Saves Python values in a file for the next attempt of a job, and loads them, as JSON and bytes.

Others may write to the directory of such a file, so its content cannot name code to run, as a
pickle could. The file has three parts::

    head   magic, le64 XXH64 of all that follows, le64 bytes of the JSON
    JSON   one column of one value
    bytes  the bytes to which the JSON refers by position and lengths

A *column* is the JSON form of several values. If all are numbers, texts and nulls, it is a list of
them. Otherwise it is an object with one item, whose name says the kind of all values::

    ( [ <    tuples, lists, frozen sets: their lengths, and a column of all that they hold
    {        dicts: their lengths, a column of all keys, and a column of all items
    b        bytes: the position of the first among the bytes of the file, and their lengths
    n        arrays: their dtypes, and a column of their bytes
    d s t    dtypes, Arrow schemas, Arrow types: a column of their descriptions
    |        several kinds: the number of the kind of each value, and a column for each kind
    a class  objects: the position of each value among the distinct objects, and for each field a
             column with its values in the distinct objects

So a million units of the input cost little more than a few long lists. Only the classes of
`_MODULES` can be in a file, and every field must have its type.
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
# Files of another format are not read: an attempt that finds one begins from the start.
FORMAT = 2
_MAGIC = b"BTFKEPT" + bytes([FORMAT])
_SEALED_FROM = 16

# The classes that jobs store, by module, so that no module is imported before it is needed.
_MODULES = {
    "batch": ("Reject",),
    "features.feature": ("ColumnStats", "Feature"),
    "features.schema": ("Schema",),
    "duplicate_count": ("DuplicateCount",),
    "exchange.checkpoints": ("Done",),
    "exchange.shard_writers": ("Piece",),
    "exchange.spill_files": ("BinCounts", "Run"),
    "exchange.tally": ("Tally",),
    "images": ("Refused",),
    "records.examples": ("Discovered",),
    "sources.base": ("InputFile", "Unit"),
    "sources.groups": ("Group",),
    "sources.csv.read": ("CsvUnit",),
    "sources.images.listing": ("Pack",),
    "sources.lake.table": ("DataFile",),
    "sources.json.text": ("JsonUnit",),
    "sources.numpy.source": ("_Contents",),
    "sources.typed_files": ("PartRun", "PartUnit"),
    "sources.numpy.columns": ("Column",),
    "sources.numpy.files": ("StoredArray",),
    "sources.tfrecord.listing": ("ShardFile",),
    "sources.tfrecord.read": ("RecordUnit",),
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
    """Store a value in a file, which need not outlast a crash of the machine."""
    writer = _Writer()
    text = json.dumps(writer.column([value]), separators=(",", ":")).encode()
    payload = b"".join((len(text).to_bytes(8, "little"), text, *writer.parts))
    with WholeFile(path, outlasts=False) as file:
        file.write(_MAGIC + native.xxh64(payload, 0).to_bytes(8, "little"))
        file.write(payload)


def load(path: str) -> Any:
    """Return the value that `save` stored; None if there is no file, or a damaged one."""
    # No error matters: without the file, the job only does some work again.
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
    """Return a class by its name, and the types of its fields, in order."""
    found = getattr(importlib.import_module(_MODULE_OF[name]), name)
    names = getattr(found, "_fields", None) or tuple(f.name for f in dataclasses.fields(found))
    hints = typing.get_type_hints(found)
    return found, {name: hints[name] for name in names}


class _Writer:
    """Turns values into a column for the JSON, and collects the bytes beside it in `parts`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._at = 0

    def column(self, values: Sequence[Any]) -> Any:
        """Return the column of some values."""
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
        # Units of one file share objects: the file itself, and the result of its scan.
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
    """Turns columns of a `_Writer` back into values; raises an error of any class for others."""

    def __init__(self, parts: memoryview) -> None:
        self._parts = parts

    def values(self, column: Any) -> list[Any]:
        """Return the values of a column."""
        if type(column) is list:
            if not _SCALARS.issuperset(map(type, column)):
                raise ValueError("a list that is not a column")
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
    """Return objects of a class from the values of each field."""
    kind, hints = _class_of(name)
    for (field, hint), values in zip(hints.items(), columns, strict=True):
        # One value of each class is enough unless there are containers: the fields of an object
        # were checked when the object was made.
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
    """Yield the values in pieces of these lengths; raise ValueError if values are left over."""
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
    """Return the JSON form of a dtype: as in a header of ``.npy``, or its name in ml_dtypes."""
    if is_foreign(dtype):
        return dtype.name
    return np.lib.format.dtype_to_descr(dtype)


def _dtype_of(form: Any) -> np.dtype[Any]:
    found = dtype_of(form) if isinstance(form, str) else np.lib.format.descr_to_dtype(form)
    if found.hasobject:
        raise ValueError("a dtype of Python objects")
    return found
