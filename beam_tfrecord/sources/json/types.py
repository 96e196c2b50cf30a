"""Infers the types of JSON values from all rows, and converts columns to the types of a schema.

For each place in the rows, such as a column or a field of an object, an inference has the kinds of
its values, such as text or double, and the first row of each kind. The join over all units is a
union of sets, so the schema does not depend on their order and limits.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.arrow_types import (
    is_extension,
    is_list,
    is_numpy_tensor,
    is_temporal,
    type_name,
)
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.json.parse import keys_of, members, parse
from beam_tfrecord.sources.json.text import Lines
from beam_tfrecord.sources.merging import joined_schema

# Kinds of values, as messages name them.
BOOL, INT, BIG = "a boolean", "an integer", "an integer beyond 2^53"
DOUBLE, TEXT, LIST, OBJECT = "a fraction", "text", "an array", "an object"
_KINDS = {bool: BOOL, int: INT, float: DOUBLE, str: TEXT, list: LIST, dict: OBJECT}
# A double represents all smaller integers exactly; larger ones have 16 digits or more.
_EXACT = 2**53
_LONG_INTEGER = re.compile(rb"(?<![0-9.])[0-9]{16}")
# So few lines are read one by one.
_FEW_LINES = 32

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

    PyArrow parses lines with the types that the known kinds have. Python reads only lines that it
    refuses: these may have other kinds or keys, or be malformed.
    """

    def __init__(self, address: str) -> None:
        self.kinds: dict[Path, Kinds] = {}
        self.fault = ""
        self._address = address
        self._schema: pa.Schema | None = pa.schema([])

    def add(self, lines: Lines) -> None:
        """Add the kinds of all values in some lines; of malformed lines only the keys."""
        parts = [lines] if len(lines) else []
        while parts:
            part = parts.pop()
            if self._is_known(part):
                continue
            if len(part) > _FEW_LINES:
                middle = len(part) // 2
                parts += [part.slice(middle, len(part)), part.slice(0, middle)]
                continue
            for row in range(len(part)):
                self._add_line(part.line(row), int(part.numbers[row]))
            self._schema = _schema_of(self.kinds)

    def _is_known(self, lines: Lines) -> bool:
        """Return whether the lines are right, and have no key and no kind that is not known."""
        if self._schema is None:
            return False
        try:
            table = parse(lines, self._schema, unexpected="error")
        except ValueError:
            return False
        return not (self._has_large(table) and _LONG_INTEGER.search(lines.data))

    def _has_large(self, table: pa.Table) -> bool:
        """Return whether a number that no double may represent is where none was before."""
        return any(
            _largest(_values_at(table, path)) >= _EXACT
            for path, kinds in self.kinds.items()
            if {INT, DOUBLE} & kinds.keys() and BIG not in kinds
        )

    def _add_line(self, line: bytes, number: int) -> None:
        try:
            found = {member.name: member.value for member in members(line)}
        except ValueError as error:
            self.fault = self.fault or f"{self._address}{number} {error}"
            # PyArrow does not check keys without a column, so each key of the line needs one.
            self._add_inner((), keys_of(line), number, is_right=False)
        else:
            self._add_inner((), found, number)

    def _add_inner(self, path: Path, value: Any, number: int, *, is_right: bool = True) -> None:
        """Add the values in an object or array."""
        inner: Iterable[tuple[str | None, Any]] = ()
        if isinstance(value, dict):
            inner = value.items()
        elif isinstance(value, list):
            inner = ((None, item) for item in value or [None])
        for name, item in inner:
            # Columns are in the order in which they appear, those of nulls too.
            known = self.kinds.setdefault((*path, name), {})
            for kind in _kinds_of(item) if is_right else ():
                known.setdefault(kind, number)
            self._add_inner((*path, name), item, number, is_right=is_right)


def _values_at(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return the values at a place of all rows."""
    found = table.column(path[0])
    for name in path[1:]:
        found = pc.list_flatten(found) if name is None else pc.struct_field(found, name)
    return found


def _largest(numbers: pa.ChunkedArray) -> float:
    ends = pc.min_max(numbers).as_py().values()
    return max((abs(end) for end in ends if end is not None), default=0)


def _schema_of(kinds: Mapping[Path, Mapping[str, Any]]) -> pa.Schema | None:
    """Return the types of all columns; None if one has values that differ in kind."""
    inner = _inner_places(kinds)
    try:
        return pa.schema([(path[0], _type_of(path, kinds, inner)) for path in inner.get((), ())])
    except SchemaConflict:
        return None


def _inner_places(places: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the places right below each place."""
    inner: dict[Path, list[Path]] = {}
    for path in places:
        inner.setdefault(path[:-1], []).append(path)
    return inner


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
    places: dict[Path, dict[str, str]] = {}
    for one in ordered:
        for path, kinds in one.kinds.items():
            place = places.setdefault(path, {})
            for kind, number in kinds.items():
                place.setdefault(kind, f"{one.address}{number}")
    inner = _inner_places(places)
    names = [str(name) for (name,) in inner.get((), ())]
    if not names and (fault := next((one.fault for one in ordered if one.fault), "")):
        raise DataError(f"the input has no column, and {fault}: correct it")

    def field_of(name: str) -> pa.Field:
        return pa.field(name, types.get(name) or _type_of((name,), places, inner))

    files = [one.file for one in ordered]
    return joined_schema(names, field_of, files, columns=columns, types=types)


def _type_of(
    path: Path, places: Mapping[Path, Mapping[str, Any]], inner: Mapping[Path, Sequence[Path]]
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
    if LIST in kinds:
        return pa.list_(_type_of((*path, None), places, inner))
    if OBJECT in kinds:
        below = inner.get(path, ())
        return pa.struct([(of[-1], _type_of(of, places, inner)) for of in below])
    return pa.bool_() if BOOL in kinds else pa.string()


def _conflict(path: Path, kinds: Mapping[str, Any]) -> SchemaConflict:
    names = [kind for kind in kinds if kind != INT or BIG not in kinds]
    # Integers and fractions go together, so they are not a pair that conflicts.
    one, other = next(
        pair for pair in itertools.combinations(names, 2) if set(pair) != {INT, DOUBLE}
    )
    column = str(path[0])
    place = "".join("[]" if key is None else f".{key}" for key in path)[1:]
    advice = shlex.quote(f"{column}=string")
    return SchemaConflict(
        f"column {place!r} is {other} in {kinds[other]} but {one} in {kinds[one]}: "
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
