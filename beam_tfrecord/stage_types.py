"""Arrow types in a stage, and the Parquet types that hold them.

Parquet has fewer types than Arrow. A stage keeps those of the source: its files hold the next
type that Parquet has, and say in their metadata which one it stands for.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.arrow_types import type_from_json, type_to_json

SCHEMA_KEY = b"beam_tfrecord.schema"


def staged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a stage of rows of `schema`: without what only says how they lie.

    Dictionaries and run ends are decoded; field metadata stays as far as it is text.

    Raises:
        DataError: A column is of a type that no stage can hold.
    """
    fields: list[pa.Field] = []
    for field in schema:
        try:
            fields += schema_from_json(schema_to_json(pa.schema([field])))
        except UsageError:
            raise not_held(field) from None
    return pa.schema(fields)


def not_held(field: pa.Field) -> DataError:
    """Return the error for a column that Parquet has no type for."""
    return DataError(
        f"column {field.name!r} is {field.type}, which Parquet cannot hold: "
        "leave it out with --columns, or convert it before"
    )


def schema_to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the fields of `schema`, of types such as `staged_schema` gives, as JSON values."""
    fields: list[dict[str, Any]] = []
    for field in schema:
        described: dict[str, Any] = {"name": field.name, "type": type_to_json(_decoded(field.type))}
        if not field.nullable:
            described["nullable"] = False
        if notes := _texts(field.metadata or {}):
            described["metadata"] = notes
        fields.append(described)
    return fields


def schema_from_json(fields: list[dict[str, Any]]) -> pa.Schema:
    """Return the schema that `schema_to_json` described."""
    return pa.schema(
        [
            pa.field(
                field["name"],
                type_from_json(field["type"]),
                field.get("nullable", True),
                metadata=field.get("metadata"),
            )
            for field in fields
        ]
    )


def file_schema(staged: pa.Schema) -> pa.Schema:
    """Return the schema of the Parquet files of a stage.

    Raises:
        DataError: Parquet cannot hold a column.
    """
    fields = [field.with_type(_parquet_type(field.type)) for field in staged]
    text = json.dumps(schema_to_json(staged), ensure_ascii=False)
    return pa.schema(fields, metadata={SCHEMA_KEY: text.encode()})


def staged_schema_of(inside: pa.Schema) -> pa.Schema | None:
    """Return the schema that a file of a stage stands for; None for any other Parquet file."""
    text = (inside.metadata or {}).get(SCHEMA_KEY)
    if text is None:
        return None
    try:
        schema = schema_from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"the schema in its metadata cannot be read: {error!r}") from error
    return schema if schema.names == inside.names else None


def to_file(data: pa.RecordBatch, staged: pa.Schema, inside: pa.Schema) -> pa.RecordBatch:
    """Return rows as the files of a stage hold them.

    Args:
        data: The rows.
        staged: Schema of the stage.
        inside: Schema of its files.
    """
    columns = [
        _cast(column, target.type, field.type)
        for column, target, field in zip(data.columns, staged, inside, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=inside)


def _cast(column: pa.Array, staged: pa.DataType, inside: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(column.type):
        column = pa.compute.run_end_decode(column)
    if not column.type.equals(staged):
        column = column.cast(staged)
    if column.type.equals(inside):
        return column
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(inside)


def _decoded(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _decoded(arrow.value_type)
    return arrow


def _parquet_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that holds a column in Parquet.

    Lists of one size are lists like others there: pyarrow cannot read them where one is missing.
    """
    if isinstance(arrow, pa.FixedShapeTensorType):
        return _parquet_type(arrow.storage_type)
    if pa.types.is_fixed_size_list(arrow):
        return pa.list_(_parquet_type(arrow.value_type))
    if pa.types.is_list(arrow):
        return pa.list_(_parquet_type(arrow.value_type))
    if pa.types.is_large_list(arrow):
        return pa.large_list(_parquet_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_parquet_type(field.type)) for field in arrow])
    return arrow


def _texts(metadata: dict[bytes, bytes]) -> dict[str, str]:
    """Return metadata but for what a Parquet reader adds to tell columns apart."""
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in metadata.items()
        if not key.startswith((b"PARQUET:", b"ARROW:"))
    }
