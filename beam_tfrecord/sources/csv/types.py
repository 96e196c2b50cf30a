"""Infers the types of CSV columns from all values, and makes Arrow columns of the values.

For each unit (byte range) and column, the native kernel finds the kinds of values, such as integer
or date, and the line of the first value of each kind. The join over all units is a union of sets,
so the schema does not depend on their order and limits.

To read a column, the kernel gets a *target*, a type it knows, and returns buffers that become an
Arrow array. Texts that a `Format` has rewritten pass through the kernel again.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import SchemaConflict, UsageError, quoted
from beam_tfrecord.features.arrow_types import bare_type, type_name
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.native import kernel_types as kernel
from beam_tfrecord.native._csv import Filler, Typer
from beam_tfrecord.native.kernel_types import Dialect, Target, UInt8Array
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.merge_schemas import ByFile
from beam_tfrecord.sources.text_files import converted

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


class FirstValue(NamedTuple):
    """The first value of a kind in a column, with its line number; the text may be shortened."""

    kind: int
    line: int
    text: str


@dataclasses.dataclass(frozen=True)
class CsvInference:
    """The kinds of values in one unit."""

    file: InputFile
    names: tuple[str, ...]
    kinds: tuple[tuple[FirstValue, ...], ...]


def type_of(found: Iterable[FirstValue]) -> pa.DataType:
    """Return the type of a column with values of these kinds."""
    joined = functools.reduce(operator.or_, (one.kind for one in found), 0)
    # A quoted empty field is null in a column of any type but text, so it does not decide the type.
    joined = kernel.EMPTY if joined & ~kernel.WORD == kernel.EMPTY else joined & ~_NO_VALUE
    return _TYPES.get(joined, pa.string())


def by_file(inferences: Iterable[CsvInference]) -> ByFile[dict[str, list[FirstValue]]]:
    """Return the kinds in the columns of each file, in order of the files' names and of lines."""
    files: dict[str, tuple[InputFile, dict[str, dict[int, FirstValue]]]] = {}
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


def join_kinds(name: str, files: ByFile[Sequence[FirstValue]]) -> pa.Field:
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


def _values(files: ByFile[Sequence[FirstValue]]) -> list[tuple[str, FirstValue]]:
    """Return the first values of each kind that decides about a type, with the names of files."""
    return [(file.name, one) for file, found in files for one in found if one.kind & ~_NO_VALUE]


def _why_text(name: str, values: Sequence[tuple[str, FirstValue]]) -> str:
    """Return the value that makes a column text, and what to do about it."""
    file, one = values[_deciding(values)]
    # A short word may mean that a value is missing.
    is_word = not any(character.isdigit() or character in "\0\\" for character in one.text)
    cure = "correct it, or pass"
    if one.kind == kernel.TEXT and is_word and len(one.text) <= _WORD_CHARACTERS:
        cure = f"pass --null {quoted(one.text)} if it means missing, or"
    as_text = f"--types {shlex.quote(f'{name}=string')}"
    return f"text because of {one.text!r} in {file}:{one.line}: {cure} {as_text}"


def _deciding(values: Sequence[tuple[str, FirstValue]]) -> int:
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


def _remark(name: str, files: ByFile[Mapping[str, Sequence[FirstValue]]]) -> str:
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


Buffers = tuple[UInt8Array, UInt8Array, Any, Any]

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def keeps_text(field: pa.Field) -> bool:
    """Return whether a column of floats is stored as text, so that its text must also be read."""
    is_float = pa.types.is_float32(field.type) or pa.types.is_float64(field.type)
    return is_float and Feature.from_arrow(field).store == "text"


# Kind and width of the targets of types that have no parameters.
_TARGETS: dict[pa.DataType, tuple[int, int]] = {
    pa.null(): (kernel.AS_NULL, 0),
    pa.bool_(): (kernel.AS_BOOL, 1),
    pa.float32(): (kernel.AS_FLOAT, 4),
    pa.float64(): (kernel.AS_DOUBLE, 8),
    **dict.fromkeys((pa.date32(), pa.date64()), (kernel.AS_DATE, 4)),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), (kernel.AS_TEXT, 0)),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), (kernel.AS_BYTES, 0)),
}


# Types that the kernel does not know, so that it reads words, of which `values_of` makes values.
_FROM_WORDS = (pa.types.is_decimal, pa.types.is_time, pa.types.is_fixed_size_binary)


def target_of(field: pa.Field, column: int) -> Target:
    """Return the target with which the kernel reads column number `column` as a field."""
    types, arrow = pa.types, bare_type(field.type)
    if arrow in _TARGETS:
        return Target(column, *_TARGETS[arrow])
    if types.is_integer(arrow):
        bits, signed = arrow.bit_width, types.is_signed_integer(arrow)
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        return Target(column, kernel.AS_INT, bits // 8, low, high)
    if types.is_timestamp(arrow):
        zoned = arrow.tz is not None
        return Target(column, kernel.AS_TIME, 8, ticks=_TICKS[arrow.unit], zoned=zoned)
    # Arrow parses no decimals that are multiples of ten.
    is_coarse = types.is_decimal(arrow) and arrow.scale < 0
    if not is_coarse and any(is_kind(arrow) for is_kind in _FROM_WORDS):
        return Target(column, kernel.AS_WORDS)
    raise UsageError(
        f"column {field.name!r} cannot be read from csv as {type_name(arrow)}: "
        "read it as text with --types, and convert it with --map"
    )


def array_of(target: Target, arrow: pa.DataType, buffers: Buffers) -> pa.Array:
    """Return the Arrow array of the buffers that the kernel has filled for one column.

    The buffers are values, one byte of validity for each row, offsets, and exact numbers. Values
    are copied only if the type requires it. Words remain text.
    """
    values, valid, offsets, _ = buffers
    rows, kind, value_type = len(valid), target.kind, bare_type(arrow)
    if kind == kernel.AS_NULL:
        return pa.nulls(rows, arrow)
    absent = rows - int(np.count_nonzero(valid))
    bits = pa.py_buffer(np.packbits(valid, bitorder="little")) if absent else None
    if kind == kernel.AS_BOOL:
        values = np.packbits(values, bitorder="little")
    parts = [bits, pa.py_buffer(values)]
    plain = value_type
    if offsets is not None:
        parts.insert(1, pa.py_buffer(offsets))
        plain = pa.binary() if kind == kernel.AS_BYTES else pa.string()
    elif kind == kernel.AS_DATE:
        plain = pa.date32()
    array = pa.Array.from_buffers(plain, rows, parts, absent)
    if kind == kernel.AS_WORDS or array.type == arrow:
        return array
    array = array.cast(value_type)
    return array if value_type == arrow else array.dictionary_encode().cast(arrow)


def exact_of(buffers: Buffers) -> pa.Array | None:
    """Return the exact numbers of a column of floats, if they differ from the floats."""
    _, valid, _, exact = buffers
    return None if exact is None else pa.array(exact, mask=valid == 0)


def values_of(texts: pa.Array, field: pa.Field) -> tuple[pa.Array, list[int], pa.Array | None]:
    """Return trimmed texts as the type of a field.

    The results are values, the rows that do not fit, and the exact numbers if these differ.
    """
    target = target_of(field, 0)
    if target.kind == kernel.AS_WORDS:
        return *converted(texts, field.type), None
    filler = Filler(_ONE_COLUMN, 1, [target], capacity=max(1, len(texts)), **_NO_WORDS)
    filler.feed(_lines_of(texts), 0, True)
    misfits = [fault.row for fault in filler.take_faults()]
    (buffers,) = filler.take()
    return array_of(target, field.type, buffers), misfits, exact_of(buffers)


# The kernel reads texts as a file of one column; one that could not be a row is text.
_ONE_COLUMN: Dialect = (1, None, None, False)
_NOT_A_ROW = "[\\r\\n\\x01]"
_NO_WORDS: dict[str, Any] = {"keep_blank": True, "nulls": (), "always": ()}


def kinds_of(texts: pa.Array) -> list[tuple[int, int]]:
    """Return the kinds of texts, each with the row of its first text."""
    typer = Typer(_ONE_COLUMN, 1, **_NO_WORDS)
    typer.feed(_lines_of(texts), 0, True)
    return [(one.kind, one.row) for one in typer.take_sightings()]


def _lines_of(texts: pa.Array) -> bytes:
    """Return texts as a file of one column, with a line for each."""
    lines = pc.if_else(pc.match_substring_regex(texts, pattern=_NOT_A_ROW), "?", texts)
    offsets = pa.array([0, len(lines)], pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, pc.fill_null(lines, "")), "\n")
    data: bytes = joined[0].as_py().encode() + b"\n" if len(lines) else b""
    return data
