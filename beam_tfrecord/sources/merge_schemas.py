"""Joins the columns of all files of an input into one schema; Hive directories are columns too.

These are ``key=value`` in the paths of files, as Apache Hive and Spark write them: one level of
directories per column, values percent-encoded, and ``__HIVE_DEFAULT_PARTITION__`` for null.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar
from urllib.parse import unquote

import pyarrow as pa

from beam_tfrecord.base.text import not_found, repeated
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError, quoted
from beam_tfrecord.sources.base import InputFile, chosen_columns, not_in_all_files

T = TypeVar("T")
# What each of some files says, in the order of the files.
ByFile = Sequence[tuple[InputFile, T]]
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

Partitions = tuple[tuple[str, str | None], ...]

# Only numbers in the form that `str` returns: `007`, `+7` and `-0` are text.
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)


def join_by_name(
    found: ByFile[Mapping[str, T]],
    join: Callable[[str, ByFile[T]], pa.Field],
    *,
    columns: Sequence[str] | None,
    union: bool,
    types: Mapping[str, pa.DataType] | None = None,
) -> pa.Schema:
    """Return the schema of files that have columns by name; the columns of their paths come last.

    `found` has all columns of each file, also those that are not read. `join` returns the field of
    a column, given what the files that have it say of it; for a column of `types` it is not called.
    """

    def field_of(name: str) -> pa.Field:
        having = [(file, of_file[name]) for file, of_file in found if name in of_file]
        if len(having) < len(found) and not union:
            lacking = next(file for file, of_file in found if name not in of_file)
            raise not_in_all_files(name, having[0][0], lacking)
        field = pa.field(name, types[name]) if types and name in types else join(name, having)
        return field if len(having) == len(found) else field.with_nullable(True)

    names = dict.fromkeys(name for _, of_file in found for name in of_file)
    files = [file for file, _ in found]
    return joined_schema(names, field_of, files, columns=columns, union=union, types=types)


def joined_schema(
    names: Iterable[str],
    field_of: Callable[[str], pa.Field],
    files: Sequence[InputFile],
    *,
    columns: Sequence[str] | None,
    union: bool = False,
    types: Mapping[str, pa.DataType] | None = None,
) -> pa.Schema:
    """Return the schema of the columns `names` inside files and of those in their paths.

    `field_of` is called only for the columns that are read.
    """
    types = types or {}
    inside, in_paths = dict.fromkeys(names), partition_fields(files, union=union)
    known = dict.fromkeys([*inside, *(field.name for field in in_paths)])
    if unknown := [name for name in types if name not in known]:
        raise UsageError(not_found(unknown[0], known, of="--types"))
    wanted = known if columns is None else set(columns)
    fields = {name: field_of(name) for name in inside if name in wanted}
    for field in in_paths:
        if field.name in fields:
            first = min(file.name for file in files if field.name in dict(file.partitions))
            raise SchemaConflict(
                f"column {field.name!r} is both in the data and in the path of {first}: "
                "leave it out with --columns, or rename the directory"
            )
        if field.name in wanted:
            fields[field.name] = field.with_type(types.get(field.name, field.type))
    return chosen_columns(fields, columns, known)


def fields_inside(
    schema: pa.Schema, inside: Collection[str], file: InputFile, *, union: bool
) -> list[pa.Field]:
    """Return the fields of `schema` that are columns inside a file, and not of its path."""
    known = dict.fromkeys([*inside, *dict(file.partitions)])
    for name in schema.names:
        if name not in known and not union:
            message = not_found(name, known, of="the schema", where=file.name)
            raise DataError(f"{message}; or pass --union to fill it with nulls")
    return [field for field in schema if field.name in inside]


def partition_of(directory: str) -> tuple[str, str | None] | None:
    """Return the key and value that the name of a directory states, or None for any other name."""
    key, equals, value = directory.partition("=")
    if not key or not equals:
        return None
    return unquote(key), None if value == HIVE_NULL else unquote(value)


def hive_partitions(name: str) -> Partitions:
    """Return the ``key=value`` directories in the posix path of a file, outermost first."""
    pairs = map(partition_of, name.split("/")[:-1])
    return tuple(pair for pair in pairs if pair is not None)


def partition_fields(files: Iterable[InputFile], *, union: bool = False) -> list[pa.Field]:
    """Return the columns of the directories of all `files`, in any order.

    A column is int64 if every value is an integer that fits and has no leading zero, and date32 if
    every value is a date such as 2025-12-30; else it is text. If all values are null, its type is
    null.
    """
    by_name = {file.name: file for file in files}
    distinct = [by_name[name] for name in sorted(by_name)]
    having: dict[str, dict[InputFile, str | None]] = {}
    for file in distinct:
        if doubled := repeated(key for key, _ in file.partitions):
            raise SchemaConflict(
                f"column {doubled[0]!r} is twice in the path {file.name}: rename a directory"
            )
        for key, value in file.partitions:
            having.setdefault(key, {})[file] = value
    fields = []
    for key, values in having.items():
        lacking = [file for file in distinct if file not in values]
        if lacking and not union:
            raise not_in_all_files(key, next(iter(values)), lacking[0])
        is_nullable = bool(lacking) or None in values.values()
        fields.append(pa.field(key, _type_of(values.values()), is_nullable))
    return fields


def _type_of(values: Iterable[str | None]) -> pa.DataType:
    known = [value for value in values if value is not None]
    if not known:
        return pa.null()
    if all(map(_is_date, known)):
        return pa.date32()
    return pa.int64() if all(map(_is_int64, known)) else pa.string()


def _is_int64(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(2**63) <= int(text) < 2**63


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def text_partitions(files: Iterable[InputFile], names: Iterable[str]) -> Iterator[str]:
    """Yield a message for each column of directories whose values are whole numbers and words."""
    pairs = {pair for file in files for pair in file.partitions}
    for name in names:
        values = sorted(value for key, value in pairs if key == name and value is not None)
        words = [value for value in values if not value.lstrip("-").isdigit()]
        if 0 < len(words) < len(values):
            cure = f"pass --null {quoted(words[0])} if it means missing, or --types {name}=string"
            yield f"{name}: text because of the directory {f'{name}={words[0]}'!r}: {cure}"


def constants_of(file: InputFile, fields: Iterable[pa.Field]) -> pa.RecordBatch:
    """Return a row of columns that are not inside of a file."""
    return pa.record_batch({f.name: pa.repeat(partition_value(file, f), 1) for f in fields})


def with_partitions(data: pa.RecordBatch, file: InputFile, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows `data` of a file with exactly the columns of `schema`.

    A column that `data` lacks is a constant from the path of the file, or else null.
    """
    present = {name: index for index, name in enumerate(data.schema.names)}
    arrays = [
        data.column(present[field.name])
        if field.name in present
        else pa.repeat(partition_value(file, field), data.num_rows)
        for field in schema
    ]
    # A batch that is made from no arrays loses its number of rows.
    if not arrays:
        return data.select([])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def partition_value(file: InputFile, field: pa.Field) -> pa.Scalar:
    """Return the value of a column in the path of a file; null if the path has none."""
    value = dict(file.partitions).get(field.name)
    if value is None:
        return pa.scalar(None, field.type)
    try:
        return pa.scalar(value).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"{field.name}={value} in the path {file.name} is not {field.type}: "
            "rename the directory, or type the column as text in --schema"
        ) from error
