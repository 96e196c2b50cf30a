"""Computes the sort key of each record: a 64-bit number by which a dataset sorts its records.

In shuffled order, a sort key is a hash of a stable property of the row: its position in the input,
its key, or its bytes. So every runner and every attempt computes the same ones. Sort keys, splits
and content hashes use XXH64 with different seeds. With the same seed, the sort keys of the rows of
a split would cover only a part of the 64-bit range.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.native.kernel_types import Int64Array, UInt64Array
from beam_tfrecord.rows.batch import Origin, StepPath

# A bin is the set of records whose sort keys have the same leading bits. The leading 16 bits of
# hashes are evenly distributed, so shuffled records have 2^16 bins.
SHUFFLED_BIN_SHIFT = 48

# In source order, a sort key consists of the unit number (24 bits) and the row number (40 bits). If
# rows come from several inputs, the leading bits of the unit number are the number of the input.
# The more records there are, the more row numbers a bin covers, so that the list of bins stays
# short. A bin of few records covers one row number, so that shards can begin at any record.
SOURCE_ROW_BITS = 40
SOURCE_BINS = 1024
MAX_SOURCE_BIN_SHIFT = 10
UNIT_BITS = 64 - SOURCE_ROW_BITS


def bin_shift(shuffled: bool, records: int) -> int:
    """Return the number of low bits of a sort key that are not part of the number of its bin.

    The result never decreases as `records` grows. So the bins of a run (a sorted file of some of
    the records) are at least as fine as the bins of all records.
    """
    if shuffled:
        return SHUFFLED_BIN_SHIFT
    return min((records // SOURCE_BINS).bit_length(), MAX_SOURCE_BIN_SHIFT)


def purpose_seed(seed: int, purpose: str) -> int:
    """Derive the XXH64 seed for a purpose (``place``, ``split`` or ``content``) from the user's."""
    return native.xxh64(purpose.encode(), seed)


@dataclasses.dataclass(frozen=True)
class Lineage:
    """The inputs that the rows of one dataset come from, in order."""

    step_paths: tuple[StepPath, ...] = ()
    have_splits: bool = False
    examples: Literal["own", "any", "found", "known"] = "own"

    @property
    def count(self) -> int:
        """Number of inputs, including the one for rows that passed other steps."""
        return len(self.step_paths) + 1 if len(self.step_paths) > 1 else 1

    @property
    def bits(self) -> int:
        """Number of bits that the number of an input needs."""
        return (self.count - 1).bit_length()

    def number(self, step_path: StepPath) -> int:
        """Return the number of the input whose rows passed the steps `step_path`."""
        if self.count == 1:
            return 0
        paths = self.step_paths
        return paths.index(step_path) if step_path in paths else len(paths)


ONE_INPUT = Lineage()


def sort_keys_by_origin(
    origin: Origin, rows: Int64Array, num_rows: int, seed: int, number: int = 0
) -> UInt64Array:
    """Return the sort keys of some rows of a batch as hashes of their positions in the input."""
    name = f"{number}\0{origin.unit}" if number else origin.unit
    unit = native.xxh64(name.encode(), seed)
    sub = None if origin.sub is None else origin.sub[rows]
    return native.hash_origins(unit, origin.row_numbers(num_rows)[rows], sub, seed)


def sort_keys_in_source_order(
    origin: Origin, rows: Int64Array, num_rows: int, number: int = 0, input_bits: int = 0
) -> UInt64Array:
    """Return the sort keys that keep rows in source order: input, unit number, then row number."""
    numbers = origin.row_numbers(num_rows)[rows]
    if origin.index >> (UNIT_BITS - input_bits) or (
        len(numbers) and int(numbers[-1]) >> SOURCE_ROW_BITS
    ):
        raise DataError(
            f"unit {origin.unit!r} is out of the range of source order: shuffle, or write the "
            "input in parts"
        )
    unit = (number << UNIT_BITS - input_bits | origin.index) << SOURCE_ROW_BITS
    return np.uint64(unit) | numbers.astype(np.uint64)


def sort_keys_after_input(sort_keys: UInt64Array, number: int, input_bits: int) -> UInt64Array:
    """Return hashed sort keys shifted right, with the number of the input in their leading bits.

    In source order, rows without row numbers have such sort keys.
    """
    if not input_bits:
        return sort_keys
    return np.uint64(number << 64 - input_bits) | sort_keys >> np.uint64(input_bits)
