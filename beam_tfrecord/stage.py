"""Stages: their manifest, and the Parquet types that hold their Arrow types.

A stage is a directory of Parquet files that holds the rows of a source. Its ``manifest.json`` is
written last, is the same in every run, and ends with the hash of its own text. A stage and a
dataset share that name, so that neither overwrites the other. Readers follow the manifest and
ignore other files. Parquet has fewer types than Arrow: each file holds the nearest Parquet type,
and its metadata states the Arrow type.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import BeamTFRecordError, DataError, StorageError, UsageError
from beam_tfrecord.features.arrow_types import type_from_json, type_to_json
from beam_tfrecord.manifest import (
    MANIFEST_NAME,
    NOT_READ,
    check_counts,
    check_names,
    reason_of,
    sealed_lines,
)
from beam_tfrecord.storage import absolute_path, read_small
from beam_tfrecord.type_checks import check_fields

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


_FILE_NAME = re.compile(r"part-\d+\.parquet")
STAGE_FORMAT = "beam_tfrecord-stage/1"


@dataclasses.dataclass(frozen=True)
class StageFile:
    """One Parquet file of a stage.

    Attributes:
        path: Relative to the manifest.
        rows: Number of rows.
        bytes: Size.
        xxh64: Hash of the file, 16 hex digits.
    """

    path: str
    rows: int
    bytes: int
    xxh64: str


@dataclasses.dataclass(frozen=True)
class StageManifest:
    """A stage's description.

    Attributes:
        fingerprint: Of the input and the settings; empty where unknown, as for a database.
        schema: Of the rows, with the types of the source.
        source: Kind and files of the input, without secrets; None where it came through Beam code.
        rejects: Rows that could not be read: ``{"rows": …, "xxh64": …}``.
        files: In the order of the source.
    """

    fingerprint: str
    schema: pa.Schema
    source: Mapping[str, Any] | None
    rejects: Mapping[str, Any]
    files: tuple[StageFile, ...]

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files)

    def check(self, value: Mapping[str, Any]) -> None:
        """Check what was read: its hash may be anyone's.

        Args:
            value: The JSON that it was read from.

        Raises:
            ValueError: It cannot be the manifest of a stage.
        """
        check_fields(self)
        for file in self.files:
            check_fields(file)
            check_counts(file, "rows", "bytes")
        check_names(file.path for file in self.files)
        for file in self.files:
            if not _FILE_NAME.fullmatch(file.path):
                raise ValueError(f"{file.path!r:.80} is not the name of a file of a stage")
        if (value["rows"], value["bytes"]) != (self.rows, self.bytes):
            raise ValueError("its totals are not those of its files")

    def dumps(self) -> str:
        """Return the text of the manifest."""
        return _sealed(
            {
                "format": STAGE_FORMAT,
                "fingerprint": self.fingerprint,
                "source": self.source,
                "rejects": dict(self.rejects),
                "rows": self.rows,
                "bytes": self.bytes,
                "schema": schema_to_json(self.schema),
                "files": [dataclasses.asdict(file) for file in self.files],
            }
        )

    @classmethod
    def loads(cls, text: str, *, where: str = MANIFEST_NAME) -> StageManifest:
        """Parse the text of a manifest; `where` names it in errors.

        Raises:
            DataError: It is not that of a stage, or was changed after it was written.
        """
        try:
            value = json.loads(text)
            if value["format"] != STAGE_FORMAT:
                raise DataError(f"{where} has format {value['format']!r}, not {STAGE_FORMAT!r}")
            del value["xxh64"]
            if _sealed(value) != text:
                raise DataError(f"{where} was changed after it was written: extract it again")
            made = cls(
                fingerprint=value["fingerprint"],
                schema=schema_from_json(value["schema"]),
                source=value["source"],
                rejects=value["rejects"],
                files=tuple(StageFile(**file) for file in value["files"]),
            )
            made.check(value)
            return made
        except NOT_READ as error:
            reason = reason_of(error)
            raise DataError(f"{where} is not the manifest of a stage: {reason}") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StageManifest:
        """Read the manifest of a stage, given its directory or the manifest itself.

        Raises:
            UsageError: There is no stage.
            DataError: The manifest is damaged.
        """
        file = _manifest_file(path)
        text = _text_of(file)
        if text is None:
            raise UsageError(f"no stage at {os.fspath(path)!r}: there is no {file!r}")
        return cls.loads(text, where=file)


def is_stage(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is the directory of a stage, or its manifest, sound or not."""
    try:
        text = _text_of(_manifest_file(path))
        value = None if text is None else json.loads(text)
    except (OSError, DataError, StorageError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and str(value.get("format")).startswith("beam_tfrecord-stage/")


def stage_files(path: str | os.PathLike[str]) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the schema of a stage, and the paths of its files in the order of the source.

    Raises:
        UsageError: There is no stage.
        DataError: Its manifest is damaged.
    """
    manifest = StageManifest.load(path)
    directory = os.path.dirname(_manifest_file(path))
    return manifest.schema, tuple(os.path.join(directory, file.path) for file in manifest.files)


def stage_names(manifest_file: str) -> set[str]:
    """Return the names of the files that a manifest speaks of if it is that of a stage."""
    try:
        return {file.path for file in StageManifest.load(manifest_file).files}
    except BeamTFRecordError:
        return set()


def _manifest_file(path: str | os.PathLike[str]) -> str:
    text = absolute_path(path)
    return text if text.endswith(".json") else os.path.join(text, MANIFEST_NAME)


def _text_of(file: str) -> str | None:
    try:
        return read_small(file).decode()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, UnicodeDecodeError):
        return None


def _sealed(value: Mapping[str, Any]) -> str:
    """Return JSON text, a field and a file a line, with the hash of itself as last key."""
    return sealed_lines([f'  "{key}": {_value(item)}' for key, item in value.items()])


def _value(item: Any) -> str:
    if not isinstance(item, list) or not item:
        return json.dumps(item, ensure_ascii=False)
    lines = (f"    {json.dumps(one, ensure_ascii=False)}" for one in item)
    return "[\n" + ",\n".join(lines) + "\n  ]"
