"""What `verify` checks of examples: the schema, their splits, and duplicates between splits."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import threading
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import BeamTFRecordError, DataError
from beam_tfrecord.exchange.column_hashes import ColumnHashes
from beam_tfrecord.features.leaves import (
    BYTES,
    INT64,
    SHAPE,
    VALUES,
    Leaf,
    schema_leaves,
    value_count,
)
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.type_kinds import is_binary, is_temporal, is_tensor, is_text
from beam_tfrecord.manifest import BY_BYTES, BY_COLUMN, BY_GROUP, Manifest, Shard
from beam_tfrecord.native.values import KIND_NAMES, FitRule
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.records.blocks import RecordBlock
from beam_tfrecord.records.decoding import Decoder

_BLOCK_RECORD = re.compile(r"^record \d+: ")
_MOST_VALUES = 2**63 - 1


class SchemaFit:
    """Tells whether records are examples of a schema.

    Args:
        schema: The schema.
        examples: How many there are in all files.
    """

    def __init__(self, schema: Schema, examples: int) -> None:
        columns = schema_leaves(schema)
        self._leaves = {leaf.name: leaf for column in columns for leaf in column}
        self._rules = sorted(map(fit_rule, self._leaves.values()), key=lambda rule: rule.name)
        self._decoder = Decoder(schema)
        linked = [
            feature.name
            for feature, column in zip(schema.features, columns, strict=True)
            if not _rules_suffice(column)
        ]
        self._linked = Decoder(schema, linked) if linked else None
        # What is never missing is looked for in every record; what always is, in none.
        self._columns = {
            leaf.name: feature.name
            for feature, column in zip(schema.features, columns, strict=True)
            for leaf in column
        }
        self._unseen = {
            feature.name
            for feature in schema.features
            if feature.nullable and feature.observed and feature.observed.missing < examples
        }

    def first_misfit(self, block: RecordBlock) -> tuple[int, str] | None:
        """Return the number within the file, and the fault, of a block's first misfit."""
        if self._unseen:
            self._look_for_unseen(block)
        sure = native.fitting_records(block.data, block.starts, self._rules)
        if self._linked is not None and not self._decodes(self._linked, block.slice(0, sure)):
            sure = 0
        rest = block.slice(sure, len(block.starts))
        if not len(rest.starts) or self._problem(rest) is None:
            return None
        # The shortest beginning that does not fit ends with the record at fault.
        low, high = 0, len(rest.starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._problem(rest.slice(low, middle)) is None:
                low = middle
            else:
                high = middle
        one = rest.slice(low, high)
        return one.first_record, self._problem(one) or "does not fit the schema"

    def unseen(self) -> tuple[str, ...]:
        """Return the columns that may be missing and were missing in all records so far."""
        return tuple(sorted(self._unseen))

    def _look_for_unseen(self, block: RecordBlock) -> None:
        with contextlib.suppress(ValueError):
            for name, feature in native.discover(block.data, block.starts).items():
                if feature.present_count:
                    self._unseen.discard(self._columns.get(name.decode("utf-8", "replace"), ""))

    @staticmethod
    def _decodes(decoder: Decoder, block: RecordBlock) -> bool:
        try:
            decoder.decode(block.data, block.starts)
        except (ValueError, DataError):
            return False
        return True

    def _problem(self, block: RecordBlock) -> str | None:
        try:
            found = native.discover(block.data, block.starts)
            for name, feature in found.items():
                text = name.decode("utf-8", "backslashreplace")
                leaf = self._leaves.get(text)
                if leaf is None:
                    return f"feature {text!r} is not in the schema"
                if feature.kind not in (0, leaf.kind):
                    return (
                        f"feature {text!r} is {KIND_NAMES[feature.kind]}, the schema says "
                        f"{KIND_NAMES[leaf.kind]}"
                    )
            for leaf in self._leaves.values():
                seen = found.get(leaf.name.encode())
                if not leaf.nullable and (seen.present_count if seen else 0) < len(block.starts):
                    return f"feature {leaf.name!r} is missing, the schema says it never is"
            self._decoder.decode(block.data, block.starts)
        except (ValueError, DataError) as error:
            # The kernel counts records within the block, which nobody sees.
            return _BLOCK_RECORD.sub("", str(error))
        return None


def fit_rule(leaf: Leaf) -> FitRule:
    """Return what the kernel is told of a feature: never more than decoding would accept."""
    low, high = _range(leaf)
    exact = None if leaf.shape is None else value_count(leaf.shape)
    return FitRule(
        name=leaf.name.encode(),
        kind=leaf.kind,
        required=not leaf.nullable,
        min_values=0 if exact is None else exact,
        max_values=_MOST_VALUES if exact is None else exact,
        low=low,
        high=high,
        is_text=leaf.kind == BYTES and (is_text(leaf.type) or leaf.store == "text"),
        value_bytes=_value_bytes(leaf),
    )


def _range(leaf: Leaf) -> tuple[int, int]:
    arrow = leaf.type
    if leaf.kind != INT64 or leaf.role != VALUES:
        return -(2**63), 2**63 - 1
    if pa.types.is_boolean(arrow):
        return 0, 1
    if pa.types.is_unsigned_integer(arrow):
        return 0, min(2**arrow.bit_width, 2**63) - 1
    if pa.types.is_integer(arrow) or is_temporal(arrow):
        return -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1
    return -(2**63), 2**63 - 1


def _value_bytes(leaf: Leaf) -> int:
    arrow = leaf.type
    if leaf.kind != BYTES:
        return -1
    if is_tensor(arrow):
        item_bytes = max(1, int(arrow.value_type.bit_width) // 8)
        return value_count(tuple(arrow.shape)) * item_bytes
    if pa.types.is_fixed_size_binary(arrow):
        return int(arrow.byte_width)
    return 8 if leaf.store == "bytes" else -1


def _rules_suffice(column: tuple[Leaf, ...]) -> bool:
    """Tell whether no feature of a column has to agree with another one, or be parsed."""
    values = [leaf for leaf in column if leaf.role == VALUES]
    # The shape of a tensor of a fixed one says nothing new; any other has to agree with its values.
    others = {leaf.role for leaf in column} - {VALUES}
    if others and not (others == {SHAPE} and is_tensor(values[0].type)):
        return False
    if not all(map(_is_plain, column)):
        return False
    return len(values) == 1 or all(leaf.depth == 0 for leaf in values)


def _is_plain(leaf: Leaf) -> bool:
    arrow = leaf.type
    if leaf.store == "text":
        return False
    if is_tensor(arrow):
        return not pa.types.is_boolean(arrow.value_type)
    types = pa.types
    return bool(
        types.is_integer(arrow)
        or types.is_floating(arrow)
        or types.is_boolean(arrow)
        or is_temporal(arrow)
        or is_text(arrow)
        or is_binary(arrow)
    )


UInt64Array = npt.NDArray[np.uint64]
Hasher = Callable[[RecordBlock], UInt64Array]

# Of larger shards one example in so many is looked at: exchanged shards are found all the same.
_WHOLE_BYTES, _STEP = 4 * 2**20, 16
_NUMBERED = re.compile(r"(.+)-\d+-of-\d+\.tfrecord(\.gz)?")


class SplitChecker:
    """Finds what decides the split of the examples of each shard; one object serves all threads.

    Args:
        manifest: Of the dataset.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._split_of = {
            s.path: name for name, split in manifest.splits.items() for s in split.shards
        }
        self._ranges: dict[str, tuple[int, int]] = {}
        self._seed = purpose_seed(manifest.seed, "split")
        self._columns = manifest.group or ()
        # Of a column that may name the splits: the shards where it names another one.
        self._naming: dict[str, set[str]] = {}
        if manifest.split_by == BY_COLUMN:
            self._naming = {f.name: set() for f in manifest.schema.features if _can_name(f.type)}
        self._has_hashes = sum(split.examples > 0 for split in manifest.splits.values()) > 1 and (
            manifest.split_by == BY_BYTES or self._decides_by_group()
        )

    def looker(self, shard: Shard, *, is_canonical: bool = False) -> Callable[[RecordBlock], None]:
        """Return what takes note of the blocks of a shard.

        Args:
            shard: The shard.
            is_canonical: Hash the canonical form of examples, as of those that came encoded.
        """
        look: Callable[[RecordBlock], None]
        if self._has_hashes:
            hashes = self._hasher(is_canonical)

            def look(block: RecordBlock) -> None:
                self._add(shard.path, hashes(block))

        elif self._naming and len(self._manifest.splits) > 1:
            look = functools.partial(self._compare, shard.path)
        else:
            return lambda block: None
        step = 1 if shard.bytes <= _WHOLE_BYTES else _STEP
        return lambda block: look(
            dataclasses.replace(block, starts=np.ascontiguousarray(block.starts[::step]))
        )

    def _compare(self, path: str, block: RecordBlock) -> None:
        split, names = self._split_of[path], set(self._manifest.splits)
        for column in list(self._naming):
            with contextlib.suppress(BeamTFRecordError, ValueError, pa.ArrowException):
                data = Decoder(self._manifest.schema, [column]).decode(block.data, block.starts)
                named = set(pc.unique(data.column(0).cast(pa.string())).to_pylist())
                if not named <= names:
                    self._naming.pop(column, None)
                elif named - {split} and (wrong := self._naming.get(column)) is not None:
                    wrong.add(path)

    def _hasher(self, is_canonical: bool) -> Hasher:
        if self._manifest.split_by == BY_GROUP:
            return _GroupHasher(self._manifest, self._columns, self._seed)
        hash_all = native.canonical_hashes if is_canonical else native.hash_records
        return lambda block: hash_all(block.data, block.starts, self._seed)

    def _add(self, path: str, hashes: UInt64Array) -> None:
        """Take note of some hashes of a shard."""
        if len(hashes):
            low, high = int(hashes.min()), int(hashes.max())
            old_low, old_high = self._ranges.get(path, (low, high))
            self._ranges[path] = min(low, old_low), max(high, old_high)

    def clear(self) -> None:
        """Forget all hashes."""
        self._ranges.clear()

    def misplaced(self) -> Iterator[tuple[str, str]]:
        """Yield the shards whose range reaches into that of another split."""
        wrong = list(self._naming.items())
        if wrong and all(paths for _, paths in wrong):
            column, paths = wrong[0]
            for path in sorted(paths):
                message = f"column {column!r} names another split for some of its examples"
                yield path, f"{message}: examples were exchanged"
        order = list(self._manifest.splits)
        bounds: dict[str, tuple[int, int]] = {}
        for path, (low, high) in self._ranges.items():
            split = self._split_of[path]
            old_low, old_high = bounds.get(split, (low, high))
            bounds[split] = min(low, old_low), max(high, old_high)
        for path, (low, high) in self._ranges.items():
            here = order.index(self._split_of[path])
            for split, (other_low, other_high) in bounds.items():
                there = order.index(split)
                if (there > here and high >= other_low) or (there < here and low <= other_high):
                    what = "bytes" if self._manifest.split_by == BY_BYTES else "groups"
                    yield (
                        path,
                        f"the {what} of its examples do not tell split {order[here]!r} from "
                        f"{split!r}: examples were exchanged between them",
                    )
                    break

    def misnamed(self) -> Iterator[tuple[str, str]]:
        """Yield the shards that are named as those of another split are."""
        for path, split in self._split_of.items():
            named = _NUMBERED.fullmatch(path)
            if named and named[1] != split and named[1] in self._manifest.splits:
                yield path, f"is named as of split {named[1]!r}, but is in {split!r}"

    def _decides_by_group(self) -> bool:
        names = self._manifest.schema.names
        return (
            self._manifest.split_by == BY_GROUP
            and bool(self._columns)
            and all(name in names for name in self._columns)
        )


def _can_name(arrow: pa.DataType) -> bool:
    return is_text(arrow) or pa.types.is_integer(arrow) or pa.types.is_boolean(arrow)


class _GroupHasher:
    """Hashes the columns of the group, as they were before they were stored.

    Of floats it leaves out zeros and NaNs: older versions told those apart that are equal.
    """

    def __init__(self, manifest: Manifest, columns: tuple[str, ...], seed: int) -> None:
        self._decoder = Decoder(manifest.schema, columns)
        self._hashes = ColumnHashes(manifest.schema)
        self._columns, self._seed = columns, seed

    def __call__(self, block: RecordBlock) -> UInt64Array:
        try:
            data = self._decoder.decode(block.data, block.starts)
            rows = np.flatnonzero(~_is_ambiguous(data))
            return self._hashes.hashes(Batch(data), self._columns, rows, self._seed)
        except (BeamTFRecordError, ValueError):
            # Examples that do not fit the schema are told of where that is looked at.
            return np.zeros(0, np.uint64)


def _is_ambiguous(data: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    found = np.zeros(data.num_rows, np.bool_)
    for column in data.columns:
        if pa.types.is_floating(column.type):
            values = pc.fill_null(column, 1).to_numpy(zero_copy_only=False)
            found |= np.isnan(values) | (values == 0)
        elif pa.types.is_nested(column.type):
            found[:] = True
    return found


# 64 million hashes of 8 bytes: 0.5 GB, sorted in place.
MAX_HASHES = 2**26


class _HashSet:
    """Hashes that many others, mostly not among them, are looked up in.

    About two in a hundred others pass the sieve that comes first, a Bloom filter with both bits of
    a hash in one word (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters,
    2007), so that one memory access decides. It takes 2 to 4 bytes a hash.
    """

    def __init__(self, hashes: UInt64Array) -> None:
        self._sorted = np.sort(hashes)
        bits = max(len(hashes) // 4, 2).bit_length()
        self._shift = np.uint64(64 - bits)
        self._sieve = np.zeros(2**bits, np.uint64)
        np.bitwise_or.at(self._sieve, hashes >> self._shift, _two_bits(hashes))

    def twice(self) -> UInt64Array:
        """Return the distinct hashes that were given more than once."""
        return np.unique(self._sorted[1:][self._sorted[1:] == self._sorted[:-1]])

    def common(self, hashes: UInt64Array) -> UInt64Array:
        """Return those of `hashes` that are in the set."""
        bits = _two_bits(hashes)
        likely = hashes[self._sieve[hashes >> self._shift] & bits == bits]
        places = np.searchsorted(self._sorted, likely)
        places[places == len(self._sorted)] = 0
        found: UInt64Array = likely[self._sorted[places] == likely]
        return found


def _two_bits(hashes: UInt64Array) -> UInt64Array:
    # Neither from the high bits, which choose the word, nor from the low ones, which choose the
    # part that is looked at.
    one, six_bits = np.uint64(1), np.uint64(63)
    first, second = hashes >> np.uint64(24), hashes >> np.uint64(30)
    bits: UInt64Array = one << (first & six_bits) | one << (second & six_bits)
    return bits


class DuplicateFinder:
    """Finds the examples that are in several splits; one object serves all threads.

    Args:
        manifest: Of the dataset. Where it has fewer than two splits with examples, nothing is
            looked for; nor where columns decide the split, since then equal examples may differ in
            columns that were left out.
    """

    def __init__(self, manifest: Manifest) -> None:
        filled = {name: split for name, split in manifest.splits.items() if split.examples}
        by_columns = manifest.group is not None or manifest.key is not None
        self.is_needed = len(filled) > 1 and not by_columns
        self.largest = max(filled, key=lambda name: filled[name].examples, default="")
        smaller = [split for name, split in filled.items() if name != self.largest]
        self._split_of = {s.path: name for name, split in filled.items() for s in split.shards}
        self._mask = _part_mask(sum(split.examples for split in smaller))
        self._awaited = sum(len(split.shards) for split in smaller)
        self._lock = threading.Lock()
        self._of_split: dict[str, list[UInt64Array]] = {name: [] for name in filled}
        self._of_smaller = _no_hashes()
        self._kept: _HashSet | None = None

    @property
    def parts(self) -> int:
        """Only one in so many examples is looked at."""
        return int(self._mask) + 1

    def candidates(self, path: str, hashes: UInt64Array) -> UInt64Array:
        """Return those of a shard's `hashes` that have to be kept until the shard's end."""
        if self._mask:
            hashes = hashes[hashes & self._mask == 0]
        if self._kept is None or self._split_of[path] != self.largest:
            return hashes
        return self._kept.common(hashes)

    def end_shard(self, path: str, candidates: list[UInt64Array]) -> None:
        """Take what `candidates` gave for all of a shard."""
        split = self._split_of[path]
        with self._lock:
            self._of_split[split] += candidates
            if split != self.largest:
                self._awaited -= 1
                if not self._awaited:
                    self._keep_smaller()

    def shared(self) -> UInt64Array:
        """Return the distinct hashes that are in several splits; to be called once, at the end."""
        if self._kept is None:
            return _no_hashes()
        # Some came before the others were kept.
        of_largest = self._kept.common(_joined(self._of_split[self.largest]))
        return np.unique(_joined([self._of_smaller, of_largest]))

    def _keep_smaller(self) -> None:
        smaller = [name for name in self._of_split if name != self.largest]
        parts = [_joined(self._of_split.pop(name)) for name in smaller]
        kept = _HashSet(_joined(parts))
        twice = kept.twice()
        if len(twice):  # In one split, or in several.
            splits = sum(np.isin(twice, hashes).astype(int) for hashes in parts)
            self._of_smaller = twice[splits > 1]
        self._kept = kept


def _part_mask(examples: int) -> np.uint64:
    """Return the bits that must be zero in the hashes that are looked at."""
    parts = 1
    while examples // parts > MAX_HASHES:
        parts *= 2
    return np.uint64(parts - 1)


def _joined(parts: list[UInt64Array]) -> UInt64Array:
    # Nothing is there of a shard that cannot be read.
    return np.concatenate([_no_hashes(), *parts])


def _no_hashes() -> UInt64Array:
    return np.empty(0, dtype=np.uint64)
