"""The images source: a picture a row, from directories or from a table of paths.

The bytes of a file are stored untouched, unless they are to be resized, turned or re-encoded. A
row has the columns

* ``image``: the bytes; ``label``: number of the class; ``label_name``: its name; ``split``, where
  the first folders are splits;
* ``width``, ``height``, ``channels``, ``format``, ``orientation``: as in
  `beam_tfrecord.images.Header`;
* ``original_width``, ``original_height``, where pictures are resized: the size before, turned as
  the stored picture is;
* ``path``: relative to the directory; ``sha256``: of the file, in hexadecimal;
* from a table: its further columns.

A picture that is missing, damaged or none at all is a reject with its path and the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.copies import mark_content
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.labels import with_labels
from beam_tfrecord.images.decode import check_pillow, make_transform
from beam_tfrecord.images.formats import MAX_PIXELS
from beam_tfrecord.sources.base import (
    MOST_UNITS,
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    wanted_columns,
)
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.images import folders, table
from beam_tfrecord.sources.images.listing import LAYOUTS, PACK_BYTES, Pack, Skipped
from beam_tfrecord.sources.images.read import (
    BATCH_FILES,
    CHECKS,
    REMOTE_BATCH_FILES,
    REMOTE_THREADS,
    THREADS,
    Reading,
    picture_fields,
    read_local,
    read_remote,
)
from beam_tfrecord.storage import absolute_path, is_remote

# An example holds 2 GiB at most.
MAX_BYTES = 2**30
_ENOUGH_GROUPS = 24


@dataclasses.dataclass(frozen=True)
class Images(Source):
    """Pictures: JPEG, PNG, GIF, WebP, BMP and TIFF.

    Attributes:
        paths: Directories, globs and files; or tables (CSV, Parquet) of paths.
        columns: Names of the columns to read, in order; None means all.
        layout: ``class``: the first folder is the class. ``split``: it is the split, and the next
            one, if there is any, the class. ``flat``: folders mean nothing. None: as the folders
            are named.
        labels: Names of the classes in order, or a file with one a line; None: all names, sorted.
        base: Directory that the paths of a table are relative to; None: that of the table.
        path_column: Column of tables that holds the paths, by default ``path``; where it is named,
            the input are tables, as it is where their suffixes say so.
        label_column: Column of a table that holds the classes, as names or as numbers.
        union: Let a table lack columns that others have: they are null there.
        check: ``header``: format, size and end marks. ``decode``: all pixels. ``none``: nothing.
        resize: New length of the shorter side, or ``HEIGHTxWIDTH``; None: as it is.
        format: ``jpeg``, ``png`` or ``webp`` to store all pictures so; None: as they are.
        quality: Of what is re-encoded as JPEG or WebP, from 1 to 100.
        orient: Turn the pixels as EXIF says.
        max_pixels: Width times height that is let through.
        max_bytes: Size of a file that is let through.
    """

    kind: ClassVar[str] = "images"

    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
    _: dataclasses.KW_ONLY
    columns: Sequence[str] | None = None
    layout: str | None = None
    labels: str | os.PathLike[str] | Sequence[str] | None = None
    base: str | None = None
    path_column: str | None = None
    label_column: str = "label"
    union: bool = False
    check: str = "header"
    resize: int | str | tuple[int, int] | None = None
    format: str | None = None
    quality: int = 90
    orient: bool = False
    max_pixels: int = MAX_PIXELS
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        object.__setattr__(self, "columns", wanted_columns(self.columns))
        if self.labels is not None and not isinstance(self.labels, str | os.PathLike):
            object.__setattr__(self, "labels", tuple(self.labels))
        if self.layout not in (None, *LAYOUTS):
            raise UsageError(f"layout {self.layout!r} is not known: use {', '.join(LAYOUTS)}")
        if self.check not in CHECKS:
            raise UsageError(f"check {self.check!r} is not known: use {', '.join(CHECKS)}")
        if not 1 <= self.max_bytes <= MAX_BYTES:
            raise UsageError(f"max_bytes {self.max_bytes} is not from 1 to {MAX_BYTES}")
        make_transform(self.resize, self.format, self.quality, self.orient)
        # Folders are known when they are listed; the classes in a table only when it is read.
        object.__setattr__(self, "infers_from_scans", not self.is_table)
        # The listing has told all of a pack.
        object.__setattr__(self, "quick_scans", 0 if self.is_table else MOST_UNITS)

    def sized(self, total_bytes: int) -> Source:
        """Return this source, set to be read in groups of packs that are not too few."""
        sized = super().sized(total_bytes)
        # To decode a picture takes long for its bytes: no worker is to be left with the last group.
        least = min(max(PACK_BYTES, total_bytes // _ENOUGH_GROUPS), Source.group_bytes)
        object.__setattr__(sized, "group_bytes", least)
        return sized

    @property
    def is_table(self) -> bool:
        """True where the paths come from tables."""
        return self.path_column is not None or all(
            table.is_table(path) for path in as_paths(self.paths)
        )

    @property
    def default_group(self) -> tuple[str, ...]:
        """Columns that are equal where the pictures are: copies must not be in two splits."""
        columns = ("sha256",) if self.columns is None else self.columns
        return next(((name,) for name in ("sha256", "image") if name in columns), ())

    @property
    def is_stable(self) -> bool:
        """False for a table: it says nothing of the files that it names."""
        return not self.is_table

    @property
    def holds_files(self) -> bool:
        """True for folders of this machine whose pictures are stored as they are."""
        if self.is_table or (self.columns is not None and "image" not in self.columns):
            return False
        are_remote = any(is_remote(path) for path in as_paths(self.paths))
        return self.reading(is_remote=are_remote).keeps_files

    def held_files(self, file: InputFile) -> list[str]:
        """Return the paths of the pictures of a pack."""
        if not isinstance(file, Pack):
            return []
        return [os.path.join(file.path, name) for name, _ in file.files()]

    def default_split_column(self) -> str | None:
        """Return ``split`` where the first folders are splits.

        Raises:
            UsageError: They are, but that column is not among those to read.
        """
        if self.is_table or not folders.tree_of(self).has_splits:
            return None
        if self.columns is not None and "split" not in self.columns:
            raise UsageError(
                "the folders name splits: add split to --columns, or pass --layout flat"
            )
        return "split"

    def reading(self, *, is_remote: bool) -> Reading:
        """Return how pictures are read, here or from a remote filesystem.

        Raises:
            UsageError: That needs Pillow, which is not there.
        """
        transform = make_transform(self.resize, self.format, self.quality, self.orient)
        if self.check == "decode" or not transform.is_none:
            check_pillow()
        return Reading(
            check=self.check,
            transform=transform,
            max_pixels=self.max_pixels,
            max_bytes=self.max_bytes,
            needs_sha256=self.columns is None or "sha256" in self.columns,
            read=read_remote if is_remote else functools.partial(read_local, most=self.max_bytes),
            batch_files=REMOTE_BATCH_FILES if is_remote else BATCH_FILES,
            threads=REMOTE_THREADS if is_remote else THREADS,
            is_remote=is_remote,
        )

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        """Return this source with paths that are the same in any directory."""
        sent, files = super().to_send()
        for name in ("base", "labels"):
            if isinstance(path := getattr(self, name), str | os.PathLike):
                object.__setattr__(sent, name, absolute_path(path))
        return sent, files

    def files(self) -> Iterator[InputFile]:
        """Yield packs of pictures in order of their paths, or the tables.

        Raises:
            UsageError: There is nothing, or a directory cannot be read.
        """
        self.reading(is_remote=False)
        return table.files(self) if self.is_table else folders.files(self)

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        """Yield what to look at before the file is cut: of a pack, nothing."""
        if self.is_table:
            return table.table_of(self).chunks(file)
        return iter([Chunk(file, 0, 0, file.bytes)])

    def scan(self, chunk: Chunk) -> Scan:
        """Look at a piece of a table; the listing has told all of a pack."""
        return table.table_of(self).scan(chunk) if self.is_table else Scan(chunk, None)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Return a pack as one unit, or cut a table."""
        return table.units(self, scans) if self.is_table else folders.units(scans)

    def infer(self, of: Any) -> Any:
        """Return the classes that a pack or a unit tells of, and the types of a table's columns."""
        return table.infer(self, of) if self.is_table else folders.infer(of)

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        """Return the schema of the rows; the column ``label`` carries the names of the classes.

        Raises:
            UsageError: A column that is asked for is nowhere.
        """
        found = table.merge(self, inferences) if self.is_table else folders.merge(inferences)
        fields = {
            "image": pa.field("image", pa.binary()),
            **({"label": with_labels(found.label, found.classes)} if found.label else {}),
            **({"label_name": pa.field("label_name", pa.string())} if found.has_names else {}),
            **({"split": pa.field("split", pa.string())} if found.has_splits else {}),
            **{
                name: pa.field(name, kind)
                for name, kind in picture_fields(resizes=self.resize is not None).items()
            },
            "path": pa.field("path", pa.string()),
            "sha256": mark_content(pa.field("sha256", pa.string()), label="label"),
        }
        for field in found.further:
            if field.name in fields and (self.columns is None or field.name in self.columns):
                raise UsageError(
                    f"column {field.name!r} of the table has the name of one that is made from "
                    "the pictures: rename it in the table"
                )
            fields.setdefault(field.name, field)
        if self.columns is None:
            return pa.schema(list(fields.values()))
        for name in self.columns:
            if name not in fields:
                raise UsageError(
                    f"column {name!r} is not in the input: "
                    f"correct --columns to some of {', '.join(sorted(fields))}"
                )
        return pa.schema([fields[name] for name in self.columns])

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`.

        Raises:
            DataError: A table is damaged.
        """
        if self.is_table:
            return table.read(self, unit, schema, batch_rows=batch_rows)
        return folders.read(self, unit, schema, batch_rows=batch_rows)

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        """Tell how many files were passed over."""
        skipped = sum((f.skipped for f in files if isinstance(f, Pack)), Skipped())
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (skipped.other, "without the suffix of a picture"),
                (skipped.hidden, "hidden or of the operating system"),
            )
            if count
        ]
        total = skipped.hidden + skipped.other
        were = "file was" if total == 1 else "files were"
        return [f"{total:,} {were} skipped: {' and '.join(parts)}"] if parts else []
