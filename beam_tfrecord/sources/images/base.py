"""Base class of the image sources: it adds to each row of another source the image it names.

A directory of images, or a folder in it, may have a table of metadata, as Hugging Face's
``ImageFolder`` has it: ``metadata.csv``, ``metadata.jsonl`` or ``metadata.parquet`` with a row for
each image. The column ``file_name`` is its path, relative to the table. Columns such as
``x_file_name``, of further images of the row, are refused. The rules:
https://huggingface.co/docs/datasets/image_dataset#imagefolder
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.feature import with_labels
from beam_tfrecord.format.tally import GROUP_KEY, SPLIT_KEY, mark_content
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.decode import Transform
from beam_tfrecord.options.sources import PictureOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.sources.base import (
    UNIT_BYTES,
    Chunk,
    InputFile,
    Scan,
    Source,
    Unit,
    chosen_columns,
)
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.images.folders import BYTES, PACK_BYTES, Folders, Tree
from beam_tfrecord.sources.images.labels import Labels, classes_in, kind_of, label_field, read_as
from beam_tfrecord.sources.images.read import (
    CHECKS,
    ImageRows,
    ReadSettings,
    add_images,
    cut_by_bytes,
    image_fields,
    in_order,
)
from beam_tfrecord.storage import absolute_path, is_remote

PATH_COLUMN = "file_name"
_FURTHER = ("_file_name", "_file_names")


class ImageLocation(NamedTuple):
    """The location of an image that a row of a table names."""

    name: str | None
    path: str = ""
    fault: ImageError | None = None


def location_of(name: str | None, base: str, folder: str | None) -> ImageLocation:
    """Return the location of an image, which has to be below `base` if there is a `folder`."""
    if not name or "\0" in name:
        return ImageLocation(name, fault=ImageError("missing", "has no path"))
    if folder is None:
        return ImageLocation(name, os.path.join(base, name))
    inner = posixpath.normpath(name.replace("\\", "/"))
    if "://" in name or inner.startswith(("/", "../")) or inner in ("..", "."):
        fault = ImageError("bad-path", "is not a path below its directory: correct it")
        return ImageLocation(name, fault=fault)
    return ImageLocation(posixpath.join(folder, inner), os.path.join(base, inner))


def refuse_further_images(columns: Iterable[str]) -> None:
    """Raise `UsageError` for columns that name further images of a row."""
    for name in columns:
        if name.endswith(_FURTHER):
            raise UsageError(
                f"column {name!r} names further images, and one image of each row is read: pass "
                "--columns without it, or with it to store its text"
            )


def size_of(path: str) -> int:
    """Return the bytes of a local file; 0 if they are unknown."""
    try:
        return os.stat(path).st_size if path else 0
    except (OSError, ValueError):
        return 0


# An example has at most 2 GiB.
MAX_BYTES = 2**30
_LABEL_COLUMNS = frozenset({"label", "label_name"})


class RowsInference(NamedTuple):
    """The types of a unit, as inferred by the source of the rows, and its names of classes."""

    inference: Any
    classes: frozenset[str]


# Some rows, the location of the image of each, and the size of its file.
_Task = tuple[Batch, list[ImageLocation], list[int]]


@dataclasses.dataclass(frozen=True)
class ImageSource(PictureOptions, FileSource):
    """Images, wherever their names come from: a column of a source of rows has their paths."""

    # Decoding takes long for the size of images, so with large tasks one worker would be busy
    # with the last task while the others are idle.
    task_bytes: ClassVar[int] = PACK_BYTES

    @property
    def runs_python(self) -> bool:  # type: ignore[override]
        """Whether images are decoded: Pillow holds Python's lock for half of the time."""
        return self.check == "decode" or not self.reading(is_remote=False).transform.is_none

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.check not in CHECKS:
            raise UsageError(f"check {self.check!r} is not known: use {', '.join(CHECKS)}")
        if not 1 <= self.max_bytes <= MAX_BYTES:
            raise UsageError(f"max_bytes {self.max_bytes} is not from 1 to {MAX_BYTES}")
        Transform(self.resize, self.format, self.quality, self.orient)

    def reading(self, *, is_remote: bool) -> ReadSettings:
        """Return the settings of reading images from local or remote filesystems."""
        transform = Transform(self.resize, self.format, self.quality, self.orient)
        return ReadSettings(
            check=self.check,
            transform=transform,
            max_pixels=self.max_pixels,
            max_bytes=self.max_bytes,
            needs_sha256=self.columns is None or "sha256" in self.columns,
            is_remote=is_remote,
        )

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        sent, files = super().to_send()
        for name in ("base", "labels"):
            if isinstance(path := getattr(self, name, None), str | os.PathLike):
                object.__setattr__(sent, name, absolute_path(path))
        return sent, files

    @property
    @abc.abstractmethod
    def row_source(self) -> Source:
        """The source of the rows."""

    @property
    @abc.abstractmethod
    def path_name(self) -> str:
        """The column of the paths of images."""

    @property
    def class_column(self) -> str:
        """The column of the classes; empty means that there are none."""
        return ""

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes, as the user gives them; None means all that occur."""
        return None

    @property
    def beside(self) -> Tree | None:
        """The directories of the images, if the rows are metadata beside them."""
        return None

    @property
    def has_splits(self) -> bool:
        """Whether the first folder of an image names its split."""
        return False

    @property
    def _needs_labels(self) -> bool:
        wanted = self.columns is None or not _LABEL_COLUMNS.isdisjoint(self.columns)
        return wanted and bool(self.class_column)

    @property
    def _are_folders(self) -> bool:
        return isinstance(self.row_source, Folders)

    @property
    def _made(self) -> frozenset[str]:
        """Names of the columns that are made from the images, the paths and the classes."""
        fields = image_fields(resizes=self.resize is not None)
        splits = {"split"} if self.has_splits else set()
        return frozenset({"image", "path", "sha256", *_LABEL_COLUMNS, *splits, *fields})

    def files(self) -> Iterator[InputFile]:
        wanted = self.columns or ("label", "label_name")
        names = self.class_names
        if names is not None and "label_name" in wanted and "label" not in wanted:
            raise UsageError("--labels numbers the classes: add label to --columns")
        if self._needs_labels and self.path_name == self.class_column:
            raise UsageError(
                f"column {self.class_column!r} cannot hold both paths and classes: "
                "correct --path-column or --label-column"
            )
        files = self.row_source.files()
        if self._are_folders:
            return files
        return (dataclasses.replace(file, digest="\n".join(names or ())) for file in files)

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        return self.row_source.chunks(file)

    def scan(self, chunk: Chunk) -> Scan:
        return self.row_source.scan(chunk)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        units = self.row_source.units(scans)
        if self._are_folders:
            return units
        return [dataclasses.replace(unit, encoded_bytes=UNIT_BYTES) for unit in units]

    def infer(self, of: Any) -> RowsInference:
        if isinstance(of, Scan):
            pack: Any = of.chunk.file
            return RowsInference(None, frozenset(pack.classes))
        # A second look at the footer of a file is less than a stored plan with it for every unit.
        chunk = Chunk(of.file, 0, 0, of.file.bytes)
        scans = self.row_source.infers_from_scans
        inference = self.row_source.infer(self.row_source.scan(chunk) if scans else of)
        return RowsInference(inference, self._classes_in(of))

    def _classes_in(self, unit: Unit) -> frozenset[str]:
        if self.class_names is not None or not self._needs_labels:
            return frozenset()
        # Read as text, because a piece of a file may have only numbers, and the next also names.
        only = pa.schema([(self.class_column, pa.string())])
        try:
            return classes_in(batch.data.column(0) for batch in self.row_source.read(unit, only))
        except (DataError, SchemaConflict):  # there is no such column, or it is not text
            return frozenset()

    def merge(self, inferences: Iterable[RowsInference]) -> pa.Schema:
        pieces = list(inferences)
        schema = self.row_source.merge([piece.inference for piece in pieces])
        self._check_columns(schema)
        special = {self.path_name, self.class_column}
        fields = [field for field in schema if field.name not in special]
        if self.beside is not None and self.columns is None:
            refuse_further_images(field.name for field in fields)
        if not self._needs_labels or self.class_column not in schema.names:
            return self._schema_of(further=fields)
        kind = read_as(schema.field(self.class_column))
        classes = self.class_names
        if classes is None and kind == pa.string():
            classes = tuple(sorted(set().union(*(piece.classes for piece in pieces))))
        label = with_labels(label_field(kind), classes or ())
        return self._schema_of(label, has_names=classes is not None, further=fields)

    def _schema_of(
        self,
        label: pa.Field | None = None,
        *,
        has_names: bool = False,
        further: Sequence[pa.Field] = (),
    ) -> pa.Schema:
        """Return the columns of images and of their rows."""
        split = pa.field("split", pa.string(), metadata={SPLIT_KEY: b""})
        fields = {
            "image": pa.field("image", pa.binary(), metadata={GROUP_KEY: b""}),
            **({"label": label} if label else {}),
            **({"label_name": pa.field("label_name", pa.string())} if has_names else {}),
            **({"split": split} if self.has_splits else {}),
            **{
                name: pa.field(name, kind)
                for name, kind in image_fields(resizes=self.resize is not None).items()
            },
            "path": pa.field("path", pa.string()),
            "sha256": mark_content(pa.field("sha256", pa.string()), label="label"),
        }
        for field in further:
            if field.name in fields and (self.columns is None or field.name in self.columns):
                raise UsageError(
                    f"column {field.name!r} of the table has the name of one that is made from "
                    "the images: rename it in the table, or pass --columns without it"
                )
            fields.setdefault(field.name, field)
        return chosen_columns(fields, self.columns, fields)

    def _check_columns(self, schema: pa.Schema) -> None:
        if not schema.names:
            raise UsageError("the tables are empty: give them a header that names their columns")
        named = {"--path-column": self.path_name}
        # With the default options, a table need not have a column of classes.
        if (self.class_column, self.class_names, self.columns) != ("label", None, None):
            named |= {"--label-column": self.class_column} if self._needs_labels else {}
        for option, name in named.items():
            if name not in schema.names:
                raise UsageError(not_found(name, sorted(schema.names), of=option))

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        return self.row_source.notes(files)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        base = self.base or os.path.dirname(unit.file.path)
        if self._are_folders:
            base = unit.file.path
        how = self.reading(is_remote=is_remote(base))
        # The size of a remote file is unknown if it is not listed: then a batch has only one file,
        # and many batches are read at a time.
        is_unknown = how.is_remote and not self._are_folders
        most_files, threads = how.limits
        most = 1 if is_unknown else min(batch_rows, most_files)
        batches = self.row_source.read(unit, self._schema_of_rows(schema), batch_rows=most)
        location = functools.partial(location_of, base=base, folder=self._folder_of(unit.file))
        add = functools.partial(self._batch, unit, schema, how)
        return in_order(add, self._tasks(batches, location, most), threads=threads)

    def _folder_of(self, file: InputFile) -> str | None:
        """Return the path of the directory of metadata, relative to the directory of images."""
        if self.beside is None:
            return None
        return os.path.dirname(file.path.removeprefix(os.path.join(self.beside.root, "")))

    def _schema_of_rows(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns to read from the source of the rows."""
        read = [field for field in schema if field.name not in self._made]
        read.append(pa.field(self.path_name, pa.string()))
        if not _LABEL_COLUMNS.isdisjoint(schema.names):
            kind = kind_of(schema.field("label")) if "label" in schema.names else None
            read.append(pa.field(self.class_column, kind or pa.string()))
        return pa.schema(read)

    def _tasks(
        self, batches: Iterable[Batch], location: Callable[[str | None], ImageLocation], most: int
    ) -> Iterator[_Task]:
        width, height = Transform(self.resize).target(1, 1)  # of a square image
        for batch in batches:
            locations = list(map(location, batch.data.column(self.path_name).to_pylist()))
            if self._are_folders:
                sizes = batch.data.column(BYTES).to_pylist()
            else:
                sizes = [size_of(one.path) for one in locations]
            held = [max(size, 3 * width * height) for size in sizes]
            for start, stop in cut_by_bytes(held, most):
                yield batch.slice(start, stop), locations[start:stop], sizes[start:stop]

    def _batch(self, unit: Unit, schema: pa.Schema, how: ReadSettings, task: _Task) -> Batch:
        batch, locations, sizes = task
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        names = [
            one.name or batch.origin.address_of(number)
            for one, number in zip(locations, numbers, strict=True)
        ]
        labels = Labels.of(batch.data, self.class_column, schema)
        faults = {at: one.fault for at, one in enumerate(locations) if one.fault is not None}
        columns = {"path": pa.array(names, pa.string())}
        if labels:
            columns |= labels.columns()
            unclassed = "lies in no class folder: move it, or pass --layout flat"
            faults = labels.faults(unclassed if self._are_folders else "has no class") | faults
        if self.has_splits:
            splits = [name.partition("/")[0] if "/" in name else None for name in names]
            columns["split"] = pa.array(splits, pa.string())
        read = dict(zip(batch.data.schema.names, batch.data.columns, strict=True))
        data = batch.replace(data=pa.RecordBatch.from_pydict(read | columns))
        paths = [one.path for one in locations]
        addresses = [(unit.name, number) for number in numbers]
        if self._are_folders:
            addresses = [(name, 0) for name in names]
        rows = ImageRows(data, paths, sizes, faults, addresses)
        return add_images(self._described(rows, schema), schema, how)

    def _described(self, rows: ImageRows, schema: pa.Schema) -> ImageRows:
        """Return rows with what sources of further kinds know of their images."""
        return rows
