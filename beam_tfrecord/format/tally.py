"""`Tally`: counts of written and rejected rows, their schema and statistics, over all workers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.duplicate_count import DuplicateCount
from beam_tfrecord.format.layout import NO_SPLIT
from beam_tfrecord.images import Refused, merge_refused
from beam_tfrecord.records.examples import Discovered, merge_discovered, schema_of_discovered


@dataclasses.dataclass(frozen=True)
class Tally:
    """Sums over a part of the data; `merge` adds two of them, in any order and grouping."""

    rows: int = 0
    records: int = 0
    rejects: int = 0
    reject_files: tuple[str, ...] = ()
    schema: Schema | None = None
    observed: Mapping[str, ColumnStats] = dataclasses.field(default_factory=dict)
    discovered: Mapping[str, Discovered] = dataclasses.field(default_factory=dict)
    places_by_bytes: bool = False
    splits_assigned: bool | None = None
    left_out: frozenset[str] = frozenset()
    opaque: bool = False
    copies: DuplicateCount | None = None
    torn: int = 0
    refused: Refused | None = None
    staged: bytes = b""

    def merge(self, other: Tally) -> Tally:
        """Return the tally of two parts of the data together."""
        return Tally(
            rows=self.rows + other.rows,
            records=self.records + other.records,
            rejects=self.rejects + other.rejects,
            reject_files=tuple(sorted({*self.reject_files, *other.reject_files})),
            schema=_joined(self.schema, other.schema, _same_schema),
            observed=_merge_by_name(self.observed, other.observed),
            discovered=merge_discovered(self.discovered, other.discovered),
            places_by_bytes=self.places_by_bytes or other.places_by_bytes,
            splits_assigned=_joined(self.splits_assigned, other.splits_assigned, _one_split_state),
            left_out=self.left_out | other.left_out,
            opaque=self.opaque or other.opaque,
            copies=_joined(self.copies, other.copies, DuplicateCount.merge),
            torn=self.torn + other.torn,
            refused=merge_refused(self.refused, other.refused),
            staged=_same_staged(self.staged, other.staged),
        )

    def final_schema(self) -> Schema:
        """Return the schema of the dataset with its statistics; empty for opaque records."""
        if self.opaque:
            return Schema(())
        schema = self.schema or schema_of_discovered(self.discovered)
        if self.schema is None:
            return schema.with_observed(
                {
                    name: ColumnStats(missing=self.records - found.present)
                    for name, found in self.discovered.items()
                }
            )
        return schema.with_observed(self.observed)


def merge_tallies(tallies: Iterable[Tally]) -> Tally:
    """Return the tally of any number of parts of the data together."""
    return functools.reduce(Tally.merge, tallies, Tally())


def _joined(one: Any, other: Any, join: Callable[[Any, Any], Any]) -> Any:
    """Return `join` of two values; if one is None, return the other."""
    if one is None or other is None:
        return other if one is None else one
    return join(one, other)


def _one_split_state(one: bool, other: bool) -> bool:
    if one != other:
        raise DataError(NO_SPLIT)
    return one


def _same_schema(one: Schema, other: Schema) -> Schema:
    # Whether a column may be null is not compared: the final schema derives it from the data.
    if [(f.name, f.type, f.store) for f in one.features] == [
        (f.name, f.type, f.store) for f in other.features
    ]:
        return one
    raise DataError(
        f"batches of different schemas were given to one dataset: ({_line(one)}) and "
        f"({_line(other)}): read both by one reader, such as ReadFromCsv(['a.csv', 'b.csv']), or "
        "pass schema="
    )


def _same_staged(one: bytes, other: bytes) -> bytes:
    if not one or not other or one == other:
        return one or other
    # The message must be the same in whatever order the runner merges.
    staged = (pa.ipc.read_schema(pa.py_buffer(message)) for message in (one, other))
    lines = sorted(_line(Schema.from_arrow(schema)) for schema in staged)
    raise DataError(
        f"batches of different schemas were given to one stage: ({lines[0]}) and ({lines[1]}): "
        "bring them to one schema before"
    )


def _line(schema: Schema) -> str:
    return ", ".join(f"{feature.name}: {feature.type}" for feature in schema.features)


def _merge_by_name(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for name, value in other.items():
        merged[name] = merged[name].merge(value) if name in merged else value
    return merged
