"""Rows of SQLite into Arrow's column buffers, in C; it releases the GIL while rows are fetched."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

AS_INTEGER: int
AS_REAL: int
AS_TEXT: int
AS_BLOB: int

class BadText(Exception):
    """A text is not UTF-8; the argument is the number of its column."""

class Rows:
    """Returns the rows of a prepared statement in batches of columns.

    Args:
        calls: Addresses of step, column_type, column_int64, column_double, column_text,
            column_blob and column_bytes.
        statement: Address of the statement, which has to outlive this object.
        kinds: How each column is read: `AS_INTEGER`, `AS_REAL`, `AS_TEXT` or `AS_BLOB`.
        capacity: Rows of a batch.
        max_bytes: Bytes of one column after which a batch ends early.
    """

    status: int
    """The result of the last step; 101 if there are no more rows."""

    def __init__(
        self,
        calls: Sequence[int | None],
        statement: int | None,
        kinds: Sequence[int | None],
        capacity: int,
        max_bytes: int,
    ) -> None: ...
    def fill(
        self,
    ) -> tuple[
        int,
        list[tuple[npt.NDArray[np.uint8], npt.NDArray[Any], bytes | None, int]],
        list[tuple[int, int, Any]],
    ]:
        """Fill a batch.

        Returns:
            Number of rows; for each column its validity bits, numbers or offsets, bytes or None,
            and number of nulls, in new arrays; and the misfits as row, column and value. With no
            rows none are left, and `status` says why.

        Raises:
            BadText: A text is not UTF-8.
        """
