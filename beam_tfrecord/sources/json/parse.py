"""Parses lines of JSON into columns by PyArrow's parser, and finds the lines that are not right.

PyArrow parses many lines at a time, but some input crashes it or is changed without an error. So
each call is guarded: a line is one object in valid UTF-8, and the result is validated. If a call
fails, halves of the lines are parsed, down to the lines at fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.json as pj

from beam_tfrecord.features.arrow_types import is_text, type_name
from beam_tfrecord.features.converting import convert_each
from beam_tfrecord.sources.json.text import MAX_DEPTH, Lines, depth_of

_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


def parse(lines: Lines, schema: pa.Schema, *, unexpected: str = "ignore") -> pa.Table:
    """Return the rows of some lines, at least one, with columns of `schema`.

    A missing key is null. `unexpected` tells what to do about other keys, as PyArrow names it.
    """
    # If as many objects as lines are parsed, none extends over a line or shares one: a newline
    # between ``}`` and ``{`` is between two objects, since inside one a comma would be.
    if not lines.are_objects:
        raise ValueError("a line is not an object")
    data = lines.text
    # The parser checks neither the text that it skips nor the names of columns.
    if not data.isascii():
        data.decode()
    read_options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    table = pj.read_json(pa.BufferReader(data), read_options, parse_options)
    if table.num_rows != len(lines):
        raise ValueError("a line is not one object")
    table.validate(full=True)
    return table


def parse_rows(lines: Lines, schema: pa.Schema) -> tuple[pa.Table, list[int]]:
    """Return the rows with columns of `schema`, and the numbers of those that are malformed.

    Malformed rows are null. A number, boolean, object or array in a column of text is the text that
    stands for it.
    """
    if not lines:
        return schema.empty_table(), []
    try:
        return parse(lines, schema), []
    except ValueError:
        names = {field.name for field in schema if is_text(field.type)}
        texts = [_as_text(line, names) for _, line in lines]

    def parsed(part: Sequence[bytes], _: pa.DataType) -> pa.Array:
        joined = Lines(b"\n".join(part), range(len(part)))
        return parse(joined, schema).to_struct_array().combine_chunks()

    rows, wrong = convert_each(texts, pa.struct(list(schema)), parsed)
    return pa.Table.from_struct_array(rows), wrong.tolist()


class NotRight(Exception):
    """A line that is not right, with the reason."""


def members(line: bytes) -> dict[str, tuple[Any, str]]:
    """Return the members of the object on a line: the value, with numbers exact, and its text."""
    try:
        text = line.decode()
        if line.count(b"{") + line.count(b"[") > MAX_DEPTH < depth_of(line):
            raise NotRight(f"is nested more than {MAX_DEPTH} levels deep")
        found = _members(text)
    except UnicodeDecodeError as error:
        raise NotRight(f"is not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise NotRight(f"is not valid JSON ({error.msg}, column {error.pos + 1})") from error
    except ValueError as error:
        # Python converts no integer with thousands of digits.
        raise NotRight(f"cannot be read ({error})") from error
    if _ESCAPE.search(text) and _HALF.search(json.dumps(found, ensure_ascii=False)):
        raise NotRight("has half of a surrogate pair (\\ud800 to \\udfff)")
    return found


def _members(text: str) -> dict[str, tuple[Any, str]]:
    if not text.startswith("{"):
        kind = type(_DECODER.decode(text)).__name__
        raise NotRight(f"is {_KINDS.get(kind, 'a number')}, not an object")

    def scan(text: str, at: int) -> tuple[tuple[Any, str], int]:
        value, end = _DECODER.scan_once(text, at)
        return (value, text[at:end]), end

    # What Python's parser does for an object, with the text of each value.
    found: dict[str, tuple[Any, str]]
    found, end = _parse_object((text, 1), True, scan, None, _distinct)
    if text[end:].strip(" \t\r\n"):
        raise json.JSONDecodeError("Extra data", text, end)
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise NotRight(f"has the key {twice!r} twice")
    return found


def keys_of(line: bytes) -> dict[str, Any]:
    """Return a malformed line as Python reads it without checks; only its keys are of use."""
    try:
        found = _LAX.decode(line.decode())
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_DECODER: Any = json.JSONDecoder(object_pairs_hook=_distinct)
_parse_object: Any = vars(json.decoder)["JSONObject"]
# No number is too long, and no name is half of a surrogate pair, which PyArrow refuses.
_LAX = json.JSONDecoder(
    object_pairs_hook=lambda pairs: {name: of for name, of in pairs if not _HALF.search(name)},
    parse_int=str,
    strict=False,
)
_KINDS = {"list": "an array", "str": "a string", "bool": "a boolean", "NoneType": "null"}


def _as_text(line: bytes, names: Collection[str]) -> bytes:
    """Return a line in which the values of some columns are strings, but for nulls."""
    try:
        found = members(line)
    except NotRight:
        return line
    texts = {
        name: json.dumps(text) if name in names and not isinstance(value, str | None) else text
        for name, (value, text) in found.items()
    }
    if texts == {name: text for name, (_, text) in found.items()}:
        return line
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in texts.items())}}}".encode()


class Fault(NamedTuple):
    """Why a line is not a row: `column` is empty if the fault is not a value of a column."""

    column: str
    problem: str
    value: str


def fault_of(line: bytes, schema: pa.Schema) -> Fault:
    """Return why a line, which `parse_rows` found to be wrong, is not a row of `schema`."""
    shown = line.decode("utf-8", "backslashreplace")
    try:
        found = members(line)
    except NotRight as error:
        return Fault("", str(error), shown)
    for name in found:
        if name not in schema.names:
            continue
        field = schema.field(name)
        if parse_rows(Lines(line, [0]), pa.schema([field]))[1]:
            return misfit_of(line, field)
    return Fault("", "is not valid JSON", shown)


def misfit_of(line: bytes, field: pa.Field) -> Fault:
    """Return the fault of a line whose value of a column does not fit the type of the column."""
    _, text = members(line)[field.name]
    return Fault(field.name, f"is not {type_name(field.type)}", text)
