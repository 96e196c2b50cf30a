"""Checks the examples of a dataset for `verify`: schema, splits, and duplicates between splits.

* `SchemaFit` checks that examples fit the schema. The native kernel accepts nearly all records
  without decoding them. Records that it does not accept are decoded, and so are columns whose
  features have to agree with each other (nested lists, maps).
* `SplitChecker` checks that examples are in the right split. If a hash decides the split, each
  split is a range of hashes, and the ranges have the order of the splits: no example has a greater
  hash than an example of a later split. If a column decides the split, the manifest does not record
  its name, so that splits are not checked.
* `DuplicateFinder` finds equal examples in several splits. Only the hashes of the smaller splits
  stay in memory; the hashes of the largest split are looked up among them block by block.
"""

from __future__ import annotations

import dataclasses
import math
import re
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import BeamTFRecordError, DataError
from beam_tfrecord.features.arrow_types import is_binary, is_temporal, is_text
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import BYTES, INT64, VALUES, TFColumn, schema_tf_columns
from beam_tfrecord.format.manifest import BY_BYTES, BY_GROUP, Manifest
from beam_tfrecord.format.manifest_parts import Shard
from beam_tfrecord.format.sort_keys import purpose_seed
from beam_tfrecord.native.kernel_types import KIND_NAMES, FitRule, UInt64Array
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import ColumnHashes
from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.rows.batch import Batch

Hasher = Callable[[RecordBlock], UInt64Array]

_BLOCK_RECORD = re.compile(r"^record \d+: ")
_MAX_VALUES = 2**63 - 1
_INT64_RANGE = -(2**63), 2**63 - 1

# In shards above this size, `SplitChecker` looks at every 16th example: that is enough to detect
# shards that were swapped.
_WHOLE_BYTES, _STEP = 4 * 2**20, 16
_NUMBERED = re.compile(r"(.+)-\d+-of-\d+\.tfrecord(\.gz)?")

# 64 million hashes of 8 bytes: 0.5 GB, sorted in place.
MAX_HASHES = 2**26


class SchemaFit:
    """Checks whether records are examples of a schema."""

    def __init__(self, schema: Schema) -> None:
        columns = list(zip(schema.features, schema_tf_columns(schema), strict=True))
        self._leaves = {leaf.name: leaf for _, column in columns for leaf in column}
        self._rules = sorted(map(_fit_rule, self._leaves.values()), key=lambda rule: rule.name)
        self._decoder = Decoder(schema)
        linked = [feature.name for feature, column in columns if not _rules_suffice(column)]
        self._linked = Decoder(schema, linked) if linked else None

    def first_misfit(self, block: RecordBlock) -> tuple[int, str] | None:
        """Return the first record of a block that does not fit the schema, and the reason."""
        sure = native.fitting_records(block.data, block.starts, self._rules)
        if self._linked is not None:
            try:
                self._linked.decode(block.data, block.starts[:sure])
            except (ValueError, DataError):
                sure = 0
        rest = block.slice(sure, len(block.starts))
        if not len(rest.starts) or self._problem(rest) is None:
            return None
        # Bisection: the shortest run of leading records that does not fit ends with the first
        # record that does not fit.
        low, high = 0, len(rest.starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._problem(rest.slice(low, middle)) is None:
                low = middle
            else:
                high = middle
        one = rest.slice(low, high)
        return one.first_record, self._problem(one) or "does not fit the schema"

    def _problem(self, block: RecordBlock) -> str | None:
        """Return why the records of a block do not fit the schema; None if all fit."""
        try:
            found = native.discover(block.data, block.starts)
            for name, feature in found.items():
                text = name.decode("utf-8", "backslashreplace")
                leaf = self._leaves.get(text)
                if leaf is None and not feature.kind:
                    # It has neither a kind nor a value, so no schema can describe it.
                    continue
                if leaf is None:
                    return f"feature {text!r} is not in the schema"
                if feature.kind not in (0, leaf.kind):
                    kind, known = KIND_NAMES[feature.kind], KIND_NAMES[leaf.kind]
                    return f"feature {text!r} is {kind}, but the schema says {known}"
            for leaf in self._leaves.values():
                seen = found.get(leaf.name.encode())
                if not leaf.nullable and (seen.present_count if seen else 0) < len(block.starts):
                    return f"feature {leaf.name!r} is missing, but the schema marks it as required"
            self._decoder.decode(block.data, block.starts)
        except (ValueError, DataError) as error:
            # The kernel's message names a record by its number in the block, which means nothing
            # to a user.
            return _BLOCK_RECORD.sub("", str(error))
        return None


def _fit_rule(leaf: TFColumn) -> FitRule:
    """Return the kernel's rule for a feature; it accepts no value that decoding would refuse."""
    low, high = _integer_range(leaf)
    exact = None if leaf.shape is None else math.prod(leaf.shape)
    return FitRule(
        name=leaf.name.encode(),
        kind=leaf.kind,
        required=not leaf.nullable,
        min_values=0 if exact is None else exact,
        max_values=_MAX_VALUES if exact is None else exact,
        low=low,
        high=high,
        is_text=leaf.kind == BYTES and (is_text(leaf.type) or leaf.store == "text"),
        value_bytes=_value_bytes(leaf),
    )


def _integer_range(leaf: TFColumn) -> tuple[int, int]:
    arrow = leaf.type
    if leaf.kind != INT64 or leaf.role != VALUES:
        return _INT64_RANGE
    if pa.types.is_boolean(arrow):
        return 0, 1
    if pa.types.is_unsigned_integer(arrow):
        return 0, min(2**arrow.bit_width, 2**63) - 1
    if pa.types.is_integer(arrow) or is_temporal(arrow):
        return -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1
    return _INT64_RANGE


def _value_bytes(leaf: TFColumn) -> int:
    """Return the size of every value of a feature in bytes; -1 if values may have any size."""
    arrow = leaf.type
    if leaf.kind != BYTES:
        return -1
    if pa.types.is_fixed_size_binary(arrow):
        return int(arrow.byte_width)
    return 8 if leaf.store == "bytes" else -1


def _rules_suffice(column: tuple[TFColumn, ...]) -> bool:
    """Return True if the kernel's rules check a column completely.

    They do not if a feature has to agree with another feature, or if its values have to be parsed.
    """
    values = [leaf for leaf in column if leaf.role == VALUES]
    if len(values) < len(column) or not all(map(_is_plain, column)):
        return False
    return len(values) == 1 or all(leaf.depth == 0 for leaf in values)


def _is_plain(leaf: TFColumn) -> bool:
    arrow, types = leaf.type, pa.types
    if leaf.store == "text":
        return False
    is_number = types.is_integer(arrow) or types.is_floating(arrow) or types.is_boolean(arrow)
    return bool(is_number or is_temporal(arrow) or is_text(arrow) or is_binary(arrow))


class SplitChecker:
    """Checks that examples are in shards of their own split; thread-safe."""

    def __init__(self, manifest: Manifest, *, hash_canonical: bool = False) -> None:
        self._manifest = manifest
        self._hash_records = native.canonical_hashes if hash_canonical else native.hash_records
        self._split_of = {
            s.path: name for name, split in manifest.splits.items() for s in split.shards
        }
        # Lowest and highest hash in each shard.
        self._ranges: dict[str, tuple[int, int]] = {}
        self._seed = purpose_seed(manifest.seed, "split")

    def observer(self, shard: Shard) -> Callable[[RecordBlock], None]:
        """Return a function to call with every block of a shard."""
        hasher = self._hasher()
        if hasher is None:
            return lambda block: None
        step = 1 if shard.bytes <= _WHOLE_BYTES else _STEP

        def observe(block: RecordBlock) -> None:
            starts = np.ascontiguousarray(block.starts[::step])
            hashes = hasher(dataclasses.replace(block, starts=starts))
            if len(hashes):
                _extend(self._ranges, shard.path, int(hashes.min()), int(hashes.max()))

        return observe

    def _hasher(self) -> Hasher | None:
        """Return a function that hashes the bytes or columns of examples that decide the split."""
        manifest = self._manifest
        if sum(split.examples > 0 for split in manifest.splits.values()) < 2:
            return None
        if manifest.strata is not None and manifest.strata.column is not None:
            # Hashes are in the order of the splits only within a class.
            return None
        if manifest.split_by == BY_BYTES:
            return lambda block: self._hash_records(block.data, block.starts, self._seed)
        group = manifest.group if manifest.split_by == BY_GROUP else None
        if group and all(name in manifest.schema for name in group):
            return _group_hasher(manifest, group, self._seed)
        return None

    def misplaced(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each shard with examples of another split, and a message."""
        order = list(self._manifest.splits)
        bounds: dict[str, tuple[int, int]] = {}
        for path, (low, high) in self._ranges.items():
            _extend(bounds, self._split_of[path], low, high)
        what = "examples" if self._manifest.split_by == BY_BYTES else "groups"
        for path, (low, high) in self._ranges.items():
            here = self._split_of[path]
            before, after = order[: order.index(here)], order[order.index(here) + 1 :]
            others = [name for name in before if name in bounds and low <= bounds[name][1]]
            others += [name for name in after if name in bounds and high >= bounds[name][0]]
            if others:
                yield (
                    path,
                    f"the hashes of its {what} and those of split {others[0]!r} are out of order: "
                    "examples were swapped between the splits",
                )

    def misnamed(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each shard that has the name of another split, and a message."""
        for path, split in self._split_of.items():
            named = _NUMBERED.fullmatch(path)
            if named and named[1] != split and named[1] in self._manifest.splits:
                yield (
                    path,
                    f"is named like a shard of split {named[1]!r} but is listed under {split!r}",
                )


def _extend(ranges: dict[str, tuple[int, int]], key: str, low: int, high: int) -> None:
    old_low, old_high = ranges.get(key, (low, high))
    ranges[key] = min(low, old_low), max(high, old_high)


def _group_hasher(manifest: Manifest, columns: tuple[str, ...], seed: int) -> Hasher:
    """Return a function that hashes the values of the group columns of each example in a block.

    The values are hashed as `write` hashes them, before they are stored.
    """
    decoder = Decoder(manifest.schema, columns)
    hashes = ColumnHashes(manifest.schema)

    def hash_groups(block: RecordBlock) -> UInt64Array:
        try:
            data = decoder.decode(block.data, block.starts)
            return hashes.hashes(Batch(data), columns, np.arange(data.num_rows), seed)
        except (BeamTFRecordError, ValueError):
            # `SchemaFit` reports examples that do not fit the schema.
            return np.zeros(0, np.uint64)

    return hash_groups


class _HashSet:
    """A set of hashes that is fast at looking up many hashes, most of which are not in it.

    A Bloom filter comes first. It has both bits of a hash in one word, so that one memory access
    decides (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, 2007). It
    needs 2 to 4 bytes per hash, and lets pass about 2 % of the hashes that are not in the set.
    """

    def __init__(self, hashes: UInt64Array) -> None:
        self.sorted = np.sort(hashes)
        bits = max(len(hashes) // 4, 2).bit_length()
        self._shift = np.uint64(64 - bits)
        self._sieve = np.zeros(2**bits, np.uint64)
        np.bitwise_or.at(self._sieve, hashes >> self._shift, _two_bits(hashes))

    def common(self, hashes: UInt64Array) -> UInt64Array:
        """Return the hashes among `hashes` that are in the set."""
        bits = _two_bits(hashes)
        likely = hashes[self._sieve[hashes >> self._shift] & bits == bits]
        positions = np.searchsorted(self.sorted, likely)
        positions[positions == len(self.sorted)] = 0
        found: UInt64Array = likely[self.sorted[positions] == likely]
        return found


def _two_bits(hashes: UInt64Array) -> UInt64Array:
    # From the middle bits of a hash: the high bits choose the word, and the low bits choose the
    # examples that are looked at (see `DuplicateFinder.sample_every`).
    one, six_bits = np.uint64(1), np.uint64(63)
    first, second = hashes >> np.uint64(24), hashes >> np.uint64(30)
    bits: UInt64Array = one << (first & six_bits) | one << (second & six_bits)
    return bits


class DuplicateFinder:
    """Finds equal examples in several splits; thread-safe.

    It searches nothing if fewer than two splits have examples. Nor does it if columns decide the
    split or the order: then equal examples may come from rows that differ in columns that were not
    written.
    """

    def __init__(self, manifest: Manifest) -> None:
        filled = {name: split for name, split in manifest.splits.items() if split.examples}
        if len(filled) < 2 or manifest.group is not None or manifest.key is not None:
            filled = {}
        self.largest = max(filled, key=lambda name: filled[name].examples, default="")
        smaller = [split for name, split in filled.items() if name != self.largest]
        self.sample_every = 1
        while sum(split.examples for split in smaller) // self.sample_every > MAX_HASHES:
            self.sample_every *= 2
        self._split_of = {s.path: name for name, split in filled.items() for s in split.shards}
        self._awaited = sum(len(split.shards) for split in smaller)
        self._lock = threading.Lock()
        # By split, the hashes that may be in another split, too.
        self._found: dict[str, list[UInt64Array]] = {name: [_NO_HASHES] for name in filled}
        self._of_smaller: _HashSet | None = None
        self._shared_by_smaller = _NO_HASHES

    def add(self, path: str, hashes: UInt64Array) -> None:
        """Add the hashes of a block of examples of a shard."""
        split = self._split_of.get(path)
        if split is None:
            return
        if self.sample_every > 1:
            hashes = hashes[hashes & np.uint64(self.sample_every - 1) == 0]
        if self._of_smaller is not None and split == self.largest:
            hashes = self._of_smaller.common(hashes)
        self._found[split].append(hashes)

    def end_shard(self, path: str) -> None:
        """Record that all hashes of a shard were added."""
        if self._split_of.get(path, self.largest) != self.largest:
            with self._lock:
                self._awaited -= 1
                if not self._awaited:
                    self._end_smaller()

    def shared(self) -> UInt64Array:
        """Return the distinct hashes that are in several splits; call this once, at the end."""
        if self._of_smaller is None:
            return _NO_HASHES
        # `add` has not looked up the hashes that it got before the smaller splits were complete.
        of_largest = self._of_smaller.common(np.concatenate(self._found[self.largest]))
        return np.unique(np.concatenate([self._shared_by_smaller, of_largest]))

    def note(self, shared: UInt64Array) -> str:
        """Return the number of hashes that are in several splits as a sentence."""
        part = f" (among one in {self.sample_every} examples)" if self.sample_every > 1 else ""
        return f"{len(shared):,} distinct examples{part} are in more than one split"

    def _end_smaller(self) -> None:
        smaller = [name for name in self._found if name != self.largest]
        parts = [np.concatenate(self._found.pop(name)) for name in smaller]
        hashes = _HashSet(np.concatenate(parts))
        twice = np.unique(hashes.sorted[1:][hashes.sorted[1:] == hashes.sorted[:-1]])
        if len(twice):
            # A hash may be twice in one split, or in several splits.
            splits = sum(np.isin(twice, part).astype(int) for part in parts)
            self._shared_by_smaller = twice[splits > 1]
        self._of_smaller = hashes


_NO_HASHES: UInt64Array = np.empty(0, dtype=np.uint64)
