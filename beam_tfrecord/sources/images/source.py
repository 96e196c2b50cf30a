"""The images source: it reads one image for each row, from directories or from a table of paths.

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
import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import LABELS_FILE, labels_of
from beam_tfrecord.images import Fault
from beam_tfrecord.images.formats import SUFFIXES
from beam_tfrecord.options.sources import ImageOptions
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import (
    MOST_UNITS,
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
)
from beam_tfrecord.sources.files import as_paths, counts_text
from beam_tfrecord.sources.images.base import ImageSource
from beam_tfrecord.sources.images.labels import Inferred, classes_of_option, is_line
from beam_tfrecord.sources.images.listing import (
    LAYOUTS,
    Pack,
    Tree,
    find_tree,
    is_utf8,
    list_tree,
    pack_files,
)
from beam_tfrecord.sources.images.metadata import PATH_COLUMN
from beam_tfrecord.sources.images.read import (
    Reading,
    Rows,
    add_images,
    cut_by_bytes,
    in_order,
)
from beam_tfrecord.sources.images.table import Table, is_table
from beam_tfrecord.storage import absolute_path, is_remote

# Estimated bytes that the description of an image adds to a record.
_RECORD_EXTRA_BYTES = 300


@dataclasses.dataclass(frozen=True)
class Images(ImageOptions, ImageSource):
    """Images: JPEG, PNG, GIF, WebP, BMP and TIFF.

    Attributes, besides those of all sources of images:
        paths: Directories, globs and files; or tables (CSV, Parquet, JSON) of paths. A
            directory may have tables of metadata, such as ``metadata.jsonl``.
        layout: Meaning of the folders. ``class``: the first folder is the class. ``split``: the
            first folder is the split, and the second, if there is one, the class. ``flat``: folders
            have no meaning. None means that tables of metadata decide, or else the names of the
            folders.
        labels: Names of the classes in order, or a file with one name on each line; None means all
            names that occur, sorted.
        path_column: Column of tables that contains the paths; None means ``path``, or
            ``file_name`` of metadata. If it is set, the input is read as tables; otherwise the
            suffixes and the metadata decide.
        label_column: Column of a table that contains the classes, as names or as numbers.
        union: Whether tables may lack columns of other tables, which are null there.
        types: Types of columns of tables of CSV or JSON, as Arrow types or their names; others are
            inferred.
    """

    kind: ClassVar[str] = "images"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is not None and not isinstance(self.labels, str | os.PathLike):
            object.__setattr__(self, "labels", tuple(self.labels))
        if self.layout not in (None, *LAYOUTS):
            raise UsageError(f"layout {self.layout!r} is not known: use {', '.join(LAYOUTS)}")

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        sent, files = super().to_send()
        if isinstance(self.labels, str | os.PathLike):
            object.__setattr__(sent, "labels", absolute_path(self.labels))
        return sent, files

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
        if all(map(is_table, as_paths(self.paths))):
            return True
        return self.path_column is not None or self._metadata is not None

    @functools.cached_property
    def _metadata(self) -> Tree | None:
        """The directories of images, if they have tables of metadata that decide; else None."""
        paths = as_paths(self.paths)
        if self.layout is not None or not all(map(_is_directory, paths)):
            return None
        return self._tree if self._tree.metadata else None

    @functools.cached_property
    def _tree(self) -> Tree:
        return find_tree(as_paths(self.paths), self.layout or "auto")

    @property
    def _table(self) -> Table | None:
        if not self.is_table:
            return None
        beside = None if all(map(is_table, as_paths(self.paths))) else self._metadata
        default = "path" if beside is None else PATH_COLUMN
        return Table(
            as_paths(self.paths) if beside is None else beside.metadata,
            columns=self.columns,
            labels=self.labels,
            base=self.base,
            path_column=self.path_column or default,
            label_column=self.label_column,
            union=self.union,
            resizes=self.resize is not None,
            beside=beside,
            types=self.typed,
        )

    @property
    def is_stable(self) -> bool:
        return not self.is_table

    def options_for(self, files: Iterable[InputFile]) -> dict[str, Any]:
        options = super().options_for(files)
        # Older versions have no such option, and their fingerprints stay valid.
        return options if self.types else {k: v for k, v in options.items() if k != "types"}

    def default_split_column(self) -> str | None:
        tree = self._metadata if self.is_table else self._tree
        if tree is None or not tree.has_splits:
            return None
        if self.columns is not None and "split" not in self.columns:
            raise UsageError(
                "the folders name splits: add split to --columns, or pass --layout flat"
            )
        return "split"

    def files(self) -> Iterator[InputFile]:
        self.reading(is_remote=False)
        if table := self._table:
            return table.files()
        if self.types:
            raise UsageError("--types is for tables of images, and no table is given: leave it out")
        return self._packs()

    def _packs(self) -> Iterator[Pack]:
        tree = self._tree
        classes = classes_of_option(self.labels)
        if classes is not None and not tree.has_labels:
            raise UsageError("labels are given, but no folder names a class: leave out --labels")
        if classes is None:
            classes = tree.classes
            if broken := [name for name in classes if not is_line(name)]:
                raise DataError(
                    f"class {broken[0]!r} cannot be one line of {LABELS_FILE}: rename the folder"
                )
        has_any = False
        for pack in pack_files(list_tree(tree), root=tree.root, classes=classes):
            has_any = True
            yield dataclasses.replace(pack, has_splits=tree.has_splits, has_labels=tree.has_labels)
        if not has_any:
            named = " ".join(map(repr, as_paths(self.paths)))
            raise UsageError(f"no image in {named}: check the path, or pass --from")

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        return table.chunks(file) if (table := self._table) else super().chunks(file)

    def scan(self, chunk: Chunk) -> Scan:
        return table.scan(chunk) if (table := self._table) else Scan(chunk, None)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        if table := self._table:
            return table.units(scans)
        return [_unit(_pack(scan.chunk.file), index) for index, scan in enumerate(scans)]

    def infer(self, of: Any) -> Any:
        if table := self._table:
            return table.infer(of)
        pack = _pack(of.chunk.file)
        label = pa.field("label", pa.int64()) if pack.has_labels else None
        return Inferred(label, pack.classes, pack.has_labels, pack.has_splits)

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        if table := self._table:
            found = table.merge(inferences)
        else:
            # Only the first pack has the names of the classes, and it has all of them.
            found = max(inferences, key=lambda one: len(one.classes))
        return self.schema_of(found)

    def remarks(self, inferences: Sequence[Any], schema: pa.Schema) -> list[str]:
        classes = set().union(*(one.classes for one in inferences)) if not self.is_table else ()
        if len(classes) != 1 or self.layout is not None or self.labels is not None:
            return []
        (name,) = classes
        return [
            f"all images have the class {name!r}, the name of the only folder: if the folders in "
            "it are the classes, name that folder as the input"
        ]

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        if table := self._table:
            return table.read(unit, schema, batch_rows=batch_rows, reading=self.reading)
        names, sizes = _pack(unit.file).files()
        how = self.reading(is_remote=is_remote(unit.file.path))
        spans = cut_by_bytes(sizes, min(batch_rows, how.batch_files))
        read = functools.partial(_batch, unit, schema, how, names, sizes)
        return in_order(read, spans, threads=how.threads)

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        if table := self._table:
            return table.notes()
        if not (counts := self.skipped(files)):
            return []
        return [
            f"skipped {counted(sum(counts.values()), 'file')}: {counts_text(counts)}: to read "
            f"other images, convert them to one of {', '.join(SUFFIXES)}"
        ]

    def skipped(self, files: Iterable[InputFile]) -> dict[str, int]:
        """Return how many files the listing skipped, by suffix."""
        counts = Counter[str]()
        for file in files:
            counts.update(dict(file.skipped) if isinstance(file, Pack) else {})
        return dict(sorted(counts.items()))


def _is_directory(path: str) -> bool:
    if is_remote(path):
        return not glob.has_magic(path)
    return os.path.isdir(path.removeprefix("file://"))


def _pack(file: InputFile) -> Pack:
    assert isinstance(file, Pack)
    return file


def _unit(pack: Pack, index: int) -> Unit:
    return Unit(
        name=pack.name,
        file=pack,
        index=index,
        start=0,
        stop=pack.inside,
        rows=pack.inside,
        input_bytes=pack.bytes,
        encoded_bytes=pack.bytes + _RECORD_EXTRA_BYTES * pack.inside,
    )


def _batch(
    unit: Unit,
    schema: pa.Schema,
    how: Reading,
    all_names: list[str],
    all_sizes: list[int],
    span: tuple[int, int],
) -> Batch:
    """Read the images of a pack with the indices from `span[0]` to before `span[1]`."""
    pack = _pack(unit.file)
    files = slice(*span)
    stored_names = names = all_names[files]
    folders = [_class_and_split(pack, name) for name in names]
    labels = [label for label, _ in folders]
    numbers: dict[str | None, int] | None = None
    if "label" in schema.names:
        classes = labels_of(schema.field("label"))
        numbers = {name: number for number, name in enumerate(classes)}
    faults: dict[int, Fault] = {}
    for index, (name, label) in enumerate(zip(names, labels, strict=True)):
        if fault := _fault_of_name(pack, name, label, numbers):
            faults[index] = fault
    if faults:  # a name may not be UTF-8
        names = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    columns = {
        "path": pa.array(names, pa.string()),
        "split": pa.array([split for _, split in folders], pa.string()),
        "label_name": pa.array(labels, pa.string()),
    }
    if numbers is not None:
        columns["label"] = pa.array([numbers.get(label) for label in labels], pa.int64())

    origin = Origin(unit.name, unit.index, span[0])
    batch = Batch(pa.RecordBatch.from_pydict(columns), origin)
    base = os.path.join(pack.path, "")
    paths = [base + name for name in stored_names]
    addresses = [(name, 0) for name in names]
    return add_images(Rows(batch, paths, all_sizes[files], faults, addresses), schema, how)


def _class_and_split(pack: Pack, name: str) -> tuple[str | None, str | None]:
    """Return the class and the split that the folders of an image name."""
    folders = name.split("/")[:-1]
    split = folders.pop(0) if pack.has_splits and folders else None
    return (folders[0] if pack.has_labels and folders else None), split


def _fault_of_name(
    pack: Pack, name: str, label: str | None, numbers: dict[str | None, int] | None
) -> Fault | None:
    if not is_utf8(name):
        return Fault("bad-name", "has a name that is not utf-8: rename it")
    if pack.has_labels and label is None:
        return Fault("no-label", "lies in no class folder: move it, or pass --layout flat")
    if label is not None and numbers is not None and label not in numbers:
        return Fault("unknown-label", f"is of class {label!r}, which is not among the labels")
    return None
