"""Whether examples are in the split that their bytes, or the columns of their group, decide.

The manifest does not say the shares. But a split is a range of hashes, in the order of the splits:
so no example of a split has a greater hash than any of a later one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.exchange.column_hashes import ColumnHashes
from beam_tfrecord.loading.blocks import RecordBlock
from beam_tfrecord.manifest import BY_BYTES, BY_GROUP, Manifest
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.upkeep.verify_faults import Fault

UInt64Array = npt.NDArray[np.uint64]
Hasher = Callable[[RecordBlock], UInt64Array]

_NUMBERED = re.compile(r"(.+)-\d+-of-\d+\.tfrecord(\.gz)?")


class SplitRanges:
    """Finds the range of hashes of every shard; one object serves all threads.

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
        self.is_needed = sum(split.examples > 0 for split in manifest.splits.values()) > 1 and (
            manifest.split_by == BY_BYTES or self._decides_by_group()
        )

    def hasher(self, *, is_canonical: bool = False) -> Hasher:
        """Return what hashes the records of a block, for one thread.

        Args:
            is_canonical: Hash the canonical form of examples, as of those that came encoded.
        """
        if self._manifest.split_by == BY_GROUP:
            return _GroupHasher(self._manifest, self._columns, self._seed)
        hash_all = native.canonical_hashes if is_canonical else native.hash_records
        return lambda block: hash_all(block.data, block.starts, self._seed)

    def add(self, path: str, hashes: UInt64Array) -> None:
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
