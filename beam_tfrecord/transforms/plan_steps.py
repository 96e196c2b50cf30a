"""Functions of the steps that list, scan and plan the input; they log their progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.groups import Group
from beam_tfrecord.workdir.progress_files import ProgressLog


@dataclasses.dataclass(frozen=True)
class ListedFiles:
    """A function that yields the files of a source; it lists them if that was not done before."""

    source: Source
    files: Sequence[InputFile] | None
    progress: ProgressLog

    def __call__(self, _: bytes) -> Iterator[InputFile]:
        """Yield the files."""
        for file in self.source.files() if self.files is None else self.files:
            self.progress.add(total=file.bytes)
            yield file
        self.progress.flush()


@dataclasses.dataclass(frozen=True)
class ScannedChunk:
    """A generator function that yields the scan of a chunk."""

    source: Source
    progress: ProgressLog

    def __call__(self, chunk: Chunk) -> Iterator[Scan]:
        """Yield the scan."""
        self.progress.add()
        yield self.source.scan(chunk)
        self.progress.add(chunk.stop - chunk.start)


@dataclasses.dataclass(frozen=True)
class AnnouncedGroups:
    """A wrapper of a generator function of groups that first logs how much there is to read."""

    function: Callable[[Any], Iterable[Group]]
    limit: int | None
    rows: ProgressLog
    types: ProgressLog | None

    def __call__(self, element: Any) -> Iterator[Group]:
        """Yield the groups."""
        groups = list(self.function(element))
        units = units_of(groups)
        rows = [unit.rows for unit in units if unit.rows is not None]
        total = sum(rows) if len(rows) == len(units) else 0
        if total:
            self.rows.add(total=total if self.limit is None else min(self.limit, total))
        if self.types is not None:
            self.types.add(total=sum(unit.input_bytes for unit in units))
        yield from groups


def infer_group(source: Source, progress: ProgressLog, group: Group) -> Iterator[Any]:
    """Yield the source's inference of types for every unit of a group."""
    for unit in group.units:
        progress.add()
        yield source.infer(unit)
        progress.add(unit.input_bytes)
        progress.flush()


def units_of(groups: Iterable[Group]) -> list[Unit]:
    """Return the units of groups, in order."""
    return [unit for group in groups for unit in group.units]
