"""The rows of a batch that cannot be encoded, and how that is said."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native

MAX_VALUE_CHARS = 200


class RowReject(NamedTuple):
    """A row of a batch that could not be encoded: what `Reject` says, with its row in the batch."""

    row: int
    column: str
    code: str
    message: str
    value: str


class Faults:
    """The rejects of one batch: at most one a row, the first to be found."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._found: dict[int, RowReject] = {}

    def add(self, row: int, column: str, code: str, message: str, value: str = "") -> None:
        """Reject a row, unless it is rejected already."""
        self._found.setdefault(row, RowReject(row, column, code, message, value))

    def skip(self) -> npt.NDArray[np.uint8] | None:
        """Return which rows the kernel leaves out; None where it takes all."""
        if not self._found:
            return None
        skip = np.zeros(self._rows, np.uint8)
        skip[list(self._found)] = 1
        return skip

    def in_order(self) -> list[RowReject]:
        """Return the rejects by row."""
        return [self._found[row] for row in sorted(self._found)]


def kernel_message(code: int, name: str = "", value: str = "") -> str:
    """Say why the kernel rejected a row, by `native.REJECT_CODES`."""
    if code == native.INTEGER_OVERFLOW:
        return (
            f"value {value} of column {name!r} does not fit int64: store it as text in the schema, "
            "or, of an array, as bytes"
        )
    if code == native.FLOAT_OVERFLOW:
        return (
            f"value {value} of column {name!r} is beyond the range of float32: "
            "store it as bytes or text in the schema"
        )
    if code == native.INVALID_UTF8:
        return f"text of column {name!r} is not valid UTF-8: make its type bytes in the schema"
    if code == native.NULL_IN_LIST:
        return f"a list of column {name!r} has a null in it: give a fill in the schema"
    return "the example would be larger than 2147483647 bytes: leave columns out or split the row"


def null_list_message(name: str) -> str:
    """Say why a row was rejected that has a null where a fill is no value."""
    return (
        f"a list of column {name!r} has a null list or struct in it, which a fill cannot replace: "
        "put an empty one there"
    )


def value_text(value: pa.Scalar) -> str:
    """Return a value for a human, cut to `MAX_VALUE_CHARS`."""
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        # as_py would fail on text that is not UTF-8, which is what is reported here.
        value = value.cast(pa.large_binary()) if pa.types.is_large_string(value.type) else value
        raw = value.as_buffer() if value.is_valid else None
        return "" if raw is None else _decoded(raw.to_pybytes())
    try:
        python = value.as_py()
    except (ValueError, OverflowError):
        return str(value)[:MAX_VALUE_CHARS]
    if isinstance(python, bytes):
        return _decoded(python)
    # An array is shown on several lines.
    return " ".join(str(python).split())[:MAX_VALUE_CHARS]


def _decoded(raw: bytes) -> str:
    return raw[: 4 * MAX_VALUE_CHARS].decode("utf-8", "backslashreplace")[:MAX_VALUE_CHARS]
