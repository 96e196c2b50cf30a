"""`diff`: what differs between two datasets, whatever the order and files of their rows."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.dataset.load import load
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.places import purpose_seed

UInt64Array = npt.NDArray[np.uint64]

_SETTINGS = ("order", "seed", "compression", "key", "group", "place", "split_by", "fingerprint")


@dataclasses.dataclass(frozen=True)
class SplitDifference:
    """How a split's rows differ, as multisets: equal rows count as often as they are there.

    Attributes:
        name: Of the split.
        rows_a: Rows in the first dataset.
        rows_b: Rows in the second.
        removed: Rows of the first that the second has not.
        added: Rows of the second that the first has not.
    """

    name: str
    rows_a: int
    rows_b: int
    removed: int
    added: int

    @property
    def same(self) -> bool:
        """True where the rows are the same."""
        return not (self.removed or self.added)


@dataclasses.dataclass(frozen=True)
class Difference:
    """What differs between two datasets.

    Attributes:
        schema: What differs in names and types of columns and how they are stored, a line each.
        splits: Every split of either, in order.
        moved: Rows that are in both datasets, but in another split.
        notes: What differs beside the data: settings, order, shards.
    """

    schema: tuple[str, ...]
    splits: tuple[SplitDifference, ...]
    moved: int
    notes: tuple[str, ...]

    @property
    def same_data(self) -> bool:
        """True where schema and rows of every split are the same."""
        return not self.schema and all(split.same for split in self.splits)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return dataclasses.asdict(self) | {"same_data": self.same_data}

    def lines(self) -> list[str]:
        """Return text for humans, a line each; none where nothing differs."""
        out = [f"schema: {line}" for line in self.schema]
        for split in self.splits:
            if not split.same:
                out.append(
                    f"split {split.name}: {split.rows_a:,} rows and {split.rows_b:,} rows: "
                    f"{split.removed:,} removed, {split.added:,} added"
                )
        if self.moved:
            out.append(f"rows moved between splits: {self.moved:,}")
        return out + [f"note: {line}" for line in self.notes]


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Difference:
    """Compare two datasets: schema, splits, and rows by their content.

    Copies that are reordered or cut into other shards are the same data. Where shards are the same
    byte for byte, or all rows of one split have the same hash, nothing but the manifests is read;
    otherwise every row of the splits that differ, keeping 8 bytes a row. Rows are compared by a
    64-bit hash of their example in canonical form.

    Raises:
        UsageError: There is no dataset at `a` or `b`.
        DataError: One of them is damaged.
    """
    first, second = Manifest.load(a), Manifest.load(b)
    names = [*first.splits, *(name for name in second.splits if name not in first.splits)]
    # Splits that have no rows are no difference: one manifest may name them, another not.
    names = [name for name in names if _rows(first, name) or _rows(second, name)]
    if _same_content(first, second, names):
        splits = [
            SplitDifference(name, _rows(first, name), _rows(second, name), 0, 0) for name in names
        ]
        moved = 0
    else:
        splits, moved = _compare_rows(a, b, first, second, names)
    schema = tuple(_schema_lines(first.schema, second.schema))
    return Difference(schema, tuple(splits), moved, tuple(_notes(first, second)))


def _rows(manifest: Manifest, name: str) -> int:
    return manifest.splits[name].examples if name in manifest.splits else 0


def _shard_hashes(manifest: Manifest, name: str) -> list[tuple[int, int, str]]:
    split = manifest.splits.get(name)
    shards = split.shards if split else ()
    return [(shard.examples, shard.bytes, shard.xxh64) for shard in shards]


def _same_content(first: Manifest, second: Manifest, names: list[str]) -> bool:
    """Tell whether the manifests alone show that the rows are the same."""
    if all(_shard_hashes(first, name) == _shard_hashes(second, name) for name in names):
        return True
    one_split = len(names) == 1
    return one_split and first.content == second.content and first.examples == second.examples


def _compare_rows(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    first: Manifest,
    second: Manifest,
    names: list[str],
) -> tuple[list[SplitDifference], int]:
    splits: list[SplitDifference] = []
    gone: list[UInt64Array] = []
    new: list[UInt64Array] = []
    for name in names:
        rows_a, rows_b = _rows(first, name), _rows(second, name)
        if _shard_hashes(first, name) == _shard_hashes(second, name):
            splits.append(SplitDifference(name, rows_a, rows_b, 0, 0))
            continue
        only_a, only_b = multiset_difference(
            _row_hashes(a, first, name), _row_hashes(b, second, name)
        )
        splits.append(SplitDifference(name, rows_a, rows_b, len(only_a), len(only_b)))
        gone.append(only_a)
        new.append(only_b)
    all_gone, all_new = np.concatenate(gone), np.concatenate(new)
    really_gone, _ = multiset_difference(all_gone, all_new)
    return splits, len(all_gone) - len(really_gone)


def _row_hashes(path: str | os.PathLike[str], manifest: Manifest, name: str) -> UInt64Array:
    """Return the hash of every example of a split, shape `[rows]`."""
    if not _rows(manifest, name):
        return np.empty(0, dtype=np.uint64)
    seed = purpose_seed(0, "content")
    return np.concatenate(
        [
            native.canonical_hashes(block.data, block.starts, seed)
            for _, block in load(path, split=name).blocks()
        ]
    )


def multiset_difference(a: UInt64Array, b: UInt64Array) -> tuple[UInt64Array, UInt64Array]:
    """Return what `a` has more of than `b`, and the other way round, repeated as often."""
    values, where = np.unique(np.concatenate([a, b]), return_inverse=True)
    surplus = np.bincount(where[: len(a)], minlength=len(values))
    surplus -= np.bincount(where[len(a) :], minlength=len(values))
    only_a = np.repeat(values, np.maximum(surplus, 0))
    only_b = np.repeat(values, np.maximum(-surplus, 0))
    return only_a, only_b


def _schema_lines(a: Schema, b: Schema) -> Iterator[str]:
    for name in a.names:
        if name not in b:
            yield f"column {name!r} ({a[name].type}) is only in the first"
        else:
            yield from _feature_lines(a[name], b[name])
    for name in b.names:
        if name not in a:
            yield f"column {name!r} ({b[name].type}) is only in the second"
    if a.separator != b.separator:
        yield f"the separator of nested names is {a.separator!r}, then {b.separator!r}"


def _feature_lines(a: Feature, b: Feature) -> Iterator[str]:
    if a.type != b.type:
        yield f"column {a.name!r} is {a.type}, then {b.type}"
    if a.store != b.store:
        yield f"column {a.name!r} is stored as {a.store!r}, then {b.store!r}"


def _notes(a: Manifest, b: Manifest) -> Iterator[str]:
    for setting in _SETTINGS:
        before, after = getattr(a, setting), getattr(b, setting)
        if before != after:
            yield f"{setting} is {_shown(before)}, then {_shown(after)}"
    common = [name for name in a.schema.names if name in b.schema]
    if common != [name for name in b.schema.names if name in a.schema]:
        yield "the columns are in another order"
    for name in common:
        before, after = a.schema[name].default, b.schema[name].default
        if before != after:
            yield f"the default of column {name!r} is {_shown(before)}, then {_shown(after)}"
    for name in a.splits:
        if name in b.splits and len(a.splits[name].shards) != len(b.splits[name].shards):
            shards = [len(manifest.splits[name].shards) for manifest in (a, b)]
            yield f"split {name} has {shards[0]:,} shards, then {shards[1]:,}"
    if a.rejects.get("rows") != b.rejects.get("rows"):
        yield f"{a.rejects.get('rows')} rows were rejected, then {b.rejects.get('rows')}"


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "none"
    return ",".join(value) if isinstance(value, tuple) else str(value)
