"""Infers the types of JSON values from all rows, and converts columns to the types of a schema.

For each place in the rows, such as a column or a field of an object, an inference has the kinds of
its values, such as text or double, and the first row of each kind. The join over all units is a
union of sets, so the schema does not depend on their order and limits.
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.arrow_types import (
    is_extension,
    is_list,
    is_numpy_tensor,
    is_temporal,
    type_name,
)
from beam_tfrecord.native import _json
from beam_tfrecord.native._json import Places
from beam_tfrecord.sources.base import InputFile, chosen_columns
from beam_tfrecord.sources.hive import add_partition_fields, partition_fields
from beam_tfrecord.sources.json.parse import keys_of, members
from beam_tfrecord.sources.json.text import Lines
from beam_tfrecord.tables import not_found

BOOL, INT, BIG, DOUBLE, TEXT, LIST, OBJECT = (
    "bool",
    "int",
    "big",
    "double",
    "text",
    "list",
    "object",
)
_KINDS = {bool: BOOL, int: INT, float: DOUBLE, str: TEXT, list: LIST, dict: OBJECT}
_BITS = {
    BOOL: _json.BOOL,
    INT: _json.INT,
    BIG: _json.BIG,
    DOUBLE: _json.DOUBLE,
    TEXT: _json.TEXT,
    LIST: _json.LIST,
    OBJECT: _json.OBJECT,
}
_SCALARS = {BOOL: pa.bool_(), TEXT: pa.string()}
_SHOWN = {
    BOOL: "a boolean",
    INT: "an integer",
    BIG: "an integer beyond 2^53",
    DOUBLE: "a fraction",
    TEXT: "text",
    LIST: "an array",
    OBJECT: "an object",
}
# A double represents all smaller integers exactly.
_EXACT = 2**53

# Names of keys from the column on; None stands for the values of an array.
Path = tuple[str | None, ...]
Kinds = dict[str, int]  # kind -> number of the first row


@dataclasses.dataclass(frozen=True)
class JsonInference:
    """The kinds of values in one unit."""

    file: InputFile
    index: int
    address: str
    kinds: Mapping[Path, Kinds]
    fault: str = ""


class Finder:
    """Collects the kinds of values, for a `JsonInference`.

    Python reads a row only if the kernel says that it may add a kind or is wrong. So the kinds are
    those that Python's parser finds in all rows.
    """

    def __init__(self, address: str) -> None:
        self.kinds: dict[Path, Kinds] = {}
        self.fault = ""
        self._address = address
        self._places = Places()

    def add(self, lines: Lines) -> None:
        """Add the kinds of all values in some lines; lines that are not right have keys alone."""
        row = self._places.next_new(lines.data, lines.starts, 0)
        while row < len(lines):
            self._add_line(lines.line(row), int(lines.numbers[row]))
            row = self._places.next_new(lines.data, lines.starts, row + 1)

    def _add_line(self, line: bytes, number: int) -> None:
        try:
            found = members(line)
        except ValueError as error:
            self.fault = self.fault or f"{self._address}{number} {error}"
            # PyArrow does not check keys without a column, so each key of the line needs one.
            for path in keys_of(line):
                self._add_kinds(path, (), number)
            return
        for member in found:
            self._add_value((member.name,), member.value, number)

    def _add_value(self, path: Path, value: Any, number: int) -> None:
        self._add_kinds(path, _kinds_of(value), number)
        if isinstance(value, dict):
            for name, inner in value.items():
                self._add_value((*path, name), inner, number)
        elif isinstance(value, list):
            for inner in value or [None]:
                self._add_value((*path, None), inner, number)

    def _add_kinds(self, path: Path, kinds: Sequence[str], number: int) -> None:
        # Columns are in the order in which they appear, those of nulls too.
        known = self.kinds.setdefault(path, {})
        for kind in kinds:
            known.setdefault(kind, number)
        self._places.add(path, sum(map(_BITS.__getitem__, kinds)))


def _kinds_of(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    kind = _KINDS[type(value)]
    return (INT, BIG) if kind == INT and abs(value) > _EXACT else (kind,)


def infer_schema(
    inferences: Iterable[JsonInference],
    *,
    types: Mapping[str, pa.DataType],
    columns: Sequence[str] | None,
) -> pa.Schema:
    """Return the schema of all files; the columns from their paths come last."""
    ordered = sorted(inferences, key=lambda one: (one.file.name, one.index))
    paths = [one.file for one in ordered]
    places: dict[Path, dict[str, str]] = {}
    for one in ordered:
        for path, kinds in one.kinds.items():
            place = places.setdefault(path, {})
            for kind, number in kinds.items():
                place.setdefault(kind, f"{one.address}{number}")
    names = [path[0] for path in places if len(path) == 1 and path[0] is not None]
    faults = [one.fault for one in ordered if one.fault]
    if faults and not names:
        raise DataError(f"the input has no column, and {faults[0]}: correct it")
    partitions = [field.name for field in partition_fields(paths)]
    if unknown := [name for name in types if name not in names and name not in partitions]:
        raise UsageError(not_found(unknown[0], [*names, *partitions], of="--types"))
    inner: dict[Path, list[Path]] = {}
    for path in places:
        inner.setdefault(path[:-1], []).append(path)
    wanted = [name for name in names if columns is None or name in columns]
    inside = pa.schema(
        [(name, types.get(name) or _type_of((name,), places, inner)) for name in wanted]
    )
    schema = add_partition_fields(inside, paths, columns=columns)
    fields = {field.name: field.with_type(types.get(field.name, field.type)) for field in schema}
    return chosen_columns(fields, columns, [*names, *partitions])


def _type_of(
    path: Path, places: Mapping[Path, Mapping[str, str]], inner: Mapping[Path, Sequence[Path]]
) -> pa.DataType:
    kinds = places[path]
    if not kinds:
        return pa.null()
    if kinds.keys() <= {INT, BIG}:
        return pa.int64()
    # A column with integers beyond 2^53 and fractions has no type that is exact for both.
    if kinds.keys() <= {INT, DOUBLE}:
        return pa.float64()
    if len(kinds) > 1:
        raise _conflict(path, kinds)
    (kind,) = kinds
    if kind == LIST:
        return pa.list_(_type_of((*path, None), places, inner))
    if kind == OBJECT:
        below = inner.get(path, ())
        return pa.struct([(of[-1], _type_of(of, places, inner)) for of in below])
    return _SCALARS[kind]


def _conflict(path: Path, kinds: Mapping[str, str]) -> SchemaConflict:
    names = [kind for kind in kinds if kind != INT or BIG not in kinds]
    # Integers and fractions go together, so they are not a pair that conflicts.
    one, other = next(
        pair for pair in itertools.combinations(names, 2) if set(pair) != {INT, DOUBLE}
    )
    column = str(path[0])
    place = "".join("[]" if key is None else f".{key}" for key in path)[1:]
    advice = shlex.quote(f"{column}=string")
    return SchemaConflict(
        f"column {place!r} is {_SHOWN[other]} in {kinds[other]} but {_SHOWN[one]} in {kinds[one]}: "
        f"correct one of them, or pass --types {advice} to read the text of each value"
    )


def not_readable(name: str, arrow: pa.DataType) -> UsageError:
    """Return the error for a column whose type JSON cannot be read as."""
    return UsageError(
        f"column {name!r} cannot be read from json as {type_name(arrow)}: read it as another type "
        "with --types, and convert it with --map"
    )


def parsed_type(name: str, arrow: pa.DataType) -> pa.DataType:
    """Return the type as which a column is parsed, before it is converted to its own type."""
    types = pa.types
    is_view = types.is_list_view(arrow) or types.is_large_list_view(arrow)
    if is_numpy_tensor(arrow) or types.is_map(arrow) or types.is_union(arrow) or is_view:
        raise not_readable(name, arrow)
    if is_extension(arrow):
        return parsed_type(name, arrow.storage_type)
    if types.is_dictionary(arrow) or types.is_run_end_encoded(arrow):
        return parsed_type(name, arrow.value_type)
    if is_list(arrow):
        # The parser loses nulls in lists of nulls alone.
        item = parsed_type(name, arrow.value_type)
        return pa.list_(pa.bool_() if types.is_null(item) else item)
    if types.is_struct(arrow):
        return pa.struct([(field.name, parsed_type(name, field.type)) for field in arrow])
    if types.is_floating(arrow):
        # The exact numbers show what rounding loses, and that a number is too large.
        return pa.float64()
    if types.is_decimal(arrow):
        return pa.decimal256(arrow.precision, arrow.scale)
    if is_temporal(arrow) or types.is_fixed_size_binary(arrow):
        return pa.string()
    return arrow
