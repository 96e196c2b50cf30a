"""Reads JSON files, split at line ends; column types come from all values.

All files follow the same rules:

* A row is an object. Its keys are columns, and a key that a row lacks is null. Blank lines are not
  rows.
* Text is text, even if it looks like a time or a number.
* Integers are int64; larger ones are rejects. Numbers with a fraction or an exponent, ``NaN``,
  ``Infinity`` and ``-Infinity`` are the nearest float64; one too large for it is a reject.
* A column of integers and fractions is float64, unless an integer is beyond 2^53 and so may not be
  exact.
* Arrays are lists, and objects are structs. Values that differ in kind are refused.
* A row that has a key twice, half of a surrogate pair or invalid UTF-8 is a reject.

For each place in the rows, such as a column or a field of an object, an inference has the kinds of
its values, such as text or double, and the first row of each kind. The join over all units is a
union of sets, so the schema does not depend on their order and limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, Union

import msgspec
import pyarrow as pa

from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.arrow_types import is_list, is_temporal, type_name, type_of_column
from beam_tfrecord.features.cast_to_schema import NoConversion
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.options.sources import JsonOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, MAX_VALUE_CHARS, Batch, Reject, bad_value
from beam_tfrecord.sources import json_text, text_files
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.merge_schemas import joined_schema

# A text, as group 1, or a number that is not in the standard of JSON.
_STRING_OR_ODD = re.compile(rb'("(?:[^"\\]|\\.)*")|NaN|Infinity')
# Kinds of values, as messages name them.
BOOL, INT, BIG = "a boolean", "an integer", "an integer beyond 2^53"
DOUBLE, TEXT, LIST, OBJECT = "a fraction", "text", "an array", "an object"
_KINDS = {bool: BOOL, int: INT, float: DOUBLE, str: TEXT, list: LIST, dict: OBJECT}
# A double represents all smaller integers exactly.
_EXACT = 2**53
_EXACT_INTEGER: Any = Annotated[int, msgspec.Meta(ge=-_EXACT, le=_EXACT)]
# So few lines are read one by one.
_FEW_LINES = 32


@dataclasses.dataclass
class ValueKinds:
    """The kinds of the values at one place in rows, such as a column or a field of an object."""

    kinds: dict[str, str] = dataclasses.field(default_factory=dict)  # kind -> its first row
    # By the key of an object, or None for the values of an array; in the order of appearance.
    inner: dict[str | None, ValueKinds] = dataclasses.field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of places in which rows have values, here and inside."""
        return 1 + sum(place.size for place in self.inner.values() if place.kinds)

    def add(self, value: Any, where: str, *, is_valid: bool = True) -> None:
        """Add a value of the row `where`; if the row is malformed only its keys."""
        if is_valid:
            for kind in _kinds_of(value):
                self.kinds.setdefault(kind, where)
        items: Iterable[tuple[str | None, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list):
            items = ((None, item) for item in value or [None])
        for name, item in items:
            self.inner.setdefault(name, ValueKinds()).add(item, where, is_valid=is_valid)

    def join(self, other: ValueKinds) -> None:
        """Add what another place has, which comes later."""
        for kind, where in other.kinds.items():
            self.kinds.setdefault(kind, where)
        for name, place in other.inner.items():
            self.inner.setdefault(name, ValueKinds()).join(place)

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

    def as_json(self) -> Any:
        """Return the type of these values for `msgspec`, which refuses all others."""
        number = int if BIG in self.kinds else _EXACT_INTEGER
        plain = {BOOL: bool, INT: number, DOUBLE: number | float, TEXT: str}
        types = [plain[kind] for kind in self.kinds if kind in plain]
        if LIST in self.kinds:
            types.append(list[self.inner[None].as_json()])  # type: ignore[misc]
        if OBJECT in self.kinds:
            types.append(self.as_object())
        return Union[(None, *types)]

    def as_object(self) -> Any:
        """Return the type of objects with the known keys for `msgspec`.

        Raises:
            ValueError: `msgspec` has no type for one of the keys.
        """
        fields = [(f"f{at}", of.as_json(), None) for at, (_, of) in enumerate(self._fields)]
        keys = {f"f{at}": key for at, (key, _) in enumerate(self._fields)}
        return msgspec.defstruct("Row", fields, rename=keys, forbid_unknown_fields=True, gc=False)

    @property
    def _fields(self) -> list[tuple[str, ValueKinds]]:
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
    row: ValueKinds
    fault: str = ""


class Finder:
    """Collects the kinds of values, for a `JsonInference`.

    `msgspec` parses lines with the types that the known kinds have, several times faster than
    PyArrow. Python reads the lines that it refuses: these may have other kinds or keys, or be
    malformed. It also reads lines that lack most keys: they would take much memory.
    """

    def __init__(self, address: str) -> None:
        self.row = ValueKinds()
        self.fault = ""
        self._address = address
        self._decoder: Any = None  # for the known kinds

    def add(self, lines: json_text.Lines) -> None:
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

    def _is_known(self, lines: json_text.Lines) -> bool:
        """Return whether the lines have only known keys and kinds; a malformed one may be."""
        if self._parses(lines.text):
            return True
        # These are doubles here, but not in the standard of JSON, which `msgspec` follows.
        finite = _STRING_OR_ODD.sub(lambda found: found[1] or b"0.5", lines.text)
        return finite != lines.text and self._parses(finite)

    def _parses(self, text: bytes) -> bool:
        try:
            self._decoder = self._decoder or msgspec.json.Decoder(self.row.as_object())
            self._decoder.decode_lines(text)
        except (ValueError, RecursionError):  # the errors of `msgspec` are of this kind, too
            return False
        return bool(self.row.inner)

    def _add_line(self, line: bytes, where: str) -> None:
        self._decoder = None
        try:
            found = {name: value for name, (value, _) in json_text.members(line).items()}
        except json_text.MalformedLine as error:
            self.fault = self.fault or f"{where} {error}"
            # PyArrow does not check keys without a column, so each key of the line needs one.
            try:
                self.row.add(json_text.keys_of(line), where, is_valid=False)
            except RecursionError:
                raise DataError(f"{where} {error}: correct it, or leave it out") from error
        else:
            self.row.add(found, where)


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


class _ScanDetail(NamedTuple):
    form: str | None  # in the first scan of a file
    newlines: int
    second_line: int  # position after the first newline; -1 if there is none


@dataclasses.dataclass(frozen=True)
class Json(JsonOptions, text_files.TextFiles):
    """JSON Lines and JSON files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``)."""

    kind: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")
    detail_type: ClassVar[Any] = json_text.JsonUnit

    def __post_init__(self) -> None:
        super().__post_init__()
        typed = {name: type_of_column(name, arrow) for name, arrow in self.typed.items()}
        for name, arrow in typed.items():
            parsed_type(name, arrow)
        object.__setattr__(self, "types", typed)

    def scan(self, chunk: Chunk) -> Scan:
        form = json_text.form_of(chunk.file) if chunk.index == 0 else None
        if text_files.is_stream(chunk.file, "utf-8"):
            return Scan(chunk, _ScanDetail(form, 0, -1))
        newlines, second_line, at = 0, -1, chunk.start
        with text_files.open_text(chunk.file, "utf-8", chunk.start, chunk.stop) as text:
            while data := text.read(text_files.BLOCK_BYTES):
                if second_line < 0 and (found := data.find(b"\n")) >= 0:
                    second_line = at + found + 1
                newlines += data.count(b"\n")
                at += len(data)
        return Scan(chunk, _ScanDetail(form, newlines, second_line))

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        file, form = scans[0].chunk.file, scans[0].detail.form
        starts = [(0, 1)]
        if form == json_text.LINES:
            line = 1
            for scan in scans:
                second: int = scan.detail.second_line
                if scan.chunk.index and 0 <= second < file.bytes:
                    starts.append((second, line + 1))
                line += scan.detail.newlines
        stops = [*(start for start, _ in starts[1:]), file.bytes]
        # The names of columns are in the records, too, so records are about as long as the text.
        ratio = text_files.text_bytes_of(file) // max(1, file.bytes)
        return [
            Unit(
                *(file.unit_name(index, len(starts)), file, index, start, stop),
                rows=None,
                input_bytes=stop - start,
                encoded_bytes=max(1, ratio * (stop - start)),
                detail=json_text.JsonUnit(form, line),
            )
            for index, ((start, line), stop) in enumerate(zip(starts, stops, strict=True))
        ]

    def infer(self, of: Unit) -> JsonInference:
        """Return the kinds (such as text or double) of all values of a unit, by column."""
        finder = Finder(_address_of(of))
        for lines in json_text.read_lines(of):
            finder.add(lines)
        return JsonInference(of.file, of.index, finder.row, finder.fault)

    def merge(self, inferences: Iterable[JsonInference]) -> pa.Schema:
        """Return the schema of all files; the columns from their paths come last."""
        ordered = sorted(inferences, key=lambda one: (one.file.name, one.index))
        row = ValueKinds()
        for one in ordered:
            row.join(one.row)
        if not row.inner and (fault := next((one.fault for one in ordered if one.fault), "")):
            raise DataError(f"the input has no column, and {fault}: correct it")

        def field_of(name: str) -> pa.Field:
            return pa.field(name, self.typed.get(name) or row.inner[name].type_of(name))

        files, names = [one.file for one in ordered], list(map(str, row.inner))
        if self.columns is None and {"images", "annotations", "categories"} <= set(names):
            cure = "pass --from coco and --base DIR of images, or --columns to read it as it is"
            raise UsageError(f"{files[0].name} has the keys of COCO annotations: {cure}")
        return joined_schema(names, field_of, files, columns=self.columns, types=self.typed)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` as at least one batch of exactly `schema`.

        A key that a row lacks is null. A row that does not fit the schema becomes a reject.
        """
        first_row = 0
        for lines in json_text.read_lines(unit):
            address = _address(lines, unit, first_row)
            for start in range(0, len(lines), batch_rows):
                part = lines.part(start, start + batch_rows)
                yield _batch(unit, schema, part, first_row, address)
                first_row += len(part)
        if not first_row:
            yield _batch(unit, schema, json_text.Lines(b"", []), 0, None)


def _address_of(unit: Unit) -> str:
    """Return the text before the number of a line, or of a row of an array, in messages."""
    return f"{unit.file.name}{':' if unit.detail.form == json_text.LINES else ' row '}"


def _address(lines: json_text.Lines, unit: Unit, first_row: int) -> tuple[str, int] | None:
    """Return the address for `Origin` of some lines; None if a blank line is among them."""
    # Of all lines that were read as one, so that messages do not depend on the size of batches.
    first, last = lines.numbers[0], lines.numbers[-1]
    return None if last - first >= len(lines) else (_address_of(unit), first - first_row)


def _batch(
    unit: Unit,
    schema: pa.Schema,
    lines: json_text.Lines,
    first_row: int,
    address: tuple[str, int] | None,
) -> Batch:
    """Return the rows of some lines, of which the first is row `first_row` of the unit."""
    partitions = dict(unit.file.partitions)
    fields = [field for field in schema if field.name not in partitions]
    parsed = pa.schema([(field.name, parsed_type(field.name, field.type)) for field in fields])
    table, wrong = json_text.parse_rows(lines, parsed)
    faults = {row: json_text.fault_of(lines.part(row, row + 1).text, parsed) for row in wrong}
    columns, numbers = {}, {}
    for field in fields:
        values = table.column(field.name).combine_chunks()
        columns[field.name], misfits = _column(values, field)
        faults |= {
            row: json_text.misfit_of(lines.part(row, row + 1).text, field) for row in misfits
        }
        if pa.types.is_float32(field.type):
            numbers[field.name] = values
    rejects = {
        row: _reject(unit, first_row + row, lines.numbers[row], fault)
        for row, fault in faults.items()
    }
    return text_files.batch_of(
        *(unit, schema, columns, first_row, len(lines)),
        address=address,
        numbers=numbers,
        rejects=rejects,
    )


def _column(values: pa.Array, field: pa.Field) -> tuple[pa.Array, list[int]]:
    """Return a column in its own type, and the rows with a value that does not fit it."""
    try:
        return text_files.converted(values, field.type)
    except NoConversion as error:
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError):
            # Arrow converts nothing to lists of nulls alone, but Python does.
            if pa.types.is_nested(field.type):
                return pa.array(values.to_pylist(), field.type), []
        raise not_readable(field.name, field.type) from error


def _reject(unit: Unit, row: int, number: int, fault: json_text.JsonRowError) -> Reject:
    where = f"{_address_of(unit)}{number}"
    if fault.column:
        cure = "correct it, or choose another type by --types or --schema"
        problem = f"{fault.problem}: {cure}"
        return bad_value(unit.name, row, where, fault.column, fault.value, problem)
    message = f"the row in {where} {fault.problem}: correct it, or leave it out"
    return Reject(unit.name, row, "", "bad-row", message, fault.value[:MAX_VALUE_CHARS], where)
