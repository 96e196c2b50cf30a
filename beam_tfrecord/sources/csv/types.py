"""Infers the types of CSV columns from all rows, and converts text to these types.

For each unit (byte range) and column, the native kernel finds the kinds of values, such as integer
or date, and the line of the first value of each kind. The join over all units is a union of sets,
so the schema does not depend on their order and limits. The kernel reads a column as a *target*, a
type it knows, and returns buffers that become an Arrow array.
"""

from __future__ import annotations

import dataclasses
import decimal
import functools
import itertools
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import SchemaConflict, UsageError, quoted
from beam_tfrecord.features.arrow_types import type_name
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.native import values as kinds
from beam_tfrecord.native.values import (
    BIG_INT,
    BOOL,
    DATE,
    EMPTY,
    FLOAT,
    INT,
    TEXT,
    TIME,
    WORD,
    ZONED_TIME,
    Target,
)
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import InputFile, chosen_columns, not_in_all_files
from beam_tfrecord.sources.hive import add_partition_fields, partition_fields
from beam_tfrecord.tables import not_found

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9})0*)?)?", re.ASCII)
_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", re.ASCII)


def keeps_text(field: pa.Field) -> bool:
    """Return whether a column of floats is stored as text, so that its text must also be read."""
    is_float = pa.types.is_float32(field.type) or pa.types.is_float64(field.type)
    return is_float and Feature.from_arrow(field).store == "text"


# Kind and width of the targets of types that have no parameters.
_TARGETS: dict[pa.DataType, tuple[int, int]] = {
    pa.null(): (kinds.AS_NULL, 0),
    pa.bool_(): (kinds.AS_BOOL, 1),
    pa.float32(): (kinds.AS_FLOAT, 4),
    pa.float64(): (kinds.AS_DOUBLE, 8),
    **dict.fromkeys((pa.date32(), pa.date64()), (kinds.AS_DATE, 4)),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), (kinds.AS_TEXT, 0)),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (kinds.AS_BYTES, 0)),
}


def target_of(field: pa.Field, column: int) -> Target:
    """Return the target with which the kernel reads column number `column` as a field."""
    types, arrow = pa.types, _value_type(field.type)
    if arrow in _TARGETS:
        return Target(column, *_TARGETS[arrow])
    if types.is_integer(arrow):
        bits, signed = arrow.bit_width, types.is_signed_integer(arrow)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return Target(column, kinds.AS_INT, bits // 8, low, high)
    if types.is_timestamp(arrow):
        zoned = arrow.tz is not None
        return Target(column, kinds.AS_TIME, 8, ticks=_TICKS[arrow.unit], zoned=zoned)
    if converter_of(arrow):
        return Target(column, kinds.AS_WORDS)
    raise UsageError(
        f"column {field.name!r} cannot be read from csv as {type_name(arrow)}: "
        "read it as text with --types, and convert it with --map"
    )


def _value_type(arrow: pa.DataType) -> pa.DataType:
    return arrow.value_type if pa.types.is_dictionary(arrow) else arrow


def array_of(
    target: Target,
    arrow: pa.DataType,
    buffers: tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], Any, Any],
) -> pa.Array:
    """Return the Arrow array of the buffers that the kernel has filled for one column.

    The buffers are values, one byte of validity for each row, offsets, and exact numbers. Values
    are copied only if the type requires it. Text that `converter_of` has to convert remains text.
    """
    values, valid, offsets, _ = buffers
    rows, kind, value_type = len(valid), target.kind, _value_type(arrow)
    if kind == kinds.AS_NULL:
        return pa.nulls(rows, arrow)
    absent = rows - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if absent else None
    if kind == kinds.AS_BOOL:
        values = np.packbits(values, bitorder="little")
    parts = [bits, pa.py_buffer(values)]
    plain = value_type
    if offsets is not None:
        parts.insert(1, pa.py_buffer(offsets))
        plain = pa.binary() if kind == kinds.AS_BYTES else pa.string()
    elif kind == kinds.AS_DATE:
        plain = pa.date32()
    array = pa.Array.from_buffers(plain, rows, parts, absent)
    if kind == kinds.AS_WORDS or array.type == arrow:
        return array
    array = array.cast(value_type)
    return array if value_type == arrow else array.dictionary_encode().cast(arrow)


Converter = Callable[[str], Any]


def converter_of(arrow: pa.DataType) -> Converter | None:
    """Return a function that converts text to a type that the kernel does not support, or None.

    The function raises `ValueError` if the text is not exactly a value of the type.
    """
    types = pa.types
    if types.is_decimal(arrow):
        return lambda text: _exact_decimal(text, arrow)
    if types.is_time(arrow):
        return lambda text: _exact_clock(text, arrow)
    if types.is_fixed_size_binary(arrow):
        return lambda text: pa.scalar(text.encode(), arrow)
    return None


def _exact_decimal(text: str, arrow: pa.DataType) -> pa.Scalar:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    number = decimal.Decimal(text)
    made = pa.scalar(number, arrow)
    # Arrow converts a number with 39 digits more than the type to 0 without an error.
    if made.as_py() != number:
        raise ValueError(f"{text!r} is finer than {arrow}")
    return made


def _exact_clock(text: str, arrow: pa.DataType) -> pa.Scalar:
    match = _CLOCK.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a time of day")
    hour, minute, second = (int(part or 0) for part in match.groups()[:3])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} is not a time of day")
    nanos = int((match.group(4) or "").ljust(9, "0"))
    ticks, rest = divmod(nanos * _TICKS[arrow.unit], 10**9)
    if rest:
        raise ValueError(f"{text!r} is finer than {arrow}")
    total = ((hour * 60 + minute) * 60 + second) * _TICKS[arrow.unit] + ticks
    integer = pa.int32() if arrow.bit_width == 32 else pa.int64()
    return pa.scalar(total, integer).cast(arrow)


# Any other mixture is text.
_TYPES: dict[int, pa.DataType] = {
    0: pa.null(),
    BOOL: pa.bool_(),
    INT: pa.int64(),
    BIG_INT: pa.int64(),
    INT | BIG_INT: pa.int64(),
    FLOAT: pa.float64(),
    # A double represents integers of the kind INT exactly, but not all BIG_INT.
    INT | FLOAT: pa.float64(),
    DATE: pa.date32(),
    TIME: pa.timestamp("us"),
    DATE | TIME: pa.timestamp("us"),
    ZONED_TIME: pa.timestamp("us", "UTC"),
}
# Kinds that say nothing about the type, if a column has others.
_NO_VALUE = EMPTY | WORD
_WORDS = {pa.string(): "text", pa.float64(): "float", pa.int64(): "int", pa.date32(): "date"}


class Found(NamedTuple):
    """The first value of a kind in a column, with its line number; the text may be shortened."""

    kind: int
    line: int
    text: str


@dataclasses.dataclass(frozen=True)
class CsvInference:
    """The kinds of values in one unit."""

    file: InputFile
    names: tuple[str, ...]
    kinds: tuple[tuple[Found, ...], ...]


def type_of(kinds: Iterable[int]) -> pa.DataType:
    """Return the type of a column whose values are of these kinds."""
    joined = functools.reduce(operator.or_, kinds, 0)
    # A quoted empty field is null in a column of any type but text, so it does not decide the type.
    joined = EMPTY if joined & ~WORD == EMPTY else joined & ~_NO_VALUE
    return _TYPES.get(joined, pa.string())


@dataclasses.dataclass
class _File:
    file: InputFile
    names: tuple[str, ...]
    kinds: dict[str, dict[int, Found]]  # column -> kind -> first value

    def add(self, found: CsvInference) -> None:
        for name, values in zip(found.names, found.kinds, strict=True):
            first = self.kinds.setdefault(name, {})
            for value in values:
                first[value.kind] = min(value, first.get(value.kind, value))


def join_files(inferences: Iterable[CsvInference]) -> list[_File]:
    """Join the inferences of units into one for each file, in order of the files' names."""
    files: dict[str, _File] = {}
    for found in inferences:
        file = files.setdefault(found.file.name, _File(found.file, found.names, {}))
        file.add(found)
    return [files[name] for name in sorted(files)]


def infer_schema(
    inferences: Iterable[CsvInference],
    *,
    types: Mapping[str, pa.DataType],
    columns: Sequence[str] | None,
    union: bool,
    has_header: bool,
) -> pa.Schema:
    """Return the schema of all files; the columns from their paths come last."""
    files = join_files(inferences)
    paths = [found.file for found in files]
    names = list(dict.fromkeys(name for file in files for name in file.names))
    partitions = [field.name for field in partition_fields(paths, union=union)]
    if unknown := [name for name in types if name not in names and name not in partitions]:
        raise UsageError(not_found(unknown[0], [*names, *partitions], of="--types"))
    wanted = [name for name in names if columns is None or name in columns]
    if not union:
        _check_same_columns(files, wanted, has_header)
    inside = pa.schema([(name, types.get(name) or _merged(name, files)) for name in wanted])
    schema = add_partition_fields(inside, paths, columns=columns, union=union)
    fields = {field.name: field.with_type(types.get(field.name, field.type)) for field in schema}
    return chosen_columns(fields, columns, names)


def _check_same_columns(files: Sequence[_File], wanted: Sequence[str], has_header: bool) -> None:
    for file in files:
        first = files[0]
        if not has_header and len(file.names) != len(first.names):
            raise SchemaConflict(
                f"{file.file.name} has {counted(len(file.names), 'column')} but "
                f"{first.file.name} has {len(first.names)}: files without header need the same "
                "number, or pass --union"
            )
        for name in wanted:
            if name not in file.names:
                other = next(other for other in files if name in other.names)
                raise not_in_all_files(name, other.file, file.file)


def _type_in(name: str, files: Iterable[_File]) -> pa.DataType:
    """Return the type of a column that can represent its values in all `files`."""
    return type_of(kind for file in files for kind in file.kinds.get(name, ()))


def _disagree(name: str, one: _File, other: _File) -> bool:
    """Return whether two files have different types of a column that only text has in common."""
    if _type_in(name, [one, other]) != pa.string():
        return False
    return bool(_type_in(name, [one]) != _type_in(name, [other]))


def _merged(name: str, files: Sequence[_File]) -> pa.DataType:
    """Return the type of a column over all files.

    A column with a mixture of kinds in one file is text. But if a column is not text in one file
    and would become text only because of another file, that is probably a mistake and an error.
    """
    every = _type_in(name, files)
    having = [file for file in files if _values_in(file, name)]
    if every != pa.string() or all(_type_in(name, [file]) == every for file in having):
        return every
    # The first two files that disagree, or the first and last file if only more than two do.
    pairs = itertools.combinations(having, 2)
    before, file = next((pair for pair in pairs if _disagree(name, *pair)), (having[0], having[-1]))
    values = _values_in(file, name)
    cure = f"pass --schema, or {_as_text(name)}"
    if first := _deciding(values):
        cure = _cure(name, values[first], "pass --schema")
    raise SchemaConflict(
        f"column {name!r} is {_type_and_line(file, name)} but {_type_and_line(before, name)}: "
        f"{cure}"
    )


def _values_in(file: _File, name: str) -> list[Found]:
    """Return the first value of each kind in a column, in order, without words for null."""
    found = file.kinds.get(name, {}).values()
    return sorted((one for one in found if one.kind & ~_NO_VALUE), key=lambda one: one.line)


def _type_and_line(file: _File, name: str) -> str:
    """Return the type of a column and the line that decides it, such as ``text in a.csv:7``."""
    values = _values_in(file, name)
    arrow = type_of(one.kind for one in values)
    line = values[_deciding(values)].line
    return f"{_WORDS.get(arrow, str(arrow))} in {file.file.name}:{line}"


_REMARKS = 5
# Length of the longest text that counts as a word for a missing value.
_WORD_CHARACTERS = 16


def remarks_of(inferences: Iterable[CsvInference], schema: pa.Schema) -> list[str]:
    """Return a message for each column that is text because of a few values or has null words."""
    files = join_files(inferences)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    lines = [line for name in texts if (line := _remark(name, files))]
    if (more := len(lines) - _REMARKS) > 1:
        return [*lines[:_REMARKS], f"{more} more columns of text hold such values"]
    return lines


def _remark(name: str, files: Sequence[_File]) -> str:
    """Return the message about a column, or an empty text if it is ordinary text."""
    values = [(file, one) for file in files for one in _values_in(file, name)]
    if first := _deciding([one for _, one in values]):
        file, one = values[first]
        where = f"{file.file.name}:{one.line}"
        return f"{name}: text because of {one.text!r} in {where}: {_cure(name, one, 'correct it')}"
    for file in files:
        if word := file.kinds.get(name, {}).get(WORD):
            return (
                f"{name}: {word.text!r} in {file.file.name}:{word.line} is text: if it means "
                f"missing, pass --null {quoted(word.text)}"
            )
    return ""


def _deciding(values: Sequence[Found]) -> int:
    """Return the position of the first value from which on a column has its type."""
    types = [type_of(one.kind for one in values[: count + 1]) for count in range(len(values))]
    return types.index(types[-1]) if types else 0


def _cure(name: str, found: Found, other: str) -> str:
    """Return the advice about a value that makes a column text; `other` if it is not missing."""
    is_plain = not any(character.isdigit() or character in "\0\\" for character in found.text)
    if found.kind == TEXT and is_plain and len(found.text) <= _WORD_CHARACTERS:
        other = f"pass --null {quoted(found.text)} if it means missing"
    return f"{other}, or {'' if 'pass' in other else 'pass '}{_as_text(name)}"


def _as_text(name: str) -> str:
    return f"--types {shlex.quote(f'{name}=string')}"
