"""The contract of a source: how input becomes units, units become batches, and groups form.

A source is a frozen dataclass of options with pure methods; nothing here knows Beam. The way of
the data is ``files -> chunks -> scan -> units -> (infer -> merge) -> read``:

* `files` lists the input; `chunks` yields the byte ranges of a file to look at before it can be
  cut, by default one; `scan` looks at one of them, anywhere; `units` turns all scans of one file
  into its units.
* `infer` digests the types found in one unit and `merge` joins the digests into one Arrow schema.
  A source whose scans already contain the types (Parquet footers) sets ``infers_from_scans``; by
  default the scan itself is then the digest.
* `read` yields the batches of a unit under that schema. It yields at least one batch a unit, so
  that a unit without rows is seen to be finished too.

Units are a function of the input alone: never of workers, threads or batch size.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError, InputChanged, SchemaConflict, UsageError
from beam_tfrecord.hashes import hash_ranges
from beam_tfrecord.storage import absolute_path

UNIT_BYTES = 64 * 2**20
# Whoever plans a job holds all of its units: they grow once there would be more than so many.
MOST_UNITS = 2**18
# Notes of one kind, at most: the first ones explain the problem.
MOST_NOTES = 3


def wanted_columns(columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of the columns to read; None: all.

    Raises:
        UsageError: They are a lone text or none, or one is there twice.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        raise UsageError(f"columns {columns!r} is one text: pass a list of them")
    names = tuple(columns)
    if not names:
        raise UsageError("columns is empty: name some, or leave it out to read all")
    if doubled := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"column {doubled[0]!r} is asked for twice: correct --columns")
    return names


def chosen_columns(
    fields: Mapping[str, pa.Field], columns: Sequence[str] | None, known: Iterable[str]
) -> pa.Schema:
    """Return the schema of the columns to read, in the order in which they are wanted.

    Args:
        fields: All columns by name.
        columns: Names of the wanted columns; None: all.
        known: Names that the message about a missing column lists.

    Raises:
        UsageError: A column is missing.
    """
    names = fields if columns is None else columns
    if missing := [name for name in names if name not in fields]:
        raise UsageError(
            f"column {missing[0]!r} is not in the input: "
            f"correct --columns to some of {', '.join(sorted(set(known)))}"
        )
    return pa.schema([fields[name] for name in names])


def not_in_file(name: str, file: InputFile) -> DataError:
    """Return the error for a column of the schema that a file lacks."""
    return DataError(
        f"column {name!r} of the schema is not in {file.name}: pass --union to fill it with nulls"
    )


def not_in_all_files(name: str, having: InputFile, lacking: InputFile) -> SchemaConflict:
    """Return the error for a column that only some of the files have."""
    return SchemaConflict(
        f"column {name!r} is in {having.name} but not in {lacking.name}: "
        "pass --union to fill it with nulls"
    )


@dataclasses.dataclass(frozen=True)
class InputFile:
    """One resolved file of the input.

    Attributes:
        path: Path or URL that opens it.
        name: Posix path relative to the deepest common directory of all resolved files.
        bytes: Size.
        version: Modification time in ns, or an etag: changes when the content does.
        state: Change time in ns and inode of a local file, which no edit and no replacement leaves
            as they are; a copy and a chmod change them too. Empty where there are none.
        partitions: Hive-style ``key=value`` directories on the way to it, outermost first.
        inside: Number of files it stands for: a source of millions of files joins them to packs.
        digest: Hash of the names and sizes of those files, where there are several.
    """

    path: str
    name: str
    bytes: int
    version: str = ""
    partitions: tuple[tuple[str, str | None], ...] = ()
    inside: int = 1
    digest: str = ""
    state: str = ""

    def check(self) -> None:
        """Check that a local file is still the one that was listed.

        Raises:
            InputChanged: It is not, or it is gone.
        """
        if not self.state:
            return
        try:
            status = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputChanged(
                f"{self.name} was removed while it was read: put it back, or leave it out, and "
                "run the job again"
            ) from error
        version, state = version_and_state(status)
        if status.st_size != self.bytes or not self.is_unchanged(version, state):
            raise InputChanged(
                f"{self.name} was changed while it was read: run the job again once nothing "
                "writes to it"
            )

    def is_unchanged(self, version: str, state: str) -> bool:
        """Return whether the times from `version_and_state` of a local file are as listed.

        The inode is not compared: mounts of object stores number files anew at any time.
        """
        times = [of.partition("-")[0] for of in (self.state, state)]
        return version == self.version and times[0] == times[1]

    def outline(self) -> InputFile:
        """Return what identifies it, without what only reading needs."""
        return self

    def unit_name(self, index: int, count: int) -> str:
        """Return the name of a unit of it, by its position among `count`."""
        return self.name if count == 1 else f"{self.name}:{index}"


def version_and_state(status: os.stat_result) -> tuple[str, str]:
    """Return what an `InputFile` has as version and state of a local file."""
    return str(status.st_mtime_ns), f"{status.st_ctime_ns}-{status.st_ino}"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The byte range of a file that one scan looks at."""

    file: InputFile
    index: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Scan:
    """What a scan found in a chunk: small, picklable, private to its source."""

    chunk: Chunk
    detail: Any


@dataclasses.dataclass(frozen=True)
class Unit:
    """The smallest piece of a source that one worker reads.

    Attributes:
        name: Stable name; with a row number it identifies a row for ever.
        file: The file it lies in.
        index: Position within the file, from 0.
        start: First byte, row group or row: the source's own coordinate.
        stop: End of the range, exclusive.
        rows: Number of rows where it is known without reading.
        input_bytes: Bytes of input it covers.
        encoded_bytes: Estimate of the size of its records.
        detail: Whatever else its source needs to read it.
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


def _names_of_one_file(names: Sequence[str]) -> str:
    """Return a note about a file with several names: two of them, and how many there are."""
    line = f"{names[0]} and {names[1]} are two names of one file"
    if len(names) > 2:
        line = f"{names[0]}, {names[1]} and {len(names) - 2:,} more are names of one file"
    return f"{line}, whose rows were read for each: leave out all but one if that is not meant"


class Source(abc.ABC):
    """A kind of input with its options; subclasses are frozen dataclasses."""

    kind: ClassVar[str]
    # `ranges` returns the bytes of each unit, so that the content of local files can be hashed.
    has_ranges: ClassVar[bool] = False
    infers_from_scans: ClassVar[bool] = False
    # So many local files are looked at in less time than workers take to be asked to.
    quick_scans: ClassVar[int] = 0
    unit_bytes: ClassVar[int] = UNIT_BYTES
    # What is read, encoded and spilled together, at least.
    group_bytes: ClassVar[int] = UNIT_BYTES
    # The type of the details of its units, as an annotation.
    detail_type: ClassVar[Any] = None

    def sized(self, total_bytes: int) -> Source:
        """Return this source, set to cut input of so many bytes into no more units than one holds.

        Args:
            total_bytes: Of all files; so units stay a function of the input alone.
        """
        unit_bytes = type(self).unit_bytes
        while total_bytes > MOST_UNITS * unit_bytes:
            unit_bytes *= 2
        sized = copy.copy(self)
        # It is no option: it must not show in what the job is known by.
        object.__setattr__(sized, "unit_bytes", unit_bytes)
        return sized

    @property
    def is_stable(self) -> bool:
        """Whether unchanged names and sizes of the files mean that the input is unchanged."""
        return True

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the input that the manifest states besides its files."""
        return {}

    def in_order(self) -> Source:
        """Return a source that yields and numbers its rows in an order that the input defines."""
        return self

    def numbers_rows(self, units: Iterable[Unit]) -> bool:
        """Return whether rows have the same numbers in every reading of the same input."""
        return True

    def prepare(self) -> None:
        """Begin to load, in the background, what reading in this process will need."""
        return

    def release(self) -> None:
        """Let go of what scanning holds open in this process until all units are read."""
        return

    @abc.abstractmethod
    def files(self) -> Iterator[InputFile]:
        """Yield the input files in source order.

        Raises:
            UsageError: Nothing is found.
        """

    def chunks(self, file: InputFile) -> Iterator[Chunk]:
        """Yield the ranges of `file` to scan: by default one, the complete file."""
        yield Chunk(file, 0, 0, file.bytes)

    @abc.abstractmethod
    def scan(self, chunk: Chunk) -> Scan:
        """Look at one chunk."""

    @abc.abstractmethod
    def units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Cut one file into units, from all of its scans in order."""

    def infer(self, of: Any) -> Any:
        """Digest the types of a unit, or of a scan if the source `infers_from_scans`.

        By default the digest is the unit or scan itself.
        """
        return of

    @abc.abstractmethod
    def merge(self, inferences: Iterable[Any]) -> pa.Schema:
        """Join digests into one schema, whatever their order.

        Raises:
            SchemaConflict: Two files disagree.
        """

    def remarks(self, inferences: Sequence[Any], schema: pa.Schema) -> list[str]:
        """Return what a user should know of how `merge` came to `schema`."""
        return []

    @abc.abstractmethod
    def read(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Batch]:
        """Yield the rows of `unit` in order, as batches of exactly `schema`."""

    def read_unchanged(
        self,
        unit: Unit,
        schema: pa.Schema,
        *,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        hashes: list[int] | None = None,
    ) -> Iterator[Batch]:
        """Yield what `read` does; every batch comes from the file as it was listed.

        Args:
            unit: What to read.
            schema: Types of the rows.
            batch_rows: Rows of a batch.
            hashes: Gets `content` of the unit, once it is read; None: it is not wanted.

        Raises:
            InputChanged: The file is no longer the one that was listed.
        """
        try:
            for batch in self.read_hashed(unit, schema, batch_rows=batch_rows, hashes=hashes):
                # To look at all files of a pack takes longer than to read one batch.
                if unit.file.inside == 1:
                    unit.file.check()
                yield batch
            unit.file.check()
        except Exception:
            # A file that is written to while it is read may look damaged.
            unit.file.check()
            raise

    def read_hashed(
        self, unit: Unit, schema: pa.Schema, *, batch_rows: int, hashes: list[int] | None
    ) -> Iterator[Batch]:
        """Yield what `read` does, and add `content` to `hashes` unless that is None."""
        yield from self.read(unit, schema, batch_rows=batch_rows)
        if hashes is not None:
            # What was read a moment ago is in the page cache.
            hashes.append(self.content(unit))

    def ranges(self, unit: Unit) -> Sequence[tuple[int, int]]:
        """Return the byte ranges of its file that decide the rows of a unit."""
        return ()

    def content(self, unit: Unit) -> int:
        """Return a hash of the bytes of a local file that decide the rows of a unit.

        Raises:
            EOFError: The file has become shorter.
        """
        return hash_ranges(unit.file.path, self.ranges(unit), name=unit.name)

    @property
    def default_group(self) -> tuple[str, ...]:
        """Columns whose equal values share a split, where the user names none."""
        return ()

    def default_split_column(self) -> str | None:
        """Return the column that names each row's split, where the input itself is split."""
        return None

    def notes(self, files: Iterable[InputFile]) -> list[str]:
        """Return what a user should know about the input, from the outlines of its files."""
        first: dict[str, str] = {}
        others: dict[str, list[str]] = {}
        for file in files:
            if file.state and (other := first.setdefault(file.state, file.name)) != file.name:
                others.setdefault(file.state, [other]).append(file.name)
        return list(map(_names_of_one_file, others.values()))[:MOST_NOTES]

    def to_send(self) -> tuple[Source, tuple[str, ...]]:
        """Return this source as workers get it, and the files of this machine to send along."""
        paths: Iterable[str] | None = getattr(self, "paths", None)
        if paths is None:
            return self, ()
        # Workers may be in another directory.
        sent = copy.copy(self)
        object.__setattr__(sent, "paths", tuple(map(absolute_path, paths)))
        return sent, ()

    def all_scans(self) -> list[Scan]:
        """Scan all input in this process, one chunk after the other."""
        return [self.scan(chunk) for file in self.files() for chunk in self.chunks(file)]

    def all_units(self, scans: Sequence[Scan]) -> list[Unit]:
        """Return the units of all input in source order."""
        ordered = sorted(scans, key=lambda scan: (scan.chunk.file.name, scan.chunk.index))
        by_file = itertools.groupby(ordered, key=lambda scan: scan.chunk.file.name)
        return [unit for _, of_file in by_file for unit in self.units(list(of_file))]

    def schema(self, scans: Sequence[Scan] | None = None) -> pa.Schema:
        """Infer the schema of all input in this process, without a pipeline."""
        return self.inferred(scans)[0]

    def inferred(self, scans: Sequence[Scan] | None = None) -> tuple[pa.Schema, list[str]]:
        """Infer the schema of all input in this process, and return it with the remarks on it."""
        if scans is None:
            scans = self.all_scans()
            if self.infers_from_scans:
                self.release()
        pieces: Sequence[Any] = scans if self.infers_from_scans else self.all_units(scans)
        inferences = [self.infer(piece) for piece in pieces]
        schema = self.merge(inferences)
        return schema, self.remarks(inferences, schema)

    def batches(self, *, batch_rows: int = DEFAULT_BATCH_ROWS) -> Iterator[Batch]:
        """Iterate all input in this process, without a pipeline.

        Raises:
            DataError: A row cannot be read.
        """
        scans = self.all_scans()
        schema = self.schema(scans)
        for unit in self.all_units(scans):
            for batch in self.read_unchanged(unit, schema, batch_rows=batch_rows):
                if batch.rejects:
                    raise DataError(batch.rejects[0].message)
                yield batch


GROUP_BYTES = 64 * 2**20
# Groups grow once there are so many of them.
_MANY_GROUPS = 64


@dataclasses.dataclass(frozen=True)
class Group:
    """A task of reading.

    Attributes:
        number: Position among the groups, from 0.
        first_unit: Position of the first unit in source order over all input.
        units: The units, in order.
    """

    number: int
    first_unit: int
    units: tuple[Unit, ...]

    @property
    def encoded_bytes(self) -> int:
        """Estimate of the size of its records."""
        return sum(unit.encoded_bytes for unit in self.units)


def group_units(units: Iterable[Unit], group_bytes: int = GROUP_BYTES) -> list[Group]:
    """Join neighbouring units to groups of about `group_bytes` of encoded records.

    A group ends if one more unit would take it further from that size than it is.
    """
    groups: list[Group] = []
    pending: list[Unit] = []
    first, size = 0, 0
    for index, unit in enumerate(units):
        if pending and abs(size + unit.encoded_bytes - group_bytes) > abs(group_bytes - size):
            groups.append(Group(len(groups), first, tuple(pending)))
            pending, first, size = [], index, 0
        pending.append(unit)
        size += unit.encoded_bytes
    if pending:
        groups.append(Group(len(groups), first, tuple(pending)))
    return groups


def grown_bytes(total_bytes: int, most_bytes: int, least_bytes: int = GROUP_BYTES) -> int:
    """Return the size of groups: larger for large input, yet enough groups for many workers."""
    return max(least_bytes, min(most_bytes, total_bytes // _MANY_GROUPS))


def one_group(units: Sequence[Unit]) -> list[Group]:
    """Join all units to one group, so that one worker sees the rows in order."""
    return [Group(0, 0, tuple(units))] if units else []
