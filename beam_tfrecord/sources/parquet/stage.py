"""Stages as input: their files are those of the manifest, whatever else lies beside them."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.manifest import MANIFEST_NAME
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.sources.parquet.footer import Footer
from beam_tfrecord.stage_manifest import StageManifest, is_stage, stage_files
from beam_tfrecord.storage import absolute_path, exists, is_directory


def list_staged(paths: Sequence[str], suffixes: Sequence[str]) -> Iterator[InputFile]:
    """Yield the files that `paths` name as `list_files` does, and those of stages among them.

    A stage without rows has no files: its manifest stands for one.

    Raises:
        UsageError: Nothing is found, or a file cannot be opened.
        DataError: A file of a stage is not the one that the stage was made with.
    """
    named: list[str] = []
    sizes: dict[str, int] = {}
    for path in paths:
        if path.endswith(tuple(suffixes)) or glob.has_magic(path) or not is_stage(path):
            named.append(path)
            continue
        manifest, (_, files) = StageManifest.load(path), stage_files(path)
        for file in files:
            if not exists(file) or is_directory(file):
                raise DataError(f"{file!r} of its stage is missing: extract it again")
        named += files or [os.path.join(absolute_path(path), MANIFEST_NAME)]
        sizes |= dict(zip(files, (file.bytes for file in manifest.files), strict=True))
    for found in list_files(named, suffixes, remote=True):
        if found.bytes != sizes.get(found.path, found.bytes):
            raise DataError(
                f"{found.path!r} has {found.bytes:,} bytes but the manifest of its stage says "
                f"{sizes[found.path]:,}: extract it again"
            )
        yield found


def stands_for_none(file: InputFile) -> bool:
    """Tell whether a file is the manifest of a stage without rows."""
    return os.path.basename(file.path) == MANIFEST_NAME


def footer_of_none(file: InputFile, columns: Collection[str] | None) -> Footer:
    """Return what the footer would say if a stage without rows had a file."""
    schema = StageManifest.load(file.path).schema
    fields = [field for field in schema if columns is None or field.name in columns]
    return Footer(pa.schema(fields), tuple(schema.names), ())
