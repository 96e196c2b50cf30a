"""Compares two datasets: `diff` finds differences of rows, splits, schemas and settings.

The order of the rows, and their distribution over files, makes no difference to the data.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.base.text import MAX_ROWS, counted, rest_lines
from beam_tfrecord.check.show import render_rows
from beam_tfrecord.dataset.load import load
from beam_tfrecord.features.arrow_types import type_text
from beam_tfrecord.features.python_rows import python_rows
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest import BY_BYTES, Manifest
from beam_tfrecord.format.manifest_parts import Split
from beam_tfrecord.format.sort_keys import purpose_seed
from beam_tfrecord.loading.value_text import json_value
from beam_tfrecord.native.kernel_types import UInt64Array

# The split of one name in the first dataset and in the second.
SplitPair = tuple[Split, Split]

# Settings that users choose, by attribute of the manifest, and the words for some of their values.
_SETTINGS = {
    "order": "order",
    "seed": "seed",
    "compression": "compression",
    "key": "key",
    "group": "group",
    "split_by": "basis of the splits",
}
_WORDS = {None: "none", "": "none", "source": "that of the input", "GZIP": "gzip", BY_BYTES: "row"}
_NO_SPLIT = Split(())
_ROWS_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class SplitDifference:
    """The difference between the rows of one split in two datasets.

    Equal rows count as often as they occur.
    """

    name: str
    rows_a: int
    rows_b: int
    removed: int
    added: int
    # Not compared: the arrays of tensors have no single truth value.
    removed_rows: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), compare=False)
    added_rows: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), compare=False)

    @property
    def same(self) -> bool:
        """True if the rows are the same."""
        return not (self.removed or self.added)

    def lines(self, max_width: int | None = None) -> list[str]:
        """Return the counts, and a table of rows that only A or only B has."""
        counts = (
            f"split {self.name}: {counted(self.rows_a, 'row')} in A, {self.rows_b:,} in B: "
            f"{self.removed:,} only in A, {self.added:,} only in B"
        )
        sides = {"A": self.removed_rows, "B": self.added_rows}
        names = dict.fromkeys(name for rows in sides.values() for row in rows for name in row)
        rows = [
            {"": side} | {name: row.get(name) for name in names}
            for side, shown in sides.items()
            for row in shown
        ]
        return [counts, *render_rows(rows, max_width=max_width).splitlines()]


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference between two datasets."""

    schema: tuple[str, ...]
    splits: tuple[SplitDifference, ...]
    moved: int
    notes: tuple[str, ...]

    @property
    def same_data(self) -> bool:
        """True if the schemas, and the rows of every split, are the same."""
        return not self.schema and all(split.same for split in self.splits)

    def to_json(self) -> dict[str, Any]:
        """Return the differences as a JSON object; the values of rows as `json_value` has them."""
        found: dict[str, Any] = json_value(dataclasses.asdict(self))
        return found | {"same_data": self.same_data}

    def __str__(self) -> str:
        return "\n".join([*self.lines(), self.summary])

    @property
    def summary(self) -> str:
        """Whether the data is the same, in words."""
        return "the data is the same" if self.same_data else "the data differs"

    def lines(self, max_width: int | None = None) -> list[str]:
        """Return the differences of A, the first dataset, and B as text; empty if none differs."""
        out = [*self.schema[:MAX_ROWS], *rest_lines(self.schema, MAX_ROWS)]
        for split in self.splits:
            if not split.same:
                out += split.lines(max_width)
        if self.moved:
            out.append(f"rows in both, but in different splits: {self.moved:,}")
        return out + [f"note: {line}" for line in self.notes]


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Difference:
    """Compare two datasets: schema, splits, and rows by their content.

    Datasets that differ only in the order of their rows or in their shards have the same data. Rows
    are compared by a 64-bit hash of their example in canonical form, the one serialization that all
    equal examples share.

    A split is read only if the hashes of its shards differ, and then needs 8 bytes of memory per
    row. A second pass reads the first rows that differ. The only split of two datasets is not read
    either if the manifests have the same hash and number of all rows. So of the damage that files
    can have, only missing files and wrong sizes are always found: `verify` finds all.

    Args:
        a: Path of the first dataset: its directory, manifest, or file prefix.
        b: Path of the second dataset.

    Returns:
        All differences.

    Raises:
        UsageError: There is no dataset at `a` or `b`.
        DataError: A shard is missing or has a wrong size, or a file that is read is damaged.

    Example:
        >>> bt.diff("penguins/", "penguins/").same_data
        True
    """
    first, second = Manifest.load(a), Manifest.load(b)
    for path in (a, b):
        load(path).check_files()
    names = dict.fromkeys((*first.splits, *second.splits))
    pairs = {
        name: (first.splits.get(name, _NO_SPLIT), second.splits.get(name, _NO_SPLIT))
        for name in names
    }
    # Only one of two manifests may name a split without rows, which makes no difference.
    pairs = {name: pair for name, pair in pairs.items() if pair[0].examples or pair[1].examples}
    same = (first.content, first.examples) == (second.content, second.examples)
    splits, moved = _compare_rows(a, b, {} if same and len(pairs) == 1 else pairs)
    found = [
        splits.get(name, SplitDifference(name, one.examples, other.examples, 0, 0))
        for name, (one, other) in pairs.items()
    ]
    schema = tuple(_schema_lines(first.schema, second.schema))
    return Difference(schema, tuple(found), moved, tuple(_notes(first, second)))


def _compare_rows(
    a: str | os.PathLike[str], b: str | os.PathLike[str], pairs: Mapping[str, SplitPair]
) -> tuple[dict[str, SplitDifference], int]:
    """Return the differences of splits whose shards differ, and the number of moved rows."""
    splits: dict[str, SplitDifference] = {}
    removed, added = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for name, (one, other) in pairs.items():
        if _shard_hashes(one) != _shard_hashes(other):
            hashes = _row_hashes(a, name, one), _row_hashes(b, name, other)
            only_a, only_b = multiset_difference(*hashes)
            splits[name] = SplitDifference(
                name,
                *(one.examples, other.examples, len(only_a), len(only_b)),
                removed_rows=_rows_of(a, name, hashes[0], only_a),
                added_rows=_rows_of(b, name, hashes[1], only_b),
            )
            removed.append(only_a)
            added.append(only_b)
    all_removed = np.concatenate(removed)
    only_removed, _ = multiset_difference(all_removed, np.concatenate(added))
    return splits, len(all_removed) - len(only_removed)


def _shard_hashes(split: Split) -> list[tuple[int, int, str]]:
    return [(shard.examples, shard.bytes, shard.xxh64) for shard in split.shards]


def _row_hashes(path: str | os.PathLike[str], name: str, split: Split) -> UInt64Array:
    """Return the hash of every example of a split, shape `[rows]`."""
    if not split.examples:
        return np.empty(0, dtype=np.uint64)
    seed = purpose_seed(0, "content")
    return np.concatenate(
        [
            native.canonical_hashes(block.data, block.starts, seed)
            for _, block in load(path, split=name).blocks()
        ]
    )


def _rows_of(
    path: str | os.PathLike[str], name: str, hashes: UInt64Array, surplus: UInt64Array
) -> tuple[dict[str, Any], ...]:
    """Return the first different rows of a split whose hashes are in `surplus`."""
    if not len(surplus):
        return ()
    numbers = np.flatnonzero(np.isin(hashes, surplus))
    _, first = np.unique(hashes[numbers], return_index=True)
    wanted = numbers[np.sort(first)[:_ROWS_SHOWN]].tolist()
    rows: list[dict[str, Any]] = []
    start = 0
    for batch in load(path, split=name).batches():
        here = [number - start for number in wanted if start <= number < start + batch.num_rows]
        rows += [row for number in here for row in python_rows(batch.slice(number, 1))]
        if len(rows) == len(wanted):
            break
        start += batch.num_rows
    return tuple(rows)


def multiset_difference(a: UInt64Array, b: UInt64Array) -> tuple[UInt64Array, UInt64Array]:
    """Return the values that are surplus in `a`, and those that are surplus in `b`.

    A value that occurs n times more in one array than in the other is returned n times.
    """
    values, indices = np.unique(np.concatenate([a, b]), return_inverse=True)
    surplus = np.bincount(indices[: len(a)], minlength=len(values))
    surplus -= np.bincount(indices[len(a) :], minlength=len(values))
    only_a = np.repeat(values, np.maximum(surplus, 0))
    only_b = np.repeat(values, np.maximum(-surplus, 0))
    return only_a, only_b


def _schema_lines(a: Schema, b: Schema) -> Iterator[str]:
    for name in a.names:
        if name not in b:
            yield f"column {name!r} ({type_text(a[name].type)}) is only in A"
            continue
        if a[name].type != b[name].type:
            types = type_text(a[name].type), type_text(b[name].type)
            yield f"column {name!r} is {types[0]} in A, {types[1]} in B"
        if a[name].store != b[name].store:
            yield f"column {name!r} is stored as {a[name].store} in A, {b[name].store} in B"
        yield from _unequal(f"NumPy's type of column {name!r}", a[name].dtype, b[name].dtype)
        for number, names in enumerate(itertools.zip_longest(a[name].labels, b[name].labels)):
            yield from _unequal(f"class {number} of column {name!r}", *map(repr, names))
    for name in b.names:
        if name not in a:
            yield f"column {name!r} ({type_text(b[name].type)}) is only in B"


def _notes(a: Manifest, b: Manifest) -> Iterator[str]:
    for attribute, setting in _SETTINGS.items():
        yield from _unequal(setting, getattr(a, attribute), getattr(b, attribute))
    common = [name for name in a.schema.names if name in b.schema]
    if common != [name for name in b.schema.names if name in a.schema]:
        yield "the columns are in another order"
    for name in common:
        before, after = a.schema[name], b.schema[name]
        for option in ("nullable", "default", "fill", "allowed"):
            values = getattr(before, option), getattr(after, option)
            yield from _unequal(f"{option} of column {name!r}", *values)
    for name in a.splits:
        if name in b.splits:
            shards = len(a.splits[name].shards), len(b.splits[name].shards)
            yield from _unequal(f"number of shards of split {name}", *shards)
    yield from _unequal("number of rejected rows", a.rejected_rows, b.rejected_rows)


def _unequal(what: str, before: Any, after: Any) -> Iterator[str]:
    if before != after:
        yield f"{what} is {_shown(before)} in A, {_shown(after)} in B"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value)
    # Defaults and limits may be lists or dicts, which have no hash.
    return str(value) if isinstance(value, list | dict) else _WORDS.get(value, str(value))
