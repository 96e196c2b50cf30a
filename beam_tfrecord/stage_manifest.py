"""The manifest of a stage: its schema and files, and the mark that it is whole.

It is ``manifest.json`` as in a dataset, so that neither is ever written over the other by mistake,
and like there it is written last, holds nothing that differs from run to run, and ends with the
hash of its own text. Readers of a stage follow it, never the names of files.
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
from beam_tfrecord.manifest import (
    MANIFEST_NAME,
    NOT_READ,
    check_counts,
    check_names,
    reason_of,
    sealed_lines,
)
from beam_tfrecord.stage_types import schema_from_json, schema_to_json
from beam_tfrecord.storage import absolute_path, read_small
from beam_tfrecord.type_checks import check_fields

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
