"""Values that the native kernel and its reference both return, and the codes they share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BYTES_KIND = 1
FLOAT_KIND = 2
INT64_KIND = 3
KIND_NAMES: dict[int, str] = {BYTES_KIND: "bytes", FLOAT_KIND: "float", INT64_KIND: "int64"}

INTEGER_OVERFLOW = 1
FLOAT_OVERFLOW = 2
INVALID_UTF8 = 3
NULL_IN_LIST = 4
TOO_LARGE = 5
REJECT_CODES: dict[int, str] = {
    INTEGER_OVERFLOW: "integer-overflow",
    FLOAT_OVERFLOW: "float-overflow",
    INVALID_UTF8: "invalid-utf8",
    NULL_IN_LIST: "null-in-list",
    TOO_LARGE: "too-large",
}

WHOLE_ROW = -1
"""Column of a reject that no single column is the cause of."""

FAULT_REASONS: dict[int, str] = {
    1: "the length is impossible",
    2: "the checksum of the length does not match",
    3: "the checksum of the payload does not match",
}


class Encoded(NamedTuple):
    """What encoding one batch gave.

    Attributes:
        size: Bytes written from the start position on.
        records: Rows written.
        rejects: (row, column, code) of each row that was not written, in order of rows; column is
            the first at fault in the batch's order, or `WHOLE_ROW`.
        max_relative_error: One float64 a column: the largest |x - float32(x)| / |x| of the float64
            values written; 0 where all were exact.
    """

    size: int
    records: int
    rejects: list[tuple[int, int, int]]
    max_relative_error: npt.NDArray[np.float64]


class Frames(NamedTuple):
    """Index of framed bytes.

    Attributes:
        starts: int64 position of each whole, good record.
        consumed: Bytes that those records take.
        fault: Position and reason of the first bad record, after which nothing was read.
    """

    starts: npt.NDArray[np.int64]
    consumed: int
    fault: tuple[int, str] | None


class Run(NamedTuple):
    """Index of run entries: int64 `starts` of the framed records and their uint64 `places`."""

    starts: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint64]


class Column(NamedTuple):
    """One feature of n records with m values in all.

    Attributes:
        values: int64[m], float32[m], or the uint8 data of all bytes values.
        value_offsets: int64[m + 1] into the data of bytes values; None for numbers.
        row_offsets: int64[n + 1] into the values.
        present: uint8[n]; 0 where the feature is absent or has no kind set.
    """

    values: npt.NDArray[np.int64] | npt.NDArray[np.float32] | npt.NDArray[np.uint8]
    value_offsets: npt.NDArray[np.int64] | None
    row_offsets: npt.NDArray[np.int64]
    present: npt.NDArray[np.uint8]


class FitRule(NamedTuple):
    """What a schema says of one feature of a record.

    Attributes:
        name: Name of the feature.
        kind: 1 bytes, 2 float, 3 int64.
        required: Whether every record has it.
        min_values: Fewest values of a record that has it.
        max_values: Most values.
        low: Smallest value of integers.
        high: Largest value of integers.
        is_text: Whether values of bytes must be UTF-8.
        value_bytes: Length of each value of bytes; -1: any.
    """

    name: bytes
    kind: int
    required: bool = False
    min_values: int = 0
    max_values: int = 2**63 - 1
    low: int = -(2**63)
    high: int = 2**63 - 1
    is_text: bool = False
    value_bytes: int = -1


class Found(NamedTuple):
    """A feature as records have it; counts of values are over the records that have it."""

    kind: int
    present_count: int
    min_values: int
    max_values: int
