"""Joins the columns of all files of an input into one schema, by their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sources.base import InputFile, chosen_columns, not_in_all_files
from beam_tfrecord.sources.hive import partition_fields

T = TypeVar("T")
# What each of some files says, in the order of the files.
ByFile = Sequence[tuple[InputFile, T]]


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
