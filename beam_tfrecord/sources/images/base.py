"""The base of the sources of images: their options, and the columns that images are read as."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.duplicate_count import mark_content
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import with_labels
from beam_tfrecord.images.decode import Transform
from beam_tfrecord.options.sources import PictureOptions
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit, chosen_columns
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.images.labels import Inferred
from beam_tfrecord.sources.images.listing import PACK_BYTES
from beam_tfrecord.sources.images.read import CHECKS, Reading, image_fields
from beam_tfrecord.storage import absolute_path

# An example has at most 2 GiB.
MAX_BYTES = 2**30
_ENOUGH_GROUPS = 24


@dataclasses.dataclass(frozen=True)
class ImageSource(PictureOptions, FileSource):
    """Images, wherever their names come from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.check not in CHECKS:
            raise UsageError(f"check {self.check!r} is not known: use {', '.join(CHECKS)}")
        if not 1 <= self.max_bytes <= MAX_BYTES:
            raise UsageError(f"max_bytes {self.max_bytes} is not from 1 to {MAX_BYTES}")
        Transform(self.resize, self.format, self.quality, self.orient)

    def sized(self, total_bytes: int) -> Source:
        sized = super().sized(total_bytes)
        # Decoding takes long for the size of images, so with large groups one worker would be
        # busy with the last group while the others are idle.
        least = min(max(PACK_BYTES, total_bytes // _ENOUGH_GROUPS), Source.group_bytes)
        object.__setattr__(sized, "group_bytes", least)
        return sized

    @property
    def default_group(self) -> tuple[str, ...]:
        columns = ("sha256",) if self.columns is None else self.columns
        return next(((name,) for name in ("sha256", "image") if name in columns), ())

    def reading(self, *, is_remote: bool) -> Reading:
        """Return the settings of reading images from local or remote filesystems."""
        transform = Transform(self.resize, self.format, self.quality, self.orient)
        return Reading(
            check=self.check,
            transform=transform,
            max_pixels=self.max_pixels,
            max_bytes=self.max_bytes,
            needs_sha256=self.columns is None or "sha256" in self.columns,
            is_remote=is_remote,
        )

    @property
    @abc.abstractmethod
    def reader(self) -> Source:
        """The source that lists and reads the images: of folders, or of rows that name them."""

    def files(self) -> Iterator[InputFile]:
        return self.reader.files()

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        return self.reader.chunks(file)

    def scan(self, chunk: Chunk) -> Scan:
        return self.reader.scan(chunk)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        return self.reader.units(scans)

    def infer(self, of: Any) -> Any:
        return self.reader.infer(of)

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        return self.reader.merge(inferences)

    def remarks(self, inferences: Sequence[Any], schema: pa.Schema) -> list[str]:
        return self.reader.remarks(inferences, schema)

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        return self.reader.notes(files)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        return self.reader.read(unit, schema, batch_rows=batch_rows)

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        sent, files = super().to_send()
        if self.base is not None:
            object.__setattr__(sent, "base", absolute_path(self.base))
        return sent, files

    def schema_of(self, found: Inferred) -> pa.Schema:
        """Return the columns of images and of their rows."""
        fields = {
            "image": pa.field("image", pa.binary()),
            **({"label": with_labels(found.label, found.classes)} if found.label else {}),
            **({"label_name": pa.field("label_name", pa.string())} if found.has_names else {}),
            **({"split": pa.field("split", pa.string())} if found.has_splits else {}),
            **{
                name: pa.field(name, kind)
                for name, kind in image_fields(resizes=self.resize is not None).items()
            },
            "path": pa.field("path", pa.string()),
            "sha256": mark_content(pa.field("sha256", pa.string()), label="label"),
        }
        for field in found.further:
            if field.name in fields and (self.columns is None or field.name in self.columns):
                raise UsageError(
                    f"column {field.name!r} of the table has the name of one that is made from "
                    "the images: rename it in the table, or pass --columns without it"
                )
            fields.setdefault(field.name, field)
        return chosen_columns(fields, self.columns, fields)
