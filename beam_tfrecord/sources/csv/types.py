"""Infers the types of CSV columns from all rows.

For each unit (byte range) and column, the native kernel finds the kinds of values, such as integer
or date, and the line of the first value of each kind. The join over all units is a union of sets,
so the schema does not depend on their order and limits.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from beam_tfrecord.errors import SchemaConflict, quoted
from beam_tfrecord.features.arrow_types import type_name
from beam_tfrecord.native import values as kernel
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.merge_schemas import ByFile

# Any other mixture is text.
_TYPES: dict[int, pa.DataType] = {
    0: pa.null(),
    kernel.BOOL: pa.bool_(),
    kernel.INT: pa.int64(),
    kernel.BIG_INT: pa.int64(),
    kernel.INT | kernel.BIG_INT: pa.int64(),
    kernel.FLOAT: pa.float64(),
    # A double represents integers of the kind INT exactly, but not all BIG_INT.
    kernel.INT | kernel.FLOAT: pa.float64(),
    kernel.DATE: pa.date32(),
    kernel.TIME: pa.timestamp("us"),
    kernel.DATE | kernel.TIME: pa.timestamp("us"),
    kernel.ZONED_TIME: pa.timestamp("us", "UTC"),
}
# Kinds that say nothing about the type, if a column has others.
_NO_VALUE = kernel.EMPTY | kernel.WORD
_LINE = operator.attrgetter("line")


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


def type_of(found: Iterable[Found]) -> pa.DataType:
    """Return the type of a column with values of these kinds."""
    joined = functools.reduce(operator.or_, (one.kind for one in found), 0)
    # A quoted empty field is null in a column of any type but text, so it does not decide the type.
    joined = kernel.EMPTY if joined & ~kernel.WORD == kernel.EMPTY else joined & ~_NO_VALUE
    return _TYPES.get(joined, pa.string())


def by_file(inferences: Iterable[CsvInference]) -> ByFile[dict[str, list[Found]]]:
    """Return the kinds in the columns of each file, in order of the files' names and of lines."""
    files: dict[str, tuple[InputFile, dict[str, dict[int, Found]]]] = {}
    for one in inferences:
        _, columns = files.setdefault(one.file.name, (one.file, {}))
        for name, kinds in zip(one.names, one.kinds, strict=True):
            first = columns.setdefault(name, {})
            for found in kinds:
                first[found.kind] = min(found, first.get(found.kind, found))
    return [
        (file, {name: sorted(first.values(), key=_LINE) for name, first in columns.items()})
        for _, (file, columns) in sorted(files.items())
    ]


def join_kinds(name: str, files: ByFile[Sequence[Found]]) -> pa.Field:
    """Return a column over all files.

    A column with a mixture of kinds in one file is text. But if a column is not text in one file
    and would become text only because of another file, that is probably a mistake and an error.
    """
    arrow = type_of(one for _, found in files for one in found)
    for file, found in files if pa.types.is_string(arrow) else ():
        own = type_of(one for one in found if one.kind & ~_NO_VALUE)
        if own not in (pa.null(), arrow):
            why = _why_text(name, _values(files))
            raise SchemaConflict(f"column {name!r} is {type_name(own)} in {file.name} but {why}")
    return pa.field(name, arrow)


def _values(files: ByFile[Sequence[Found]]) -> list[tuple[str, Found]]:
    """Return the first values of each kind that decides about a type, with the names of files."""
    return [(file.name, one) for file, found in files for one in found if one.kind & ~_NO_VALUE]


def _why_text(name: str, values: Sequence[tuple[str, Found]]) -> str:
    """Return the value that makes a column text, and what to do about it."""
    file, one = values[_deciding(values)]
    # A short word may mean that a value is missing.
    is_word = not any(character.isdigit() or character in "\0\\" for character in one.text)
    cure = "correct it, or pass"
    if one.kind == kernel.TEXT and is_word and len(one.text) <= _WORD_CHARACTERS:
        cure = f"pass --null {quoted(one.text)} if it means missing, or"
    as_text = f"--types {shlex.quote(f'{name}=string')}"
    return f"text because of {one.text!r} in {file}:{one.line}: {cure} {as_text}"


def _deciding(values: Sequence[tuple[str, Found]]) -> int:
    """Return the position of the first value from which on a column has its type."""
    found = [one for _, one in values]
    types = [type_of(found[: count + 1]) for count in range(len(found))]
    return types.index(types[-1]) if types else 0


_REMARKS = 5
# Length of the longest text that counts as a word for a missing value.
_WORD_CHARACTERS = 16


def remarks_of(inferences: Iterable[CsvInference], schema: pa.Schema) -> list[str]:
    """Return a message for each column that is text because of a value or has words for null."""
    files = by_file(inferences)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    lines = [line for name in texts if (line := _remark(name, files))]
    if (more := len(lines) - _REMARKS) > 1:
        return [*lines[:_REMARKS], f"{more} more columns of text hold such values"]
    return lines


def _remark(name: str, files: ByFile[Mapping[str, Sequence[Found]]]) -> str:
    """Return the message about a column, or an empty text if it is ordinary text."""
    found = [(file, of_file.get(name, ())) for file, of_file in files]
    values = _values(found)
    if _deciding(values):
        return f"{name}: {_why_text(name, values)}"
    for file, ones in found:
        for one in ones:
            if one.kind == kernel.WORD:
                where, null = f"{file.name}:{one.line}", f"--null {quoted(one.text)}"
                return f"{name}: {one.text!r} in {where} is text: if it means missing, pass {null}"
    return ""
