"""The rows of the images below directories, whose folders may name classes and splits."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.text import counted
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import LABELS_FILE
from beam_tfrecord.images.formats import SUFFIXES
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch, Origin
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.files import counts_text
from beam_tfrecord.sources.images.labels import classes_of_option, is_line
from beam_tfrecord.sources.images.listing import Pack, Tree, list_tree, pack_files

PATH, CLASS, BYTES = "path", "label", "bytes"
# Estimated bytes that the description of an image adds to a record.
_RECORD_EXTRA_BYTES = 300


@dataclasses.dataclass(frozen=True)
class Folders(Source):
    """The paths, sizes and classes of the images below directories.

    Attributes:
        tree: The directories.
        named: The directories as the user named them.
        labels: Names of the classes, or the file that has them; None means those of the folders.
    """

    tree: Tree
    named: Sequence[str]
    labels: str | os.PathLike[str] | Sequence[str] | None

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
        packs = pack_files(list_tree(tree), root=tree.root, classes=classes)
        first = next(packs, None)
        if first is None:
            named = " ".join(map(repr, self.named))
            raise UsageError(f"no image in {named}: check the path, or pass --from")
        yield from itertools.chain([first], packs)

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

    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        del inferences
        return pa.schema(
            dict.fromkeys((PATH, CLASS) if self.tree.has_labels else (PATH,), pa.string())
        )

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
        for start in range(0, len(names), batch_rows):
            files = slice(start, start + batch_rows)
            columns = {
                PATH: pa.array(names[files], pa.string()),
                BYTES: pa.array(sizes[files], pa.int64()),
            }
            if self.tree.has_labels:
                columns[CLASS] = pa.array(map(self._class_of, names[files]), pa.string())
            data = pa.RecordBatch.from_pydict(columns)
            yield Batch(data, Origin(unit.name, unit.index, start))

    def _class_of(self, name: str) -> str | None:
        """Return the folder that names the class of an image."""
        folders = name.split("/")[self.tree.has_splits : -1]
        return folders[0] if folders else None


def skipped_by_suffix(files: Iterable[InputFile]) -> dict[str, int]:
    """Return how many files the listing of packs skipped, by suffix."""
    counts = Counter[str]()
    for file in files:
        counts.update(dict(file.skipped) if isinstance(file, Pack) else {})
    return dict(sorted(counts.items()))
