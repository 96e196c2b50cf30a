"""How much the exchange holds, reads and writes at a time; none of it shows in the dataset.

A window of the merge reads a part of every run that may hold records of it. With `n` such runs
and windows of `w` bytes each of these reads is of `w / n` bytes, and a store wants few large
requests. So runs grow with the total, windows with the number of runs; and where neither is
enough, groups of runs are first merged to fewer, larger ones (see `rounds`).
"""

from __future__ import annotations

import math

from beam_tfrecord.exchange.plan import WINDOW_BYTES
from beam_tfrecord.exchange.spill import RUN_BYTES
from beam_tfrecord.storage import is_remote

MOST_RUN_BYTES = 512 * 2**20
MOST_WINDOW_BYTES = 512 * 2**20
# A read of a store costs a round trip and a fee, one of a disk a seek at most.
REMOTE_REQUEST_BYTES = 2**20
LOCAL_REQUEST_BYTES = 2**17
# An estimate below this, however wrong, does not mean more runs than can be merged at once.
ONE_ROUND_BYTES = 4 * 10**9
# Blocks in a runner's own shuffle go by ranges of about this size, of 2^8 to 2^16.
RANGE_BYTES = 256 * 2**20
LEAST_RANGE_BITS, MOST_RANGE_BITS = 8, 16


def request_bytes(directory: str) -> int:
    """Return the least that one read of a run in a directory should be of."""
    return REMOTE_REQUEST_BYTES if is_remote(directory) else LOCAL_REQUEST_BYTES


def run_bytes_for(total_bytes: int | None, request: int) -> int:
    """Return the size of runs, so that runs and windows grow alike.

    Args:
        total_bytes: Estimate of all records together; None: not known.
        request: Least bytes of a read.
    """
    if total_bytes is None:
        return RUN_BYTES
    # A window is at most `w` and there are `total / run` runs: request <= w * run / total, and
    # windows of twice the size of runs, or two of their size, take about the same memory.
    return min(max(RUN_BYTES, math.isqrt(total_bytes * request // 2)), MOST_RUN_BYTES)


def window_bytes_for(runs: int, request: int) -> int:
    """Return the size of windows that read from so many runs."""
    return min(max(WINDOW_BYTES, runs * request), MOST_WINDOW_BYTES)


def windows_held(window_bytes: int) -> int:
    """Return how many windows a merge holds: 2, one of them read ahead, unless they are large."""
    return 2 if 2 * window_bytes <= MOST_WINDOW_BYTES else 1


def most_fan_in(request: int) -> int:
    """Return how many runs can be merged at once."""
    return max(2, MOST_WINDOW_BYTES // request)


def range_bits_for(total_bytes: int | None) -> int:
    """Return the leading bits of a place that name its range in a runner's own shuffle."""
    ranges = (total_bytes or 0) // RANGE_BYTES
    return min(max(LEAST_RANGE_BITS, ranges.bit_length()), MOST_RANGE_BITS)
