"""`Tally`: counts of written, rejected and duplicate rows, with their schema and statistics.

Every worker makes tallies of its part of the data; `Tally.merge` adds them up.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_binary
from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import NO_SPLIT
from beam_tfrecord.images import Refused, merge_refused
from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array
from beam_tfrecord.records.examples import Discovered, merge_discovered, schema_of_discovered

CONTENT_KEY = b"beam_tfrecord.content"
GROUP_KEY, SPLIT_KEY = b"beam_tfrecord.group", b"beam_tfrecord.split"
MAX_HASHES = 2**18

_LARGEST = 2**64 - 1
_NO_LABEL = -(2**63)
_KINDS = {"hashes": "<u8", "counts": "<u8", "least": "<i8", "most": "<i8"}


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
    sort_keys_by_bytes: bool = False
    splits_assigned: bool | None = None
    group: tuple[str, ...] | None = None
    left_out: frozenset[str] = frozenset()
    opaque: bool = False
    copies: DuplicateCount | None = None
    torn: int = 0
    dropped: int = 0
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
            sort_keys_by_bytes=self.sort_keys_by_bytes or other.sort_keys_by_bytes,
            splits_assigned=_joined(self.splits_assigned, other.splits_assigned, _one_split_state),
            group=_joined(self.group, other.group, _one_group),
            left_out=self.left_out | other.left_out,
            opaque=self.opaque or other.opaque,
            copies=_joined(self.copies, other.copies, DuplicateCount.merge),
            torn=self.torn + other.torn,
            dropped=self.dropped + other.dropped,
            refused=merge_refused(self.refused, other.refused),
            staged=_same_staged(self.staged, other.staged),
        )

    def without(self, copies: Tally) -> Tally:
        """Return the tally without `copies`, records of which an equal one stays."""
        if not copies.records:
            return self
        observed = {name: self.observed[name].without(of) for name, of in copies.observed.items()}
        present = {
            name: dataclasses.replace(of, present=of.present - copies.discovered[name].present)
            for name, of in self.discovered.items()
            if name in copies.discovered
        }
        return dataclasses.replace(
            self,
            records=self.records - copies.records,
            observed=observed,
            discovered={**self.discovered, **present},
            copies=None,
            dropped=copies.records,
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


def _one_group(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    if one != other:
        raise DataError("only some rows have image and sha256: pass group, which decides the split")
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
        "pass schema= to WriteToTFRecord"
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


def mark_content(field: pa.Field, *, label: str = "") -> pa.Field:
    """Return a copy of the text column `field` that makes `count_duplicates` count its values."""
    return field.with_metadata({**(field.metadata or {}), CONTENT_KEY: label.encode()})


def content_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the column whose equal values share a split by default: what identifies an image.

    Rows of datasets and of other programs have no marks, and are known by their names.
    """
    marks = {CONTENT_KEY, GROUP_KEY}
    found = {field.name for field in schema if not marks.isdisjoint(field.metadata or {})}
    if any(field.name == "image" and is_binary(field.type) for field in schema):
        found |= {"sha256"}.intersection(schema.names)
    return (max(found),) if found else ()  # sha256 before image


@dataclasses.dataclass(frozen=True)
class DuplicateCount:
    """A count of the rows of equal content, in bounded memory, by hashes of their contents.

    It is exact for up to `MAX_HASHES` different contents. For more, only the hashes up to a bound
    are counted, and the bound is halved as often as needed. This sample contains all duplicates of
    a content or none, so its number divided by its share of all hashes is an unbiased estimate.

    If rows have a class label, the contents with several labels are counted too: all labels of
    such a content but one must be wrong.
    """

    bound: int = _LARGEST
    hashes: bytes = b""
    counts: bytes = b""
    least: bytes = b""
    most: bytes = b""
    is_labelled: bool = False

    @classmethod
    def of(
        cls, hashes: UInt64Array, labels: Int64Array | None = None, bound: int = _LARGEST
    ) -> DuplicateCount:
        """Return the count for contents by their hashes and, if they have any, their labels.

        `bound`, that of a count which this will be merged with, saves work.
        """
        if bound < _LARGEST and labels is None:
            hashes = hashes[hashes <= np.uint64(bound)]
        ends = () if labels is None else (labels, labels)
        return _limited(bound, hashes, np.ones(len(hashes), "<u8"), *ends)

    def merge(self, other: DuplicateCount) -> DuplicateCount:
        """Return the joint count of two parts of the data."""
        names = list(_KINDS)[: 4 if self.is_labelled or other.is_labelled else 2]
        both = [np.frombuffer(getattr(self, n) + getattr(other, n), _KINDS[n]) for n in names]
        return _limited(min(self.bound, other.bound), *both)

    @property
    def is_exact(self) -> bool:
        """Whether every content is in the sample."""
        return self.bound == _LARGEST

    @property
    def number(self) -> int:
        """Number of rows that repeat the content of another row; an estimate unless `is_exact`."""
        counts = np.frombuffer(self.counts, "<u8")
        return self._scaled(int(counts.sum()) - len(counts))

    @property
    def mixed(self) -> int | None:
        """Number of contents with several labels, an estimate unless `is_exact`.

        It is None if rows have no labels.
        """
        if not self.is_labelled:
            return None
        least, most = np.frombuffer(self.least, "<i8"), np.frombuffer(self.most, "<i8")
        return self._scaled(int((least != most).sum()))

    def _scaled(self, seen: int) -> int:
        return seen if self.is_exact else round(seen * (_LARGEST / self.bound))


def count_duplicates(data: pa.RecordBatch) -> DuplicateCount | None:
    """Return the count for the column that `mark_content` marked, or None if there is none."""
    for field in data.schema:
        label = (field.metadata or {}).get(CONTENT_KEY)
        if label is not None:
            name, texts = label.decode(), data.column(field.name).drop_null().to_pylist()
            hashes = np.array([native.xxh64(text.encode(), 0) for text in texts], "<u8")
            if name not in data.schema.names:
                return DuplicateCount.of(hashes)
            labels = data.column(name).filter(data.column(field.name).is_valid())
            return DuplicateCount.of(hashes, labels.fill_null(_NO_LABEL).to_numpy().astype("<i8"))
    return None


def duplicates_to_json(duplicates: DuplicateCount) -> dict[str, Any]:
    """Return the entry of ``job.json`` for a count."""
    return {
        "rows": duplicates.number,
        "exact": duplicates.is_exact,
        "contents_of_several_labels": duplicates.mixed,
    }


def duplicate_lines(found: Mapping[str, Any], by: str = "by content") -> list[str]:
    """Return warnings about duplicates, given the entry of `duplicates_to_json`."""
    lines = []
    about = "" if found["exact"] else "about "
    if rows := found["rows"]:
        are = "row is a duplicate of another" if rows == 1 else "rows are duplicates of others"
        lines.append(f"{about}{rows:,} {are} {by}")
    if mixed := found["contents_of_several_labels"]:
        have = "content has" if mixed == 1 else "contents have"
        lines.append(f"{about}{mixed:,} duplicated {have} several labels: correct the wrong ones")
    return lines


def _limited(bound: int, hashes: npt.NDArray[Any], *values: npt.NDArray[Any]) -> DuplicateCount:
    """Join equal hashes, and halve the bound until at most `MAX_HASHES` hashes remain."""
    order = np.argsort(hashes, kind="stable")
    columns: list[npt.NDArray[Any]] = [array[order] for array in (hashes, *values)]
    is_first = np.append(hashes[:1] == hashes[:1], columns[0][1:] != columns[0][:-1])
    if not is_first.all():
        starts = np.flatnonzero(is_first)
        joins = (np.maximum, np.add, np.minimum, np.maximum)  # the hashes of a run are equal
        joined = zip(joins, columns, strict=False)
        columns = [join.reduceat(column, starts) for join, column in joined]
    while (size := int(np.searchsorted(columns[0], np.uint64(bound), "right"))) > MAX_HASHES:
        bound //= 2
    pairs = zip(_KINDS, columns, strict=False)
    kept: dict[str, Any] = {name: column[:size].tobytes() for name, column in pairs}
    return DuplicateCount(bound, **kept, is_labelled=len(values) > 1)
