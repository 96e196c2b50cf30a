"""Cuts the text of JSON files into lines with one value each, and parses the lines by PyArrow.

A file has one of three forms. In JSON Lines every line is an object, and a cut at any newline is
right, because a JSON string cannot contain one. The two others, an array of objects and objects
over several lines, are turned into lines: a newline replaces what separates two values, and spaces
replace the newlines and brackets around them. No other byte changes.

PyArrow parses many lines at a time, but some input crashes it or is changed without an error. So
each call is guarded: a line is one object in valid UTF-8, and the result is validated. If a call
fails, halves of the lines are parsed, down to the malformed lines.
"""

from __future__ import annotations

import codecs
import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_text, type_name
from beam_tfrecord.features.type_join import convert_each
from beam_tfrecord.native.kernel_types import BoolArray, Int64Array
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.damaged_files import format_of, incomplete
from beam_tfrecord.sources.files import has_suffix
from beam_tfrecord.sources.text_files import BLOCK_BYTES, MAX_ROW_BYTES, open_text

LINES, ARRAY, OBJECTS = "lines", "array", "objects"

# Deeper types can crash the parser, which calls itself for each of their levels.
MAX_DEPTH = 100
_SPACE = b" \t\r\n"
_HEAD_BYTES = 2**16
_OPEN, _CLOSE, _BEGIN, _END, _QUOTE, _COMMA, _LF, _BLANK = b'{}[]",\n '
# The bit that turns "[" into "{" and "]" into "}", and no other character into one of these.
_AS_BRACE = 0x20
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


@dataclasses.dataclass(frozen=True)
class JsonUnit:
    """The detail of a unit: the data besides its byte range that reading it needs."""

    form: str
    line: int


@dataclasses.dataclass(frozen=True)
class Lines:
    """Rows, each on a line of `text` without blanks around it, and their numbers.

    They stay one text as long as all goes well: Python takes longer for a line than PyArrow.
    """

    text: bytes
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return zip(self.numbers, self.text.split(b"\n"), strict=True)

    @functools.cached_property
    def are_objects(self) -> bool:
        """Whether each line begins and ends as an object, without blanks around."""
        text = self.text
        return text[:1] == b"{" and text[-1:] == b"}" and text.count(b"}\n{") == len(self) - 1

    def part(self, start: int, stop: int) -> Lines:
        """Return the rows `start` to `stop` of these."""
        if start <= 0 and stop >= len(self):
            return self
        texts = self.text.split(b"\n")[start:stop]
        return Lines(b"\n".join(texts), self.numbers[start:stop])


def form_of(file: InputFile) -> str:
    """Return the form of a file, by its suffix and its first bytes."""
    with open_text(file, "utf-8", 0, file.bytes) as text:
        head = text.read(_HEAD_BYTES)
    if format_of(head):
        raise incomplete(file, "JSON", ValueError("it is binary"))
    if head.startswith(_BOMS) or b"\0" in head[:4]:
        raise DataError(f"{file.name} looks like UTF-16: JSON has to be UTF-8, so convert it")
    head = head.removeprefix(codecs.BOM_UTF8).lstrip(_SPACE)
    if has_suffix(file.path, (".jsonl", ".ndjson")):
        return LINES
    if head.startswith(b"["):
        return ARRAY
    line, newline, _ = head.partition(b"\n")
    if not newline or not line.startswith(b"{"):
        return LINES
    _, levels = _levels(line, 0, 0)
    return OBJECTS if levels[-1] > 0 else LINES


def read_lines(unit: Unit) -> Iterator[Lines]:
    """Yield the rows of a unit, in parts of about `BLOCK_BYTES`."""
    form: str = unit.detail.form
    number = unit.detail.line if form == LINES else 0
    rest = b""
    for piece in itertools.chain(_pieces(unit), [b"\n"]):
        block, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            lines, number = _lines(block, number, form)
            # An array without values has only blanks between its brackets.
            if lines and lines != Lines(b"", [0]):
                yield lines
        if len(rest) > MAX_ROW_BYTES:
            raise DataError(
                f"{unit.file.name}{':' if form == LINES else ' row '}{number} is longer than "
                f"{MAX_ROW_BYTES} bytes: check that every row is an object of its own"
            )


def _lines(text: bytes, number: int, form: str) -> tuple[Lines, int]:
    """Return the rows in a text, of which the first has a number, and the number after the last."""
    if b"\r" in text:  # one byte is found much faster than two
        text = text.replace(b"\r\n", b"\n")
    stop = number + text.count(b"\n") + 1
    rows = Lines(text, range(number, stop))
    if rows.are_objects:
        return rows, stop
    texts = [line.strip(_SPACE) for line in text.split(b"\n")]
    if form == OBJECTS:
        texts = [text for text in texts if text]
    lines = [line for line in enumerate(texts, number) if line[1] or form == ARRAY]
    rows = Lines(b"\n".join(text for _, text in lines), [number for number, _ in lines])
    return rows, number + len(texts)


def _pieces(unit: Unit) -> Iterator[bytes]:
    """Yield the text of a unit, with each value on a line of its own."""
    with open_text(unit.file, "utf-8", unit.start, unit.stop) as text:
        begin = text.read(len(codecs.BOM_UTF8)) if unit.index == 0 else b""
        blocks = iter(functools.partial(text.read, BLOCK_BYTES), b"")
        pieces = itertools.chain([begin.removeprefix(codecs.BOM_UTF8)], blocks)
        form = unit.detail.form
        yield from pieces if form == LINES else _as_lines(pieces, unit.file, form == ARRAY)


def _as_lines(pieces: Iterable[bytes], file: InputFile, is_array: bool) -> Iterator[bytes]:
    """Turn an array, or objects over several lines, into lines with one value each."""
    left, inside, depth = b"", 0, 0
    for piece in itertools.chain(pieces, [None]):
        data = left + (piece or b"")
        # No escape may be cut: backslashes wait for what follows them.
        whole = data if piece is None else data.rstrip(b"\\")
        left = data[len(whole) :]
        if not whole:
            continue
        within, levels = _levels(whole, inside, depth)
        before = np.concatenate([[depth], levels[:-1]])
        text = np.frombuffer(whole, np.uint8)
        made = text.copy()
        newlines = text == _LF
        # A newline in a string is not valid: another control character there is not valid, either.
        made[newlines & within] = 0x1F
        made[newlines & ~within & (is_array | (levels > 0))] = _BLANK
        if is_array:
            made[(text == _COMMA) & ~within & (levels == 1)] = _LF
            # The brackets of the array.
            is_bracket = (text == _BEGIN) | (text == _END)
            made[is_bracket & (levels + before == 1)] = _BLANK
        if levels.min() < 0:
            raise DataError(f"{file.name} closes more than it opens: correct it")
        inside, depth = int(within[-1]), int(levels[-1])
        yield made.tobytes()
    if inside or depth:
        what = "a string" if inside else "an array" if is_array else "an object"
        raise DataError(f"{file.name} ends inside {what}: check that it is complete")


def depth_of(text: bytes) -> int:
    """Return how deep objects and arrays are nested in a complete text."""
    _, levels = _levels(text, 0, 0)
    return int(levels.max(initial=0))


def _levels(text: bytes, inside: int, depth: int) -> tuple[BoolArray, Int64Array]:
    """Return for each byte whether it is in a string, and how many values are open after it."""
    # Escapes have no quotes then. Pairs from the left: after an even number of backslashes a quote
    # ends the string.
    plain = text.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    found = np.frombuffer(plain, np.uint8)
    # The sum overflows, but stays odd inside strings.
    within = ((np.cumsum(found == _QUOTE, dtype=np.uint8) + np.uint8(inside)) & 1).astype(bool)
    braces = found | _AS_BRACE
    steps = (braces == _OPEN).astype(np.int8) - (braces == _CLOSE).astype(np.int8)
    steps[within] = 0
    return within, np.cumsum(steps, dtype=np.int64) + depth


_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


def parse(lines: Lines, schema: pa.Schema) -> pa.Table:
    """Return the rows of some lines, at least one, with columns of `schema`, null without a key."""
    # If as many objects as lines are parsed, none extends over a line or shares one: a newline
    # between ``}`` and ``{`` is between two objects, since inside one a comma would be.
    if not lines.are_objects:
        raise ValueError("a line is not an object")
    data = lines.text
    # The parser checks neither the text that it skips nor the names of columns.
    if not data.isascii():
        data.decode()
    read_options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
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


class MalformedLine(Exception):
    """A malformed line, and why."""


def members(line: bytes) -> dict[str, tuple[Any, str]]:
    """Return the members of the object on a line: the value, with numbers exact, and its text."""
    try:
        text = line.decode()
        if line.count(b"{") + line.count(b"[") > MAX_DEPTH < depth_of(line):
            raise MalformedLine(f"is nested more than {MAX_DEPTH} levels deep")
        found = _members(text)
    except UnicodeDecodeError as error:
        raise MalformedLine(f"is not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise MalformedLine(f"is not valid JSON ({error.msg}, column {error.pos + 1})") from error
    except ValueError as error:
        # Python converts no integer with thousands of digits.
        raise MalformedLine(f"cannot be read ({error})") from error
    if _ESCAPE.search(text) and _HALF.search(json.dumps(found, ensure_ascii=False)):
        raise MalformedLine("has half of a surrogate pair (\\ud800 to \\udfff)")
    return found


def _members(text: str) -> dict[str, tuple[Any, str]]:
    if not text.startswith("{"):
        kind = type(_DECODER.decode(text)).__name__
        raise MalformedLine(f"is {_KINDS.get(kind, 'a number')}, not an object")

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
        raise MalformedLine(f"has the key {twice!r} twice")
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
    except MalformedLine:
        return line
    texts = {
        name: json.dumps(text) if name in names and not isinstance(value, str | None) else text
        for name, (value, text) in found.items()
    }
    if texts == {name: text for name, (_, text) in found.items()}:
        return line
    return f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in texts.items())}}}".encode()


class JsonRowError(NamedTuple):
    """Why a line is not a row: `column` is empty if the fault is not a value of a column."""

    column: str
    problem: str
    value: str


def fault_of(line: bytes, schema: pa.Schema) -> JsonRowError:
    """Return why a line, which `parse_rows` found to be wrong, is not a row of `schema`."""
    shown = line.decode("utf-8", "backslashreplace")
    try:
        found = members(line)
    except MalformedLine as error:
        return JsonRowError("", str(error), shown)
    for name in found:
        if name not in schema.names:
            continue
        field = schema.field(name)
        if parse_rows(Lines(line, [0]), pa.schema([field]))[1]:
            return misfit_of(line, field)
    return JsonRowError("", "is not valid JSON", shown)


def misfit_of(line: bytes, field: pa.Field) -> JsonRowError:
    """Return the fault of a line whose value of a column does not fit the type of the column."""
    _, text = members(line)[field.name]
    return JsonRowError(field.name, f"is not {type_name(field.type)}", text)
