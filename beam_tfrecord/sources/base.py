"""`Source`, the interface that reads one kind of input: it splits the input and reads batches.

A source is a frozen dataclass of options with pure methods, and does not depend on Beam. A *unit*
is the smallest part of the input that one worker reads, and a *task* is the units that it reads
together. The methods are called in the order ``files -> chunks -> scan -> units -> (infer -> merge)
-> read``:

* `files` lists the input. `chunks` divides a file into byte ranges, by default one. `scan` inspects
  one of these chunks, on any worker. `units` cuts a file into units, given all of its scans.
* `infer` returns the types found in one unit (an inference), and `merge` joins all inferences into
  one Arrow schema. A source whose scans already contain the types (Parquet footers) sets
  ``infers_from_scans``. Then `infer` gets scans in place of units.
* `read` yields the batches of a unit with that schema. It yields at least one batch, which reports
  that the unit is finished even if it has no rows.

Units depend only on the input, and not on workers, threads or batch size.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from beam_tfrecord.base.arguments import as_words
from beam_tfrecord.base.text import not_found, repeated
from beam_tfrecord.errors import (
    BeamTFRecordError,
    DataError,
    InputChanged,
    SchemaConflict,
    UsageError,
)
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.selection.select import NOT_NUMBERED, Selection
from beam_tfrecord.storage import absolute_path, is_remote

T = TypeVar("T")

UNIT_BYTES = 64 * 2**20
# Units become larger if there would be more, because the plan of a job has all units in memory.
MOST_UNITS = 2**18
# Largest number of notes of one kind: a few examples explain the problem.
MOST_NOTES = 3
# With less input, steps of Python are done before worker processes have started.
LARGE_ROWS = 500_000
LARGE_BYTES = 64 * 2**20


def wanted_columns(columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Check the names of the columns to read, and return them as a tuple; None means all.

    Raises:
        UsageError: The argument is a string, is empty, or contains a name twice.
    """
    if columns is None:
        return None
    names = as_words("columns", columns)
    if not names:
        raise UsageError("columns is empty: name some, or leave it out to read all")
    if doubled := repeated(names):
        raise UsageError(f"column {doubled[0]!r} is selected twice: correct --columns")
    return names


def chosen_columns(
    fields: Mapping[str, pa.Field], columns: Sequence[str] | None, known: Iterable[str]
) -> pa.Schema:
    """Return the schema of the columns to read, in the order of `columns`.

    Args:
        fields: All columns by name.
        columns: Names of the columns to read; None means all.
        known: Names that the message about a missing column lists.

    Raises:
        UsageError: A column is missing.
    """
    names = fields if columns is None else columns
    if missing := [name for name in names if name not in fields]:
        raise UsageError(not_found(missing[0], known))
    return pa.schema([fields[name] for name in names])


def not_in_all_files(name: str, having: InputFile, lacking: InputFile) -> SchemaConflict:
    """Return the error for a column that only some of the files have."""
    return SchemaConflict(
        f"column {name!r} is in {having.name} but not in {lacking.name}: "
        "pass --union to fill it with nulls"
    )


@dataclasses.dataclass(frozen=True)
class InputFile:
    """One listed file of the input, or a pack of many small files.

    Attributes:
        path: Path or URL of the file.
        name: Posix path relative to the deepest common directory of all listed files.
        bytes: Size of the file.
        version: Modification time in ns, or an etag; it changes if the content changes.
        last: Name of the last file in a pack of image files; else empty.
        state: Change time in ns and inode of a local file; empty for remote files. Every edit and
            every replacement of the file changes them, and so do a copy and a chmod.
        partitions: Hive-style ``key=value`` directories in the path of the file, outermost first.
        inside: Number of files; more than 1 for a pack, into which a source of millions of files
            joins them.
        digest: Hash of the names and sizes of the files in a pack; else empty.
    """

    if_removed: ClassVar[str] = "put it back, or leave it out, and run the job again"

    path: str
    name: str
    bytes: int
    version: str = ""
    partitions: tuple[tuple[str, str | None], ...] = ()
    inside: int = 1
    last: str = ""
    digest: str = ""
    state: str = ""

    @property
    def stamp(self) -> tuple[str, str]:
        """Version and state, by which a rerun knows that the content is the same."""
        return self.version, self.state

    def check(self) -> None:
        """Check that a local file has not changed since it was listed.

        Raises:
            InputChanged: The file was changed or removed.
        """
        if not self.state:
            return
        try:
            status = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self.removed() from error
        if status.st_size != self.bytes or not self.is_unchanged(*version_and_state(status)):
            raise InputChanged(
                f"{self.name} was changed while it was read: run the job again once nothing "
                "writes to it"
            )

    def removed(self) -> InputChanged:
        """Return the error for a file that is not there any more."""
        return InputChanged(f"{self.name} was removed while it was read: {self.if_removed}")

    def is_unchanged(self, version: str, state: str) -> bool:
        """Return whether a local file has its listed times, given those of `version_and_state`.

        The inode is not compared, because mounts of object stores may renumber files at any time.
        """
        times = [of.partition("-")[0] for of in (self.state, state)]
        return version == self.version and times[0] == times[1]

    def outline(self) -> InputFile:
        """Return a smaller copy that identifies the file, without data that only reading needs."""
        return self

    def unit_name(self, index: int, count: int) -> str:
        """Return the name of the unit `index` of the file, which has `count` units."""
        return self.name if count == 1 else f"{self.name}:{index}"


def version_and_state(status: os.stat_result) -> tuple[str, str]:
    """Return the `version` and `state` of an `InputFile` for a local file."""
    return str(status.st_mtime_ns), f"{status.st_ctime_ns}-{status.st_ino}"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A byte range of a file, which one call of `Source.scan` inspects."""

    file: InputFile
    index: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Scan:
    """The result of the scan of a chunk; `detail` is small, picklable and private to its source."""

    chunk: Chunk
    detail: Any


@dataclasses.dataclass(frozen=True)
class Unit:
    """The smallest part of the input that one worker reads.

    Attributes:
        name: Stable name, which identifies a row permanently, together with a row number.
        file: The file that contains the unit.
        index: Position of the unit in the file, from 0.
        start: Start of the range, in bytes, row groups or rows, as the source defines it.
        stop: End of the range, exclusive.
        rows: Number of rows if it is known without reading; else None.
        input_bytes: Number of bytes of input.
        encoded_bytes: Estimate of the size of its records.
        detail: Further data that the source needs to read the unit.
        pruned_rows: Number of its rows that are not read, because a filter cannot match them.
        pruned_bytes: Number of bytes of input that are not read, besides `input_bytes`.
    """

    name: str
    file: InputFile
    index: int
    start: int
    stop: int
    rows: int | None
    input_bytes: int
    encoded_bytes: int
    detail: Any = None
    pruned_rows: int = 0
    pruned_bytes: int = 0


class Source(abc.ABC):
    """Base of all sources, which read one kind of input; subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    # Suffixes of the files of this kind, by which its inputs are recognized.
    suffixes: ClassVar[tuple[str, ...]] = ()
    infers_from_scans: ClassVar[bool] = False
    # Number of local files that the launcher scans faster than Beam can distribute the scans.
    quick_scans: ClassVar[int] = 0
    unit_bytes: ClassVar[int] = UNIT_BYTES
    # Whether Python code runs for each row, other than to make batches.
    runs_python: ClassVar[bool] = False
    # Whether several workers may read a unit, each of which uses a share of its batches.
    is_shared: ClassVar[bool] = False
    # Approximate size of the records of a task; large input may have larger tasks.
    task_bytes: ClassVar[int] = UNIT_BYTES
    # The type of the details of its units, as an annotation, and the type of its files. The plan of
    # a job stores both; by default, details are plain values, of which tuples become lists.
    detail_type: ClassVar[Any] = Any
    file_type: ClassVar[type[InputFile]] = InputFile
    # Which rows to take; None means all. Not a field of the dataclass, because fields are part of
    # the fingerprint of the job: `with_selection` sets it.
    selection: ClassVar[Selection | None] = None

    def sized(self, total_bytes: int) -> Source:
        """Return this source with units large enough that there are at most about `MOST_UNITS`.

        Args:
            total_bytes: Size of all files, so that the size of units depends only on the input.
        """
        unit_bytes = type(self).unit_bytes
        while total_bytes > MOST_UNITS * unit_bytes:
            unit_bytes *= 2
        return altered(self, unit_bytes=unit_bytes)

    @property
    def is_stable(self) -> bool:
        """Whether unchanged names and sizes of the files mean that the input is unchanged."""
        return True

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the input, other than its files, that the manifest contains."""
        return {}

    def options_for(self, files: Iterable[InputFile]) -> dict[str, Any]:
        """Return the options that decide the rows of `files`, for the fingerprint of a job."""
        options: dict[str, Any] = dataclasses.asdict(self)  # type: ignore[call-overload]
        options.pop("paths", None)
        return options

    def in_order(self) -> Source:
        """Return a source that yields and numbers its rows in an order that the input defines."""
        return self

    def numbers_rows(self, units: Iterable[Unit]) -> bool:
        """Return whether rows have the same numbers in every reading of the same input."""
        return True

    def is_large(self, files: Iterable[InputFile]) -> bool:
        """Return whether Python code on all rows takes longer than processes need to start.

        There are `LARGE_ROWS`, by the footers of the first files, or `LARGE_BYTES`, or nobody knows
        the size, as for a database.
        """
        if not self.is_stable:
            return True
        rows = seen = size = 0
        for number, file in enumerate(files):
            size += file.bytes
            if self.infers_from_scans and number < self.quick_scans and not is_remote(file.path):
                scans = [self.scan(chunk) for chunk in self.chunks(file)]
                rows += sum(unit.rows or 0 for unit in self.units(scans))
                seen += file.bytes
            if size >= LARGE_BYTES or rows * size >= LARGE_ROWS * max(seen, 1):
                return True
        return False

    def release(self) -> None:
        """Close resources that scanning keeps open in this process, such as connections."""
        return

    @abc.abstractmethod
    def files(self) -> Iterator[InputFile]:
        """Yield the input files in source order.

        Raises:
            UsageError: There is no input file.
        """

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        """Yield the ranges of `file` to scan: by default one, the complete file."""
        yield Chunk(file, 0, 0, file.bytes)

    @abc.abstractmethod
    def scan(self, chunk: Chunk) -> Scan:
        """Inspect one chunk, to find where the file can be cut."""

    @abc.abstractmethod
    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Cut one file into units, given all of its scans in order."""

    def infer(self, of: Any) -> Any:
        """Return the types in a unit, or in a scan if the source `infers_from_scans`.

        The result, an inference, is private to the source. By default it is the argument itself.
        """
        return of

    @abc.abstractmethod
    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        """Join inferences into one schema that does not depend on their order.

        Raises:
            SchemaConflict: Two files disagree.
        """

    def remarks(self, inferences: Sequence[Any], schema: pa.Schema) -> list[str]:
        """Return messages for the user about surprising types in `schema`, made by `merge`."""
        return []

    @abc.abstractmethod
    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`."""

    def read_unchanged(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the selected rows of `read`, and check that the file does not change meanwhile.

        Raises:
            InputChanged: The file has changed since it was listed.
            RuntimeError: The source has a fault.
            UsageError: The filter does not fit the columns.
        """
        selection = self.selection
        if selection is not None:
            selection.check(schema)
        try:
            for batch in self.read(unit, schema, batch_rows=batch_rows):
                # A check of all files of a pack takes longer than to read one batch.
                if unit.file.inside == 1:
                    unit.file.check()
                yield batch if selection is None else selection.apply(batch)
            unit.file.check()
        except Exception as error:
            # A file that another program is writing to may look damaged.
            unit.file.check()
            if isinstance(error, BeamTFRecordError | OSError | MemoryError):
                raise
            reason = f"{type(error).__name__}: {error}"
            raise RuntimeError(f"source {self.kind!r} failed in {unit.name}: {reason}") from error

    def default_split_column(self) -> str | None:
        """Return the column that names each row's split if the input is split, else None."""
        return None

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        """Return warnings about the input, given the outlines of its files."""
        return []

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        """Return this source in the form for workers, and the local files to send with it."""
        paths: Iterable[str] | None = getattr(self, "paths", None)
        if paths is None:
            return self, ()
        # Workers may run in another directory, so relative paths become absolute.
        return altered(self, paths=tuple(map(absolute_path, paths))), ()

    def all_scans(self) -> list[Scan]:
        """Scan all input in this process, one chunk after the other."""
        return [self.scan(chunk) for file in self.files() for chunk in self.chunks(file)]

    def all_units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Return the units of all input in source order.

        Raises:
            UsageError: The rows have no numbers, by which a sample is chosen.
        """
        ordered = sorted(scans, key=lambda scan: (scan.chunk.file.name, scan.chunk.index))
        by_file = itertools.groupby(ordered, key=lambda scan: scan.chunk.file.name)
        units = [unit for _, of_file in by_file for unit in self.units(list(of_file))]
        if self.selection is not None and self.selection.share < 1 and not self.numbers_rows(units):
            raise UsageError(NOT_NUMBERED)
        return units

    def schema(self, scans: Sequence[Scan] | None = None) -> pa.Schema:
        """Infer the schema of all input in this process, without a pipeline."""
        return self.inferred(scans)[0]

    def inferred(self, scans: Sequence[Scan] | None = None) -> tuple[pa.Schema, list[str]]:
        """Infer the schema of all input in this process; return it and the `remarks` about it."""
        if scans is None:
            scans = self.all_scans()
            if self.infers_from_scans:
                self.release()
        pieces: Sequence[Any] = scans if self.infers_from_scans else self.all_units(scans)
        inferences = [self.infer(piece) for piece in pieces]
        schema = self.merge(inferences)
        return schema, self.remarks(inferences, schema)

    def batches(self, *, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[Batch]:
        """Yield the selected rows of all input in this process, without a pipeline.

        Raises:
            DataError: A row was rejected.
        """
        scans = self.all_scans()
        schema = self.schema(scans)
        for unit in self.all_units(scans):
            for batch in self.read_unchanged(unit, schema, batch_rows=batch_rows):
                if batch.rejects:
                    raise DataError(batch.rejects[0].message)
                yield batch


def altered(source: T, **attributes: Any) -> T:
    """Return a copy of a source with other attributes.

    An attribute that is no field of the dataclass is not part of the fingerprint of a job.
    """
    copied = copy.copy(source)
    for name, value in attributes.items():
        object.__setattr__(copied, name, value)
    return copied


def of_columns(source: Source, names: Sequence[str]) -> Source:
    """Return a source that reads only some columns, unless it reads all or was given columns."""
    if getattr(source, "columns", names) is not None:
        return source
    return altered(source, columns=tuple(names))


def with_selection(source: Source, selection: Selection | None) -> Source:
    """Return a source that takes only the selected rows.

    If `columns` of the source lacks columns of the filter, they are read too, but not returned.
    """
    if selection is None:
        return source
    columns: tuple[str, ...] | None = getattr(source, "columns", None)
    if columns is not None:
        selection = dataclasses.replace(selection, columns=columns)
        source = altered(source, columns=tuple(dict.fromkeys((*columns, *selection.needed))))
    return altered(source, selection=selection)
