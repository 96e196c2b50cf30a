"""Stubs: what runs hold of records whose largest value is a file that can be read again.

To shuffle pictures one would write all of them to runs, and read them back, only to copy each of
them from there to its shard. Where they are still in the page cache it is cheaper to leave them
where they are: the runs hold stubs, which are records without the file, and the shard gets the
file itself. A stub has the checksum of the whole record, so a file that has changed since it was
checked and described is found, never written.
"""

from __future__ import annotations

import errno
import itertools
import os

import numpy as np
import numpy.typing as npt

from beam_tfrecord.batch import FileColumn
from beam_tfrecord.errors import DataError
from beam_tfrecord.native import _files as kernel
from beam_tfrecord.records.blocks import FRAME_BYTES

Bytes = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]

# Less than this is as quickly copied as opened.
LEAST_FILE_BYTES = 4096

_CHANGED = frozenset(("size", "bytes"))
# What a file that was moved or replaced gives; all else is a fault of the machine.
_GONE = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO))


def stubs_of(data: Bytes, starts: Int64Array, files: FileColumn | None) -> tuple[Bytes, Int64Array]:
    """Return the stubs of some framed records, framed, and where each begins.

    Args:
        data: The records.
        starts: Where each begins, shape `[n]`.
        files: Which of their values are files, one a record; None: none of them.
    """
    paths = [None] * len(starts) if files is None else files.paths.to_pylist()
    name = "" if files is None else files.name
    stubs: tuple[Bytes, Int64Array] = kernel.make_stubs(
        data, starts, name.encode(), paths, LEAST_FILE_BYTES
    )
    return stubs


def whole_sizes(data: Bytes, starts: Int64Array) -> Int64Array:
    """Return the bytes of the framed record that each stub stands for, shape `[n]`.

    Raises:
        DataError: One is no stub.
    """
    try:
        sizes: Int64Array = kernel.whole_sizes(data, starts)
    except ValueError as error:
        raise DataError(f"a run is damaged: {error}") from error
    return sizes


def make_whole(data: Bytes, starts: Int64Array, order: Int64Array, out: Bytes) -> None:
    """Write the framed records that stubs stand for.

    Args:
        data: The stubs, framed.
        starts: Where each begins, shape `[n]`.
        order: Numbers of those to write, in order.
        out: Exactly as long as they are.

    Raises:
        DataError: A file is not what it was, or is there no more.
        OSError: It cannot be read.
    """
    fault = kernel.make_whole(data, starts, order, out)
    if fault is None:
        return
    number, why = fault
    path = os.fsdecode(kernel.stub_path(data, int(starts[number])))
    if why in _CHANGED:
        raise DataError(f"{path!r} was changed while the dataset was written: run the job again")
    if why in _GONE:
        raise DataError(f"cannot read {path!r} again: {os.strerror(why)}")
    raise OSError(why, os.strerror(why), path)


def by_whole_bytes(
    data: Bytes, starts: Int64Array, places: npt.NDArray[np.uint64], order: Int64Array
) -> Int64Array:
    """Return an order by place where ties are in order of the bytes of the whole records.

    Without it, which of two records with one place comes first would follow from the way through
    stubs. Places are hashes of 64 bits, so there is hardly ever a tie.

    Args:
        data: The stubs, framed.
        starts: Where each begins, shape `[n]`.
        places: Of each, shape `[n]`.
        order: By place alone.
    """
    sorted_places = places[order]
    ties = np.flatnonzero(sorted_places[1:] == sorted_places[:-1])
    if not len(ties):
        return order

    def payload(number: int) -> bytes:
        one = np.array([number], np.int64)
        out = np.empty(int(whole_sizes(data, starts[one])[0]), np.uint8)
        make_whole(data, starts, one, out)
        return out[FRAME_BYTES - 4 : -4].tobytes()

    out = order.copy()
    for _, run in itertools.groupby(ties.tolist(), key=lambda tie: sorted_places[tie]):
        tied = list(run)
        span = slice(tied[0], tied[-1] + 2)
        out[span] = sorted(order[span].tolist(), key=payload)
    return out
