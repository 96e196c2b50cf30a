"""Reads image files, split by bytes; rows come from directories or from tables of paths.

The bytes of a file are stored unchanged, unless the options resize, turn or re-encode images. A
row has the columns

* ``image``: the bytes; ``label``: number of the class; ``label_name``: name of the class;
  ``split``, if the first folders are splits;
* ``width``, ``height``, ``channels``, ``format``, ``orientation``: as in
  `beam_tfrecord.images.Header`;
* ``original_width``, ``original_height``, if images are resized: the size before resizing but
  after any rotation;
* ``path``: relative to the directory; ``sha256``: of the file, in hexadecimal;
* the further columns of a table.

A file that is missing, damaged or not an image becomes a reject with its path and the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.images.headers import SUFFIXES
from beam_tfrecord.options.sources import ImageOptions
from beam_tfrecord.sources.base import MOST_UNITS, InputFile, Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import as_paths, has_suffix, list_files
from beam_tfrecord.sources.images.base import PATH_COLUMN, ImageSource, RowsInference
from beam_tfrecord.sources.images.folders import (
    CLASS,
    LAYOUTS,
    PATH,
    Folders,
    Pack,
    Tree,
    find_tree,
)
from beam_tfrecord.sources.images.labels import classes_of_option
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.parquet import Parquet

# A small size, a few thousand paths, because little text names many bytes of images.
TABLE_CHUNK_BYTES = 2**17
_TableKind = type[Csv] | type[Json] | type[Parquet]
_KINDS: tuple[_TableKind, ...] = (Csv, Parquet, Json)
_SUFFIXES = tuple(itertools.chain(*(kind.suffixes for kind in _KINDS)))


@dataclasses.dataclass(frozen=True)
class Images(ImageOptions, ImageSource):
    """Images: JPEG, PNG, GIF, WebP, BMP and TIFF."""

    kind: ClassVar[str] = "images"
    file_type: ClassVar[type[InputFile]] = Pack
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None and not isinstance(self.labels, str | os.PathLike):
            object.__setattr__(self, "labels", tuple(self.labels))
        if self.layout not in (None, *LAYOUTS):
            raise UsageError(f"layout {self.layout!r} is not known: use {', '.join(LAYOUTS)}")

    # A listing already contains the classes, but those in a table are known only from its rows.
    @property
    def infers_from_scans(self) -> bool:  # type: ignore[override]
        """Whether the types come from the listing."""
        return not self.is_table

    # Packs need no scan, so any number of them is quick.
    @property
    def quick_scans(self) -> int:  # type: ignore[override]
        """Number of packs that the launcher scans."""
        return 0 if self.is_table else MOST_UNITS

    @property
    def is_table(self) -> bool:
        """Whether the paths of images come from tables."""
        return self._are_tables or self.path_column is not None or self.beside is not None

    @functools.cached_property
    def _are_tables(self) -> bool:
        return all(_kind_of_table(path) for path in as_paths(self.paths))

    @functools.cached_property
    def beside(self) -> Tree | None:
        """The directories of images, if they have tables of metadata that decide; else None."""
        if self.layout is not None or self._are_tables:
            return None
        return self._tree if self._tree.metadata else None

    @functools.cached_property
    def _tree(self) -> Tree:
        return find_tree(as_paths(self.paths), self.layout or "auto")

    @property
    def row_source(self) -> Source:
        paths = as_paths(self.paths)
        if not self.is_table:
            return Folders(self._tree, paths, self.labels)
        if self.path_name in self.typed:
            raise UsageError(
                f"column {self.path_name!r} holds paths, which are text: leave it out of --types"
            )
        return self._rows_of(paths if self.beside is None else self.beside.metadata)

    @property
    def path_name(self) -> str:
        if not self.is_table:
            return PATH
        return self.path_column or ("path" if self.beside is None else PATH_COLUMN)

    @property
    def class_column(self) -> str:
        if self.is_table:
            return self.label_column
        return CLASS if self._tree.has_labels else ""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        return classes_of_option(self.labels)

    @property
    def has_splits(self) -> bool:
        tree = self.beside if self.is_table else self._tree
        return tree is not None and tree.has_splits

    def _rows_of(self, tables: Sequence[str]) -> Source:
        """Return the source of the rows of tables."""
        if self._kind_of_rows is Parquet:
            if self.types:
                raise UsageError("--types is not an option of tables of Parquet: leave it out")
            return Parquet(tables, union=self.union)
        if self._kind_of_rows is Json:
            return Json(tables, types=self.typed, chunk_bytes=TABLE_CHUNK_BYTES)
        return Csv(tables, union=self.union, types=self.typed, chunk_bytes=TABLE_CHUNK_BYTES)

    @functools.cached_property
    def _kind_of_rows(self) -> _TableKind:
        paths: Sequence[str] = as_paths(self.paths)
        if self.beside is not None:
            paths = self.beside.metadata
        elif not self._are_tables:
            paths = [file.name for file in list_files(paths, _SUFFIXES)]
        kinds = {_kind_of_table(path): path for path in paths}
        kind, *others = kinds
        if kind is None or others:
            named = ", ".join(map(repr, sorted(kinds.values())))
            raise UsageError(
                f"cannot read {named} as tables: name or convert them to one kind, "
                f"{', '.join(one.kind for one in _KINDS)}"
            )
        return kind

    @property
    def is_stable(self) -> bool:
        return not self.is_table

    def default_split_column(self) -> str | None:
        return "split" if self.has_splits else None

    def files(self) -> Iterator[InputFile]:
        if self.types and not self.is_table:
            raise UsageError("--types is for tables of images, and no table is given: leave it out")
        return super().files()

    def remarks(self, inferences: Sequence[RowsInference], schema: pa.Schema) -> list[str]:
        classes = set().union(*(one.classes for one in inferences))
        is_guessed = self.layout is None and self.labels is None
        if self.is_table or len(classes) != 1 or not is_guessed:
            return []
        (name,) = classes
        return [
            f"all images have the class {name!r}, the name of the only folder: if the folders in "
            "it are the classes, name that folder as the input"
        ]


def _kind_of_table(path: str) -> _TableKind | None:
    return next((kind for kind in _KINDS if has_suffix(path, kind.suffixes)), None)
