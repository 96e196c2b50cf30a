"""Infers the types of JSON values from all rows, and tells as what types columns are parsed.

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
    is_list,
    is_temporal,
    type_name,
)
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.json.parse import NotRight, keys_of, members, parse
from beam_tfrecord.sources.json.text import Lines
from beam_tfrecord.sources.merge_schemas import joined_schema

# Kinds of values, as messages name them.
BOOL, INT, BIG = "a boolean", "an integer", "an integer beyond 2^53"
DOUBLE, TEXT, LIST, OBJECT = "a fraction", "text", "an array", "an object"
_KINDS = {bool: BOOL, int: INT, float: DOUBLE, str: TEXT, list: LIST, dict: OBJECT}
# A double represents all smaller integers exactly; larger ones have 16 digits or more.
_EXACT = 2**53
_LONG_INTEGER = re.compile(rb"(?<![0-9.])[0-9]{16}")
# So few lines are read one by one.
_FEW_LINES = 32


@dataclasses.dataclass
class Place:
    """A place in rows, such as a column or a field of an object, with the kinds of its values."""

    kinds: dict[str, str] = dataclasses.field(default_factory=dict)  # kind -> its first row
    # By the key of an object, or None for the values of an array; in the order of appearance.
    inner: dict[str | None, Place] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of places in which rows have values, here and inside."""
        return 1 + sum(place.size for place in self.inner.values() if place.kinds)

    def add(self, value: Any, where: str, *, is_right: bool = True) -> None:
        """Add a value of the row `where`; if the row is malformed only its keys."""
        if is_right:
            for kind in _kinds_of(value):
                self.kinds.setdefault(kind, where)
        items: Iterable[tuple[str | None, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = ((None, item) for item in value or [None])
        for name, item in items:
            self.inner.setdefault(name, Place()).add(item, where, is_right=is_right)

    def join(self, other: Place) -> None:
        """Add what another place has, which comes later."""
        for kind, where in other.kinds.items():
            self.kinds.setdefault(kind, where)
        for name, place in other.inner.items():
            self.inner.setdefault(name, Place()).join(place)

    def type_of(self, name: str, path: str = "") -> pa.DataType:
        """Return the type of the values in the column `name`, of which this is a part."""
        kinds = self.kinds.keys()
        if not kinds:
            return pa.null()
        if kinds <= {INT, BIG}:
            return pa.int64()
        # A column with integers beyond 2^53 and fractions has no type that is exact for both.
        if kinds <= {INT, DOUBLE}:
            return pa.float64()
        if len(kinds) > 1:
            raise self._conflict(name, path)
        if LIST in kinds:
            return pa.list_(self.inner[None].type_of(name, f"{path}[]"))
        if OBJECT in kinds:
            fields = [(key, of.type_of(name, f"{path}.{key}")) for key, of in self._fields]
            return pa.struct(fields)
        return pa.bool_() if BOOL in kinds else pa.string()

    def _conflict(self, name: str, path: str) -> SchemaConflict:
        kinds = [kind for kind in self.kinds if kind != INT or BIG not in self.kinds]
        # Integers and fractions go together, so they are not a pair that conflicts.
        pairs = itertools.combinations(kinds, 2)
        one, other = next(pair for pair in pairs if set(pair) != {INT, DOUBLE})
        return SchemaConflict(
            f"column {name + path!r} is {other} in {self.kinds[other]} but {one} in "
            f"{self.kinds[one]}: correct one of them, or pass "
            f"--types {shlex.quote(f'{name}=string')} to read the text of each value"
        )

    def has_large(self, values: pa.ChunkedArray) -> bool:
        """Return whether a number that no double may represent is where none was before."""
        if self.kinds.keys() & {INT, DOUBLE} and BIG not in self.kinds:
            ends = pc.min_max(values).as_py().values()
            return any(end is not None and abs(end) >= _EXACT for end in ends)
        if LIST in self.kinds:
            return self.inner[None].has_large(pc.list_flatten(values))
        return OBJECT in self.kinds and any(
            place.has_large(pc.struct_field(values, index))
            for index, (_, place) in enumerate(self._fields)
        )

    @property
    def _fields(self) -> list[tuple[str, Place]]:
        # A malformed row may have an array where others have objects.
        return [(name, place) for name, place in self.inner.items() if name is not None]


def _kinds_of(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    kind = _KINDS[type(value)]
    return (INT, BIG) if kind == INT and abs(value) > _EXACT else (kind,)


@dataclasses.dataclass(frozen=True)
class JsonInference:
    """The kinds of values in the rows of one unit."""

    file: InputFile
    index: int
    row: Place
    fault: str = ""


class Finder:
    """Collects the kinds of values, for a `JsonInference`.

    PyArrow parses lines with the types that the known kinds have. Python reads the lines that it
    refuses: these may have other kinds or keys, or be malformed. It also reads lines that lack most
    keys, because PyArrow makes a value of each key in each line.
    """

    def __init__(self, address: str) -> None:
        self.row = Place()
        self.fault = ""
        self._address = address

    def add(self, lines: Lines) -> None:
        """Add the kinds of all values in some lines; of malformed lines only the keys."""
        parts = [lines]
        while parts:
            part = parts.pop()
            is_sparse = self.row.size * len(part) > len(part.text)
            if not is_sparse and self._is_known(part):
                continue
            if not is_sparse and len(part) > _FEW_LINES:
                middle = len(part) // 2
                parts += [part.part(middle, len(part)), part.part(0, middle)]
                continue
            for number, text in part:
                self._add_line(text, f"{self._address}{number}")

    def _is_known(self, lines: Lines) -> bool:
        """Return whether the lines are right, and have no key and no kind that is not known."""
        columns = self.row.inner.items()
        try:
            schema = pa.schema([(name, place.type_of("")) for name, place in columns])
            table = parse(lines, schema, unexpected="error")
        except (SchemaConflict, ValueError):
            return False
        has_large = any(place.has_large(table.column(name)) for name, place in columns)
        return not (has_large and _LONG_INTEGER.search(lines.text))

    def _add_line(self, line: bytes, where: str) -> None:
        try:
            found = {name: value for name, (value, _) in members(line).items()}
        except NotRight as error:
            self.fault = self.fault or f"{where} {error}"
            # PyArrow does not check keys without a column, so each key of the line needs one.
            try:
                self.row.add(keys_of(line), where, is_right=False)
            except RecursionError:
                raise DataError(f"{where} {error}: correct it, or leave it out") from error
        else:
            self.row.add(found, where)


def infer_schema(
    inferences: Iterable[JsonInference],
    *,
    types: Mapping[str, pa.DataType],
    columns: Sequence[str] | None,
) -> pa.Schema:
    """Return the schema of all files; the columns from their paths come last."""
    ordered = sorted(inferences, key=lambda one: (one.file.name, one.index))
    row = Place()
    for one in ordered:
        row.join(one.row)
    if not row.inner and (fault := next((one.fault for one in ordered if one.fault), "")):
        raise DataError(f"the input has no column, and {fault}: correct it")

    def field_of(name: str) -> pa.Field:
        return pa.field(name, types.get(name) or row.inner[name].type_of(name))

    files = [one.file for one in ordered]
    return joined_schema(map(str, row.inner), field_of, files, columns=columns, types=types)


def not_readable(name: str, arrow: pa.DataType) -> UsageError:
    """Return the error for a column whose type JSON cannot be read as."""
    return UsageError(
        f"column {name!r} cannot be read from json as {type_name(arrow)}: read it as another type "
        "with --types, and convert it with --map"
    )


def parsed_type(name: str, arrow: pa.DataType) -> pa.DataType:
    """Return the type as which a column is parsed, before it is converted to its own type."""
    types = pa.types
    # Arrow parses no decimals that are multiples of ten.
    is_coarse = types.is_decimal(arrow) and arrow.scale < 0
    if is_coarse or isinstance(arrow, TensorType) or types.is_map(arrow) or types.is_union(arrow):
        raise not_readable(name, arrow)
    if isinstance(arrow, pa.BaseExtensionType):
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
