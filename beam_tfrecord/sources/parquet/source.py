"""The Parquet source: it cuts files into ranges of row groups, and takes types from the footers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError
from beam_tfrecord.manifest import MANIFEST_NAME
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Unit
from beam_tfrecord.sources.files import as_paths, list_files
from beam_tfrecord.sources.parquet.footer import (
    Footer,
    footer_of,
    int96_in,
    opened,
    pruned_by,
    record_batches,
    side_by_side,
)
from beam_tfrecord.sources.parquet.int96 import NS, US, S, is_far
from beam_tfrecord.sources.typed_files import (
    Block,
    Contents,
    Opened,
    TypedFiles,
    check_names,
    no_rows,
)
from beam_tfrecord.stage import StageManifest, is_stage, stage_files
from beam_tfrecord.storage import absolute_path, exists, is_directory

SUFFIXES = (".parquet", ".pq")

_SCAN_ROWS = 2**16


class ParquetUnit(NamedTuple):
    """What reading a unit needs: the number of its first row, and its row groups.

    `runs` are the ranges of row groups to read, and `gaps` how many rows to skip before a row.
    """

    far: tuple[str, ...]
    first_row: int
    runs: tuple[tuple[int, int], ...]
    gaps: dict[int, int]


@dataclasses.dataclass(frozen=True)
class Parquet(TypedFiles):
    """Parquet files, and the stages that ``extract`` writes."""

    kind: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    detail_type: ClassVar[Any] = ParquetUnit

    def files(self) -> Iterator[InputFile]:
        return list_staged(as_paths(self.paths), SUFFIXES)

    def scan(self, chunk: Chunk) -> Scan:
        if stands_for_none(chunk.file):
            return Scan(chunk, footer_of_none(chunk.file, self.columns))
        with opened(chunk.file) as reader:
            in_ns = reader(NS)
            check_names(in_ns.schema_arrow.names, chunk.file)
            footer = footer_of(in_ns, chunk.file, self.columns)
            # With settled types, a row that is not read might have to be rejected.
            if self.selection is not None and self.selection.condition and self.settled is None:
                names = {name: name for name in self.selection.needed}
                footer = pruned_by(self.selection.condition, in_ns, footer, names)
            if int96 := int96_in(in_ns, footer):
                in_s, file = reader(S), chunk.file
                far = tuple(
                    name
                    for name, leaves in int96.items()
                    if is_far(_pairs(in_s, in_ns, file, name), name, leaves, file.name)
                )
                in_us = footer_of(reader(US), chunk.file, self.columns).schema
                footer = dataclasses.replace(footer, far=far, in_us=in_us)
        return Scan(chunk, footer)

    def detail(
        self, found: Sequence[Contents], blocks: Sequence[Block], first_row: int
    ) -> ParquetUnit:
        """Return the detail of the unit of some row groups."""
        (footer,) = found
        assert isinstance(footer, Footer)
        runs, gaps, rows = [], {}, 0
        for is_pruned, together in itertools.groupby(blocks, key=lambda block: block.is_pruned):
            run = list(together)
            count = sum(block.rows for block in run)
            if is_pruned:
                gaps[rows] = count
            else:
                runs.append((run[0].start, run[-1].stop))
            rows += count
        return ParquetUnit(footer.far, first_row, tuple(runs), gaps)

    def merge(self, inferences: Iterable[Scan]) -> pa.Schema:
        scans = list(inferences)
        far = {name for scan in scans for name in scan.detail.far}
        return super().merge(
            dataclasses.replace(scan, detail=_in_one_unit(scan.detail, far)) for scan in scans
        )

    @contextlib.contextmanager
    def opened(self, unit: Unit) -> Iterator[Opened]:
        """Open the file of a unit; for a stage without rows, its manifest stands for the rows."""
        far: tuple[str, ...] = unit.detail.far
        with opened(unit.file) as reader:
            in_ns = reader(NS)
            in_us = reader(US) if far else in_ns
            inside = _with_units(in_ns.schema_arrow, in_us.schema_arrow, far)
            read = functools.partial(_rows, in_ns, in_us, unit)
            yield Opened(inside, unit.detail.first_row, read, unit.detail.gaps)

    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`.

        A row with a value that does not fit the type in `schema` exactly becomes a reject.
        """
        if not unit.detail.runs:
            return iter([no_rows(unit, schema)])
        return super().read(unit, schema, batch_rows=batch_rows)


def _pairs(
    in_s: pq.ParquetFile, in_ns: pq.ParquetFile, file: InputFile, column: str
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield the batches of a column from both readers."""
    # One row group at a time, because a reader of a remote file keeps all requested row groups in
    # memory until it has read the last one.
    for group in range(in_ns.num_row_groups):
        yield from zip(
            *(
                record_batches(reader, file, range(group, group + 1), [column], _SCAN_ROWS)
                for reader in (in_s, in_ns)
            ),
            strict=True,
        )


def _in_one_unit(footer: Footer, far: Collection[str]) -> Footer:
    """Return a footer with the INT96 timestamps of the columns `far` in microseconds."""
    if footer.in_us is None:
        return footer
    return dataclasses.replace(footer, schema=_with_units(footer.schema, footer.in_us, far))


def _with_units(in_ns: pa.Schema, in_us: pa.Schema, far: Collection[str]) -> pa.Schema:
    return pa.schema([b if b.name in far else a for a, b in zip(in_ns, in_us, strict=True)])


def _rows(
    in_ns: pq.ParquetFile,
    in_us: pq.ParquetFile,
    unit: Unit,
    columns: Sequence[str],
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a unit, each from the reader of its unit of time."""
    far = [name for name in columns if name in unit.detail.far]
    others = [name for name in columns if name not in unit.detail.far]
    for start, stop in unit.detail.runs:
        groups = range(start, stop)
        rows = record_batches(in_ns, unit.file, groups, others, batch_rows)
        if far:
            late = record_batches(in_us, unit.file, groups, far, batch_rows)
            rows = side_by_side(unit.file, rows, late)
        yield from rows


def list_staged(paths: Sequence[str], suffixes: Sequence[str]) -> Iterator[InputFile]:
    """Yield the files that `paths` name, like `list_files`, and the files of stages among them.

    A stage without rows has no files, so its manifest is listed instead.
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
    """Return whether a listed file is the manifest of a stage without rows."""
    return os.path.basename(file.path) == MANIFEST_NAME


def footer_of_none(file: InputFile, columns: Collection[str] | None) -> Footer:
    """Return a footer for a stage without rows, from its manifest `file`."""
    schema = StageManifest.load(file.path).schema
    fields = [field for field in schema if columns is None or field.name in columns]
    return Footer(pa.schema(fields), tuple(schema.names), ())
