"""`Arena`: one growing buffer that many batches are encoded into."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

# Mostly more than a run takes: memory that is not touched costs nothing, to grow costs a copy.
RUN_ROOM_BYTES = 128 * 2**20


class Arena:
    """Framed records one after another, with the position of each.

    Memory is kept over `reset` and doubled when it runs out, so that a worker that encodes one
    group after another allocates only a few times.

    Attributes:
        data: uint8 buffer; the first `size` bytes are in use.
        size: Bytes in use.
        starts: int64 buffer of the positions of the records in `data`; the first `records` are
            in use.
        records: Number of records.
    """

    def __init__(self, *, capacity_bytes: int = 1 << 20, capacity_records: int = 1 << 12) -> None:
        self.data: npt.NDArray[np.uint8] = np.empty(capacity_bytes, np.uint8)
        self.starts: npt.NDArray[np.int64] = np.empty(capacity_records, np.int64)
        self.size = 0
        self.records = 0

    def reserve(self, num_bytes: int, num_records: int) -> None:
        """Make room for so much more; what is in use keeps its position."""
        self.data = _grown(self.data, self.size, num_bytes)
        self.starts = _grown(self.starts, self.records, num_records)

    def reset(self) -> None:
        """Forget all records and keep the memory."""
        self.size = 0
        self.records = 0

    def replace(
        self, first: int, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
    ) -> None:
        """Put others in the place of the last records.

        Args:
            first: Number of the first of them; there is one.
            data: As many records, one after another.
            starts: Position of each in `data`.
        """
        self.size = int(self.starts[first])
        self.reserve(len(data), 0)
        self.data[self.size : self.size + len(data)] = data
        self.starts[first : self.records] = self.size + starts
        self.size += len(data)

    def used_data(self) -> npt.NDArray[np.uint8]:
        """Return a view of the bytes in use."""
        return self.data[: self.size]

    def used_starts(self) -> npt.NDArray[np.int64]:
        """Return a view of the positions of all records."""
        return self.starts[: self.records]


def _grown(array: np.ndarray, used: int, more: int) -> np.ndarray:
    if used + more <= len(array):
        return array
    grown = np.empty(max(used + more, 2 * len(array)), array.dtype)
    grown[:used] = array[:used]
    return grown
