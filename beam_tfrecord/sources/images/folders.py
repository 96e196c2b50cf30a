"""Reads the images below directories, whose folders may name classes and splits."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import LABELS_FILE, labels_of
from beam_tfrecord.images import Fault
from beam_tfrecord.images.formats import SUFFIXES
from beam_tfrecord.sizes import counted
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.files import counts_text
from beam_tfrecord.sources.images.base import ImageSource
from beam_tfrecord.sources.images.labels import Inferred, classes_of_option, is_line
from beam_tfrecord.sources.images.listing import Pack, Tree, list_tree, pack_files
from beam_tfrecord.sources.images.read import Reading, Rows, add_images, cut_by_bytes, in_order
from beam_tfrecord.storage import is_remote

# Estimated bytes that the description of an image adds to a record.
_RECORD_EXTRA_BYTES = 300


@dataclasses.dataclass(frozen=True)
class Folders(Source):
    """The images below directories.

    Attributes:
        images: The options of the images.
        tree: The directories.
        named: The directories as the user named them.
        labels: Names of the classes, or the file that has them; None means those of the folders.
        is_guessed: Whether the folders alone tell what they mean.
    """

    images: ImageSource
    tree: Tree
    named: Sequence[str]
    labels: str | os.PathLike[str] | Sequence[str] | None
    is_guessed: bool

    def files(self) -> Iterator[InputFile]:
        tree = self.tree
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
            named = " ".join(map(repr, self.named))
            raise UsageError(f"no image in {named}: check the path, or pass --from")

    def scan(self, chunk: Chunk) -> Scan:
        return Scan(chunk, None)

    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        packs = [scan.chunk.file for scan in scans]
        return [
            Unit(
                name=pack.name,
                file=pack,
                index=index,
                start=0,
                stop=pack.inside,
                rows=pack.inside,
                input_bytes=pack.bytes,
                encoded_bytes=pack.bytes + _RECORD_EXTRA_BYTES * pack.inside,
            )
            for index, pack in enumerate(packs)
        ]

    def infer(self, of: Scan) -> Inferred:
        pack: Any = of.chunk.file
        label = pa.field("label", pa.int64()) if pack.has_labels else None
        return Inferred(label, pack.classes, pack.has_labels, pack.has_splits)

    def merge(self, inferences: Iterable[Inferred]) -> pa.Schema:
        # Only the first pack has the names of the classes, and it has all of them.
        return self.images.schema_of(max(inferences, key=lambda one: len(one.classes)))

    def remarks(self, inferences: Sequence[Inferred], schema: pa.Schema) -> list[str]:
        classes = set().union(*(one.classes for one in inferences))
        if len(classes) != 1 or not self.is_guessed:
            return []
        (name,) = classes
        return [
            f"all images have the class {name!r}, the name of the only folder: if the folders in "
            "it are the classes, name that folder as the input"
        ]

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        if not (counts := skipped_by_suffix(files)):
            return []
        return [
            f"skipped {counted(sum(counts.values()), 'file')}: {counts_text(counts)}: to read "
            f"other images, convert them to one of {', '.join(SUFFIXES)}"
        ]

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        pack: Any = unit.file
        names, sizes = pack.files()
        how = self.images.reading(is_remote=is_remote(pack.path))

        def batch(span: tuple[int, int]) -> Batch:
            files = slice(*span)
            origin = Origin(unit.name, unit.index, span[0])
            return _batch(pack, schema, how, names[files], sizes[files], origin)

        spans = cut_by_bytes(sizes, min(batch_rows, how.batch_files))
        return in_order(batch, spans, threads=how.threads)


def skipped_by_suffix(files: Iterable[InputFile]) -> dict[str, int]:
    """Return how many files the listing of packs skipped, by suffix."""
    counts = Counter[str]()
    for file in files:
        counts.update(dict(file.skipped) if isinstance(file, Pack) else {})
    return dict(sorted(counts.items()))


def _batch(
    pack: Pack,
    schema: pa.Schema,
    how: Reading,
    names: Sequence[str],
    sizes: Sequence[int],
    origin: Origin,
) -> Batch:
    """Read some images of a pack."""
    folders = [_class_and_split(pack, name) for name in names]
    numbers: dict[str | None, int] | None = None
    if "label" in schema.names:
        classes = labels_of(schema.field("label"))
        numbers = {name: number for number, name in enumerate(classes)}
    faults: dict[int, Fault] = {}
    for index, (label, _) in enumerate(folders):
        if fault := _fault_of_class(pack, label, numbers):
            faults[index] = fault
    columns = {
        "path": pa.array(names, pa.string()),
        "split": pa.array([split for _, split in folders], pa.string()),
        "label_name": pa.array([label for label, _ in folders], pa.string()),
    }
    if numbers is not None:
        columns["label"] = pa.array([numbers.get(label) for label, _ in folders], pa.int64())
    batch = Batch(pa.RecordBatch.from_pydict(columns), origin)
    paths = [os.path.join(pack.path, name) for name in names]
    addresses = [(name, 0) for name in names]
    return add_images(Rows(batch, paths, sizes, faults, addresses), schema, how)


def _class_and_split(pack: Pack, name: str) -> tuple[str | None, str | None]:
    """Return the class and the split that the folders of an image name."""
    folders = name.split("/")[:-1]
    split = folders.pop(0) if pack.has_splits and folders else None
    return (folders[0] if pack.has_labels and folders else None), split


def _fault_of_class(
    pack: Pack, label: str | None, numbers: dict[str | None, int] | None
) -> Fault | None:
    if pack.has_labels and label is None:
        return Fault("no-label", "lies in no class folder: move it, or pass --layout flat")
    if label is not None and numbers is not None and label not in numbers:
        return Fault("unknown-label", f"is of class {label!r}, which is not among the labels")
    return None
