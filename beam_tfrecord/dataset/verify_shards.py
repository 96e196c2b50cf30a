"""Checking one shard: its checksums, its sums against the manifest, and the schema."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from beam_tfrecord import native
from beam_tfrecord.dataset.verify_duplicates import DuplicateFinder
from beam_tfrecord.dataset.verify_faults import Fault
from beam_tfrecord.dataset.verify_fit import SchemaFit
from beam_tfrecord.dataset.verify_splits import SplitChecker
from beam_tfrecord.errors import DataError
from beam_tfrecord.manifest import Manifest, Shard
from beam_tfrecord.places import purpose_seed
from beam_tfrecord.records.tfrecord import RecordFault, read_blocks

_FAULTS_A_SHARD = 100
# Large enough that threads seldom wait for each other, small enough for the shared cache.
_BLOCK_BYTES = 2**22


@dataclasses.dataclass(frozen=True)
class CheckedShard:
    """What reading one shard gave.

    Attributes:
        faults: What is wrong.
        examples: Sound examples.
        bytes: Size of the sound part of the record stream.
        content: Sum of the hashes of the examples.
    """

    faults: list[Fault]
    examples: int = 0
    bytes: int = 0
    content: int = 0


class ShardChecker:
    """Checks shards; one object serves all threads.

    Args:
        directory: Where the shards are.
        manifest: What is said of them.
        duplicates: Told the hashes of the examples.
        splits: Told what decides their splits.
    """

    def __init__(
        self,
        directory: str,
        manifest: Manifest,
        duplicates: DuplicateFinder,
        splits: SplitChecker,
    ) -> None:
        self._directory = directory
        self._compression = manifest.compression
        self._fit = SchemaFit(manifest.schema, manifest.examples)
        self._seed = purpose_seed(0, "content")
        self._duplicates = duplicates
        self._splits = splits

    def check(self, shard: Shard) -> CheckedShard:
        """Read a shard and compare it with what the manifest says."""
        faults: list[Fault] = []

        def damaged(fault: RecordFault) -> None:
            faults.append(Fault(shard.path, fault.where, fault.reason))

        path = os.path.join(self._directory, shard.path)
        looks_for_duplicates = self._duplicates.is_needed and shard.examples > 0
        stream_hash = native.XXH64(0)
        examples = nbytes = content = 0
        candidates: list[npt.NDArray[np.uint64]] = []
        look_at_split = self._splits.looker(shard)
        try:
            for block in read_blocks(
                path,
                compression=self._compression,
                block_bytes=_BLOCK_BYTES,
                on_fault=damaged,
                is_once=True,
            ):
                stream_hash.update(block.data)
                examples += len(block.starts)
                nbytes += len(block.data)
                hashes = native.hash_records(block.data, block.starts, self._seed)
                content += int(hashes.sum(dtype=np.uint64))
                if looks_for_duplicates:
                    candidates.append(self._duplicates.candidates(shard.path, hashes))
                look_at_split(block)
                if misfit := self._fit.first_misfit(block):
                    record, message = misfit
                    faults.append(Fault(shard.path, f"record {record}", message))
        except DataError as error:
            is_missing = isinstance(error.__context__, FileNotFoundError)
            message = "the file is missing" if is_missing else str(error)
            faults = [Fault(shard.path, "", message)]
        except OSError as error:
            faults = [Fault(shard.path, "", f"the file cannot be read: {error.strerror}")]
        if looks_for_duplicates:
            self._duplicates.end_shard(shard.path, candidates)
        if not faults:
            faults += _sum_faults(shard, examples, nbytes, f"{stream_hash.intdigest():016x}")
        return CheckedShard(_cut_short(faults), examples, nbytes, content)

    def unseen_features(self) -> tuple[str, ...]:
        """Return the features that the schema says some examples have, and none had."""
        return self._fit.unseen()

    def look_again(self, shard: Shard) -> None:
        """Read a shard for the hashes of its examples in canonical form."""
        look_at_split = self._splits.looker(shard, is_canonical=True)
        path = os.path.join(self._directory, shard.path)
        for block in read_blocks(path, compression=self._compression, on_fault=lambda _: None):
            look_at_split(block)

    def records_of(self, shard: Shard, hashes: npt.NDArray[np.uint64]) -> Iterator[int]:
        """Yield the numbers of the records whose example has one of `hashes`."""
        path = os.path.join(self._directory, shard.path)
        for block in read_blocks(path, compression=self._compression, on_fault=lambda _: None):
            seen = native.hash_records(block.data, block.starts, self._seed)
            for record in np.flatnonzero(np.isin(seen, hashes)).tolist():
                yield block.first_record + record


def _sum_faults(shard: Shard, examples: int, nbytes: int, digest: str) -> Iterator[Fault]:
    if examples != shard.examples:
        yield Fault(shard.path, "", f"{examples:,} examples, the manifest says {shard.examples:,}")
    if nbytes != shard.bytes:
        yield Fault(shard.path, "", f"{nbytes:,} bytes, the manifest says {shard.bytes:,}")
    elif digest != shard.xxh64:
        yield Fault(shard.path, "", f"the hash is {digest}, the manifest says {shard.xxh64}")


def _cut_short(faults: list[Fault]) -> list[Fault]:
    more = len(faults) - _FAULTS_A_SHARD
    if more <= 0:
        return faults
    return [*faults[:_FAULTS_A_SHARD], Fault(faults[0].path, "", f"{more:,} more faults")]
