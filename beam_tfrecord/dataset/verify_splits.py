"""Whether examples are in the split that their bytes, their group or a column decide.

The manifest does not say the shares. But a split is a range of hashes, in the order of the splits:
so no example of a split has a greater hash than any of a later one. Nor does it say which column
names the splits; but that column, where it was written too, holds nothing but their names.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.dataset.verify_faults import Fault
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.exchange.block import ColumnHashes
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.manifest import BY_BYTES, BY_COLUMN, BY_GROUP, Manifest, Shard
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.tfrecord import RecordBlock

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

    def misplaced(self) -> Iterator[Fault]:
        """Yield the shards whose range reaches into that of another split."""
        wrong = list(self._naming.items())
        if wrong and all(paths for _, paths in wrong):
            column, paths = wrong[0]
            for path in sorted(paths):
                message = f"column {column!r} names another split for some of its examples"
                yield Fault(path, "", f"{message}: examples were exchanged")
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
                    yield Fault(
                        path,
                        "",
                        f"the {what} of its examples do not tell split {order[here]!r} from "
                        f"{split!r}: examples were exchanged between them",
                    )
                    break

    def misnamed(self) -> Iterator[Fault]:
        """Yield the shards that are named as those of another split are."""
        for path, split in self._split_of.items():
            named = _NUMBERED.fullmatch(path)
            if named and named[1] != split and named[1] in self._manifest.splits:
                yield Fault(path, "", f"is named as of split {named[1]!r}, but is in {split!r}")

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
