"""Result types, argument types and numeric codes of the native kernel."""

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
"""Column of a reject that is not due to a single column."""

FAULT_REASONS: dict[int, str] = {
    1: "the length is impossible",
    2: "the checksum of the length does not match",
    3: "the checksum of the payload does not match",
}


class Encoded(NamedTuple):
    """The result of encoding one batch.

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
        starts: int64 position of each complete, undamaged record.
        consumed: Bytes that those records occupy.
        fault: Position and reason of the first damaged record, where reading stopped; None if
            there is none.
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
    """What a schema requires of one feature of a record.

    Attributes:
        name: Name of the feature.
        kind: 1 bytes, 2 float, 3 int64.
        required: Whether every record has it.
        min_values: Fewest values of a record that has it.
        max_values: Most values.
        low: Smallest value of integers.
        high: Largest value of integers.
        is_text: Whether values of bytes must be UTF-8.
        value_bytes: Length of each value of bytes; -1 for any length.
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
    """A feature found in records; value counts cover only the records that have the feature."""

    kind: int
    present_count: int
    min_values: int
    max_values: int


# CSV

Dialect = tuple[int, int | None, int | None, bool]
"""Delimiter, quote or None, escape or None (bytes as integers), and whether two quotes mean one.

A quote opens a field only at the field's start; what follows a closing quote is literal up to the
end of the field. LF, CR and CRLF end a row.
"""

Passage = tuple[int, int, int, int]
"""Exit state, rows that end (blank lines aside), line ends, and start of the first row or -1."""

# States of a CSV reader, before or after any byte.
ROW_START, FIELD_START, UNQUOTED, QUOTED, QUOTE_SEEN, CR, ESCAPE, ESCAPE_QUOTED = range(8)

# Kinds of CSV values, one bit each; a blank value that is not quoted has none of them.
BOOL, INT, BIG_INT, FLOAT, DATE, TIME, ZONED_TIME, TEXT, EMPTY = (1 << bit for bit in range(9))

# What a CSV column is read as: see `Target`.
(AS_NULL, AS_BOOL, AS_INT, AS_FLOAT, AS_DOUBLE, AS_DATE, AS_TIME, AS_TEXT, AS_BYTES, AS_WORDS) = (
    range(10)
)

# A batch of CSV rows ends early rather than let the text of one column outgrow this.
COLUMN_TEXT_BYTES = 2**28
# Distinct texts that are counted in a CSV column whose other values are mostly not text.
STRAYS = 3


class Target(NamedTuple):
    """The type that a CSV column is read as, with its limits.

    Attributes:
        column: Number of the column in the file.
        kind: ``AS_BOOL`` (one byte a value), ``AS_INT``, ``AS_DATE`` (int32 days), ``AS_TIME``
            (int64 ticks), ``AS_TEXT`` (UTF-8 without NUL), ``AS_BYTES``, ``AS_WORDS`` (text
            without surrounding blanks, in which words for null are null) …
        width: Bytes a value.
        low: Least integer.
        high: Greatest integer.
        ticks: Ticks a second.
        zoned: Times carry a zone; without it, they must not.
    """

    column: int
    kind: int
    width: int = 0
    low: int = 0
    high: int = 0
    ticks: int = 1
    zoned: bool = False


class Row(NamedTuple):
    """One CSV row: its range of bytes and its values."""

    start: int
    stop: int
    values: list[bytes]


class Fault(NamedTuple):
    """A CSV row that does not fit.

    Attributes:
        row: Number of the row, counted from the first row fed.
        target: Index of the target that its `value` does not fit; -1 if its `fields` do not.
        fields: Number of fields; -1 if a quote never closes.
        start: Position of the row in the text.
        value: The value that does not fit; empty if `target` is -1.
    """

    row: int
    target: int
    fields: int
    start: int
    value: bytes


class Sighting(NamedTuple):
    """The first value of a kind in a CSV column, its row, and where in the text that row starts."""

    column: int
    kind: int
    row: int
    start: int
    value: bytes


class WordsSeen(NamedTuple):
    """The texts in a CSV column, and the number of its values that are not text.

    Attributes:
        values: Number of values of each kind other than text.
        strays: Short texts and how often each was seen; None if there are too many to count.
        nulls: The words for null that were seen, and how often.
    """

    values: dict[int, int]
    strays: dict[bytes, int] | None
    nulls: dict[bytes, int]
