"""Defines the manifest and the types of *stages*: copies of a source as Parquet, by `extract`.

A stage is a directory of Parquet files with the rows of a source. Its ``manifest.json`` is written
last, contains nothing that depends on the time or the machine, and ends with the hash of its own
text. The manifest of a dataset has the same name, so that neither output overwrites the other.
Readers read only the files that the manifest lists. Parquet has fewer types than Arrow, so each
column has the nearest Parquet type, and the metadata of the file states the Arrow type.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pyarrow as pa

from beam_tfrecord.base.text import format_size, listed
from beam_tfrecord.errors import BeamTFRecordError, DataError, StorageError, UsageError
from beam_tfrecord.features.arrow_arrays import bare_array
from beam_tfrecord.features.arrow_types import bare_type, type_from_json, type_to_json
from beam_tfrecord.format.hashes import parse_sealed
from beam_tfrecord.format.job_file import JOB_NAME
from beam_tfrecord.format.manifest import MANIFEST_NAME, manifest_text, sealed
from beam_tfrecord.format.manifest_parts import Count, Generation, check_names
from beam_tfrecord.format.rejects import REJECTS_FILE
from beam_tfrecord.storage import absolute_path, is_web

SCHEMA_KEY = b"beam_tfrecord.schema"


def staged_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a stage for rows of `schema`.

    Dictionary and run-end encoding are removed. Field metadata remains, as text.
    """
    fields: list[pa.Field] = []
    for field in schema:
        try:
            fields += schema_from_json(schema_to_json(pa.schema([field])))
            _parquet_type(field.type)
        except UsageError:
            raise not_held(field) from None
    return pa.schema(fields)


def not_held(field: pa.Field) -> DataError:
    """Return the error for a column whose type Parquet lacks."""
    return DataError(
        f"column {field.name!r} is {field.type}, which Parquet cannot hold: "
        "leave it out with --columns, or convert it before"
    )


def schema_to_json(schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the fields of `schema` as JSON values; `schema_from_json` is the inverse."""
    fields: list[dict[str, Any]] = []
    for field in schema:
        described: dict[str, Any] = {
            "name": field.name,
            "type": type_to_json(bare_type(field.type)),
        }
        if not field.nullable:
            described["nullable"] = False
        if notes := _texts(field.metadata or {}):
            described["metadata"] = notes
        fields.append(described)
    return fields


def schema_from_json(fields: list[dict[str, Any]]) -> pa.Schema:
    """Return the schema for the JSON values of `schema_to_json`."""
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
    """Return the schema of the Parquet files of a stage."""
    fields = [field.with_type(_parquet_type(field.type)) for field in staged]
    text = json.dumps(schema_to_json(staged), ensure_ascii=False)
    return pa.schema(fields, metadata={SCHEMA_KEY: text.encode()})


def staged_schema_of(inside: pa.Schema) -> pa.Schema | None:
    """Return the schema of the rows of a stage, given the schema inside one of its files."""
    text = (inside.metadata or {}).get(SCHEMA_KEY)
    if text is None:
        return None
    try:
        schema = schema_from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"the schema in its metadata cannot be read: {error!r}") from error
    return schema if schema.names == inside.names else None


def to_file(data: pa.RecordBatch, staged: pa.Schema, inside: pa.Schema) -> pa.RecordBatch:
    """Convert rows from the schema `staged` of a stage to the schema `inside` of its files."""
    columns = [
        _cast(column, target.type, field.type)
        for column, target, field in zip(data.columns, staged, inside, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=inside)


def _cast(column: pa.Array, staged: pa.DataType, inside: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(column.type):
        column = bare_array(column)
    if not column.type.equals(staged):
        column = column.cast(staged)
    if column.type.equals(inside):
        return column
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(inside)


def _parquet_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type that represents a column in Parquet.

    Fixed-size lists become plain lists because pyarrow cannot read fixed-size lists with a null.
    Nor can it make such of views.
    """
    if isinstance(arrow, pa.FixedShapeTensorType):
        return _parquet_type(arrow.storage_type)
    is_view = (pa.types.is_string_view, pa.types.is_binary_view)
    if pa.types.is_fixed_size_list(arrow) and any(is_it(arrow.value_type) for is_it in is_view):
        raise UsageError("a fixed-size list of views")
    if pa.types.is_fixed_size_list(arrow) or pa.types.is_list(arrow):
        return pa.list_(_parquet_type(arrow.value_type))
    if pa.types.is_large_list(arrow):
        return pa.large_list(_parquet_type(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_parquet_type(field.type)) for field in arrow])
    return arrow


def _texts(metadata: dict[bytes, bytes]) -> dict[str, str]:
    """Return metadata as text, without the keys that a Parquet reader adds."""
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in metadata.items()
        if not key.startswith((b"PARQUET:", b"ARROW:"))
    }


_FILE_NAME = re.compile(r"part-\d+\.parquet")
STAGE_FORMAT = "beam_tfrecord-stage/1"


@dataclasses.dataclass(frozen=True)
class StageFile:
    """One Parquet file of a stage."""

    path: str
    rows: Count
    bytes: Count
    xxh64: str


@dataclasses.dataclass(frozen=True)
class StageManifest:
    """The description of a stage."""

    fingerprint: str
    schema: pa.Schema
    source: Mapping[str, Any] | None
    rejects: Mapping[str, Any]
    files: tuple[StageFile, ...]

    def __repr__(self) -> str:
        size = f"rows={self.rows:,}, files={len(self.files):,}"
        return f"<StageManifest: {size}; {format_size(self.bytes)}; {listed(self.schema.names)}>"

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files)

    def dumps(self) -> str:
        """Return the text of the manifest."""
        return sealed(
            {
                "format": STAGE_FORMAT,
                "fingerprint": self.fingerprint,
                "source": self.source,
                "rejects": dict(self.rejects),
                "rows": self.rows,
                "bytes": self.bytes,
                "schema": schema_to_json(self.schema),
                "files": [dataclasses.asdict(file) for file in self.files],
            },
            lists=("schema", "files"),
        )

    @classmethod
    def loads(cls, text: str, *, where: str = MANIFEST_NAME) -> StageManifest:
        """Parse the text of a manifest; `where` names it in errors."""
        return parse_sealed(
            text,
            _from_json,
            where=where,
            what="the manifest of a stage",
            format=STAGE_FORMAT,
            command="extract",
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StageManifest:
        """Read the manifest of a stage, given the path of the stage or of its manifest."""
        file = _manifest_file(path)
        if (text := manifest_text(file)) is None:
            raise UsageError(f"no stage at {os.fspath(path)!r}: there is no {file!r}")
        return cls.loads(text, where=file)


class _File(msgspec.Struct):
    """The JSON of a manifest, besides its source and rejects."""

    rows: int
    bytes: int
    schema: list[dict[str, Any]]
    files: tuple[StageFile, ...]


def _from_json(value: Mapping[str, Any]) -> StageManifest:
    file, facts = msgspec.convert(value, _File), msgspec.convert(value, Generation)
    schema = schema_from_json(file.schema)
    made = StageManifest(facts.fingerprint, schema, facts.source, facts.rejects, file.files)
    # The hash proves no authorship: anyone can compute it.
    check_names(of.path for of in made.files)
    for of in made.files:
        if not _FILE_NAME.fullmatch(of.path):
            raise ValueError(f"{of.path!r:.80} is not the name of a file of a stage")
    if (file.rows, file.bytes) != (made.rows, made.bytes):
        raise ValueError("its totals are not those of its files")
    return made


def is_stage(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a stage or the manifest of a stage, which may be damaged."""
    return format_at(path).startswith("beam_tfrecord-stage/")


def format_at(path: str | os.PathLike[str]) -> str:
    """Return the format that a manifest at a path names; empty if there is none."""
    if is_web(path):
        return ""  # The URL of a file, and some servers have an answer for any name below it.
    try:
        text = manifest_text(_manifest_file(path))
        value = None if text is None else json.loads(text)
    except (OSError, DataError, StorageError, ValueError, RecursionError):
        return ""
    return str(value.get("format")) if isinstance(value, dict) else ""


def stage_files(path: str | os.PathLike[str], manifest: StageManifest) -> list[str]:
    """Return the paths of the files of a stage, in the order of the source."""
    directory = os.path.dirname(_manifest_file(path))
    return [os.path.join(directory, file.path) for file in manifest.files]


def stage_names(manifest_file: str) -> set[str]:
    """Return the names of the files of a stage, given its manifest; empty for other files."""
    try:
        files = StageManifest.load(manifest_file).files
        return {JOB_NAME, REJECTS_FILE, *(file.path for file in files)}
    except BeamTFRecordError:
        return set()


def _manifest_file(path: str | os.PathLike[str]) -> str:
    text = absolute_path(path)
    return text if text.endswith(".json") else os.path.join(text, MANIFEST_NAME)
