"""The kinds of values in rows of JSON, in C; the GIL is released for all rows of a call."""

import numpy as np
import numpy.typing as npt

BOOL: int
INT: int
BIG: int
DOUBLE: int
TEXT: int
LIST: int
OBJECT: int
"""Kinds of values, as bits; null has none. `BIG` is beside `INT` for integers beyond 2^53."""

class Places:
    """The kinds that are known at each place in rows: a column, a key, the values of an array."""

    def add(self, path: tuple[str | None, ...], kinds: int) -> None:
        """Add kinds at a place.

        Args:
            path: Names of keys from the column on; None stands for the values of an array.
            kinds: Bits; 0 if only null is known there.

        Raises:
            MemoryError: There is no memory for it.
        """

    def next_new(self, data: bytes, starts: npt.NDArray[np.int64], row: int) -> int:
        """Return the next row, from `row` on, that may be wrong or may add a place or a kind.

        Every row before it is one valid object in UTF-8 without a key twice or half of a surrogate
        pair, and all its values are of kinds that are known at their places.

        Args:
            data: Rows, each ending with a newline.
            starts: Position of each row, and the end of the last; int64, shape `[rows + 1]`.
            row: The first row to look at.

        Returns:
            The number of that row; the number of rows if there is none.

        Raises:
            ValueError: `row` is negative.
        """
