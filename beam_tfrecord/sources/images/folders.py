"""Pictures in folders: packs of a listing become units, and folders become classes and splits."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import Batch, FileColumn, Origin, Reject
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.labels import LABELS_FILE
from beam_tfrecord.images import Fault, refused_in
from beam_tfrecord.sources.base import Scan, Unit
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.images.labels import class_numbers, given_classes, is_line
from beam_tfrecord.sources.images.listing import (
    Pack,
    Tree,
    find_tree,
    is_utf8,
    list_tree,
    pack_files,
)
from beam_tfrecord.sources.images.read import Reading, cut_by_bytes, in_order, read_pictures, taken
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    from beam_tfrecord.sources.images.source import Images

# What the description of a picture adds to its bytes in a record, about.
RECORD_EXTRA_BYTES = 300
_SHOWN_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class Inferred:
    """What is known of the rows before they are read.

    Attributes:
        label: The column of labels; None where there are none.
        classes: Names of the classes in order.
        has_names: Rows have the name of their class, too.
        has_splits: Rows name their split.
        further: Columns beside those of the pictures.
    """

    label: pa.Field | None = None
    classes: tuple[str, ...] = ()
    has_names: bool = False
    has_splits: bool = False
    further: tuple[pa.Field, ...] = ()


def tree_of(source: Images) -> Tree:
    """Return what is to be listed."""
    return find_tree(as_paths(source.paths), source.layout or "auto")


def files(source: Images) -> Iterator[Pack]:
    """Yield packs in order of the paths in them.

    Raises:
        DataError: A folder has a name that cannot be that of a class.
        UsageError: There is no picture.
    """
    tree = tree_of(source)
    classes = given_classes(source.labels)
    if classes is not None and not tree.has_labels:
        raise UsageError("labels are given, but no folder names a class: leave out --labels")
    if classes is None:
        classes = _classes_of(tree)
    packs = pack_files(list_tree(tree), root=tree.root, classes=classes)
    has_any = False
    for pack in packs:
        has_any = True
        yield dataclasses.replace(pack, has_splits=tree.has_splits, has_labels=tree.has_labels)
    if not has_any:
        named = " ".join(repr(path) for path in as_paths(source.paths))
        raise UsageError(f"no picture in {named}: check the path, or pass --from")


def _classes_of(tree: Tree) -> tuple[str, ...]:
    classes = tree.classes()
    if broken := [name for name in classes if not is_line(name)]:
        raise DataError(
            f"class {broken[0]!r} cannot be one line of {LABELS_FILE}: rename the folder"
        )
    return classes


def units(scans: Sequence[Scan]) -> list[Unit]:
    """Return one unit a pack."""
    return [
        Unit(
            name=(pack := scan.chunk.file).name,
            file=pack,
            index=index,
            start=0,
            stop=pack.inside,
            rows=pack.inside,
            input_bytes=pack.bytes,
            encoded_bytes=pack.bytes + RECORD_EXTRA_BYTES * pack.inside,
        )
        for index, scan in enumerate(scans)
    ]


def infer(scan: Scan) -> Inferred:
    """Return what a pack tells of the rows."""
    pack = scan.chunk.file
    assert isinstance(pack, Pack)
    label = pa.field("label", pa.int64()) if pack.has_labels else None
    return Inferred(label, pack.classes, pack.has_labels, pack.has_splits)


def merge(found: Iterable[Inferred]) -> Inferred:
    """Join what all packs tell: one of them has the names of the classes."""
    return max(found, key=lambda one: len(one.classes))


class _Task(NamedTuple):
    """Some pictures of a pack: the number of the first, and name and size of each."""

    first: int
    names: list[str]
    sizes: list[int]


def read(source: Images, unit: Unit, schema: pa.Schema, *, batch_rows: int) -> Iterator[Batch]:
    """Yield the pictures of a pack as batches of bounded size."""
    listed = _pack_of(unit).files()
    sizes = [size for _, size in listed]
    how = source.reading(is_remote=is_remote(unit.file.path))
    tasks = (
        _Task(start, [name for name, _ in listed[start:stop]], sizes[start:stop])
        for start, stop in cut_by_bytes(sizes, min(batch_rows, how.batch_files))
    )
    return in_order(functools.partial(_batch, unit, schema, how), tasks, threads=how.threads)


def _batch(unit: Unit, schema: pa.Schema, how: Reading, task: _Task) -> Batch:
    pack = _pack_of(unit)
    rows = Rows(unit, task.first, task.names)
    named = [_named(pack, name) for name in task.names]
    numbers = class_numbers(schema)
    wanted = []
    for index, (name, (label, _)) in enumerate(zip(task.names, named, strict=True)):
        if fault := _fault_of_name(pack, name, label, numbers):
            rows.reject(index, fault)
        else:
            wanted.append(index)
    base = os.path.join(pack.path, "")
    paths = [base + task.names[index] for index in wanted]
    pictures = read_pictures(paths, taken(task.sizes, wanted), how)
    for index, fault in pictures.faults:
        rows.reject(wanted[index], fault)
    kept = taken(wanted, pictures.kept)
    labels = [label for label, _ in taken(named, kept)]
    columns = pictures.columns()
    columns["path"] = pa.array(taken(task.names, kept), pa.string())
    columns["split"] = pa.array([split for _, split in taken(named, kept)], pa.string())
    columns["label_name"] = pa.array(labels, pa.string())
    if "label" in schema.names and numbers is not None:
        columns["label"] = pa.array([numbers[label] for label in labels], pa.int64())
    batch = rows.batch(columns, schema, kept)
    if "image" not in schema.names:
        return batch
    batch = batch.replace(
        refused=refused_in(zip(taken(task.names, kept), pictures.headers, strict=True))
    )
    if not how.keeps_files:
        return batch
    opened = pa.array(map(os.fsencode, taken(paths, pictures.kept)), pa.binary())
    return batch.replace(files=FileColumn("image", opened))


def _named(pack: Pack, name: str) -> tuple[str | None, str | None]:
    """Return the class and the split that the folders of a picture name."""
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


class Rows:
    """Collects the rejects of a batch, and builds it.

    Args:
        unit: Where the rows come from.
        first: Number of the first row.
        names: What a human calls each picture.
    """

    def __init__(self, unit: Unit, first: int, names: Sequence[str]) -> None:
        self._unit = unit
        self._first = first
        self._names = names
        self._rejects: dict[int, Reject] = {}

    def reject(self, index: int, fault: Fault) -> None:
        """Leave out the picture `index`."""
        name = self._names[index].encode("utf-8", "backslashreplace").decode()
        self._rejects[index] = Reject(
            unit=name,
            row=0,
            column="image",
            code=fault.code,
            message=f"{name} {fault.reason}",
            value=name[:_SHOWN_CHARACTERS],
        )

    def batch(self, columns: dict[str, pa.Array], schema: pa.Schema, kept: Sequence[int]) -> Batch:
        """Return the batch.

        Args:
            columns: At least those of `schema`, without the rejected rows.
            schema: What to hold.
            kept: Index of each row that is left.

        Raises:
            DataError: A column is not there.
        """
        if missing := [name for name in schema.names if name not in columns]:
            raise DataError(f"column {missing[0]!r} of the schema is not in {self._unit.name}")
        data = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        rejects = [self._rejects[index] for index in sorted(self._rejects)]
        rows = self._first if not rejects else self._first + np.array(kept, np.int64)
        origin = Origin(self._unit.name, self._unit.index, rows)
        return Batch(data, origin, rejects=tuple(rejects))


def _pack_of(unit: Unit) -> Pack:
    assert isinstance(unit.file, Pack)
    return unit.file
