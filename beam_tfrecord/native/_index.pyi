"""Functions on single records of a shard, in C; they release the GIL while they work."""

from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord.native.kernel_types import Picked

_Int64s = npt.NDArray[np.int64]
_UInt64s = npt.NDArray[np.uint64]

def index_records(
    data: Any, starts: _Int64s, record: int, offset: int, state: _UInt64s
) -> _UInt64s:
    """Return the index entries of the cells that end before the last of some records of a shard.

    Args:
        data: The records, one after another.
        starts: Where each begins in `data`.
        record: Number in the shard of the first of them.
        offset: Position in the shard at which `data` begins.
        state: Four numbers, zeros before the first call. Afterwards the last three are the entry of
            the last cell, if the first is not 0.

    Returns:
        Number and position of the first record in each cell, and the hash of the payload checksums
        of all records that begin in it, shape `[entries, 3]`.

    Raises:
        ValueError: The records do not follow each other.
    """

def find_blocks(entries: _UInt64s, records: int, nbytes: int, wanted: _Int64s) -> _Int64s:
    """Return the block of a shard in which each wanted record lies.

    Args:
        entries: The index of the shard, shape `[entries, 3]`.
        records: Number of records of the shard.
        nbytes: Size of the shard.
        wanted: Numbers of records, from 0, in ascending order.

    Returns:
        First record of the block, the record after its last, where it begins and ends in the shard,
        and its hash, shape `[wanted, 5]`.

    Raises:
        ValueError: The index is damaged; the message says where. Or a record does not exist.
    """

def read_records(
    file: int, entries: _UInt64s, records: int, nbytes: int, wanted: _Int64s
) -> Picked:
    """Read records from an open file, without moving its position; check them as `pick_records`.

    Args:
        file: Descriptor of the shard.
        entries: The index of the shard, shape `[entries, 3]`.
        records: Number of records of the shard.
        nbytes: Size of the shard.
        wanted: Numbers of records, from 0; in ascending order each block is read once.

    Raises:
        ValueError: The index is damaged; the message says where.
    """

def pick_records(data: Any, positions: _Int64s, blocks: _Int64s, wanted: _Int64s) -> Picked:
    """Return copies of the wanted records; check all records of their blocks, and each payload.

    Args:
        data: The blocks.
        positions: Where in `data` the block of each wanted record begins.
        blocks: The block of each, as `find_blocks` returns it.
        wanted: Numbers of records in the shard.
    """
