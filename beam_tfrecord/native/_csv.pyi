"""The CSV kernel in C; it releases the GIL while it works.

Text is any buffer of bytes in an ASCII superset (UTF-8 if the values are to be text), below 2^30
bytes. Words for null are byte strings: those in `nulls` are null if a value of the column's type is
expected, those in `always` are null in every column.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord.native.kernel_types import CsvRowError, Dialect, Passage, Row, Sighting, Target

def scan(data: Any, dialect: Dialect) -> tuple[Passage, ...]:
    """Return what a piece of a file does to each of the eight states it may be entered in."""

def count_lines(data: Any, start: int = 0, stop: int = -1) -> int:
    """Count line ends (LF, CR, CRLF), quoted or not, in `data[start:stop]`."""

def first_row(data: Any, dialect: Dialect, final: bool) -> Row | None:
    """Return the first row that is not a blank line, or None if there is no complete one.

    Args:
        data: Text that begins with a row.
        dialect: How it is written.
        final: The text ends here, so that its last row needs no line end.

    Raises:
        ValueError: One of `BROKEN_ROWS` is wrong with the row.
    """

class _Table:
    rows: int
    """Rows read so far; of a `Filler`, since the last `take`."""

    def feed(self, data: Any, at: int, final: bool) -> int:
        """Read complete rows from `at` on; return where the first unread one starts."""

class Typer(_Table):
    """Collects the kinds of the values in every column.

    In a column of ordinary text, further kinds may be missing. Rows with too few or too many fields
    take no part.
    """

    def __init__(
        self,
        dialect: Dialect,
        columns: int,
        *,
        keep_blank: bool,
        nulls: Sequence[bytes],
        always: Sequence[bytes],
    ) -> None: ...
    def take_sightings(self) -> list[Sighting]:
        """Return the kinds seen for the first time since the last call."""

class Filler(_Table):
    """Reads up to `capacity` rows into columns at a time."""

    is_full: bool
    """The last `feed` stopped because the batch is full."""
    starts: npt.NDArray[np.uint32]
    """Where each row of the batch starts in the data that it was read from."""

    def __init__(
        self,
        dialect: Dialect,
        columns: int,
        targets: Sequence[Target],
        *,
        keep_blank: bool,
        nulls: Sequence[bytes],
        always: Sequence[bytes],
        capacity: int,
    ) -> None: ...
    def take_faults(self) -> list[CsvRowError]:
        """Return the faults found since the last call."""

    def take(
        self,
    ) -> list[
        tuple[
            npt.NDArray[Any],
            npt.NDArray[np.uint8],
            npt.NDArray[np.int32] | None,
            npt.NDArray[np.float64] | None,
        ]
    ]:
        """Return four arrays for each target, and start a new batch.

        They are the bytes of the values, one valid byte per row, the offsets of text (None for
        other values), and the float64 that round to float32 as the decimal numbers do (None unless
        the values are floats that differ from these).
        """
