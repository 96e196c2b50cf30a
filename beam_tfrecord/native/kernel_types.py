"""Types of arguments and results, and numeric codes, of the native kernel (the C functions)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

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

# Why a record cannot be read by the index of its shard.
PICK_REASONS: dict[int, str] = {
    1: FAULT_REASONS[2],
    2: FAULT_REASONS[3],
    3: "the records do not fit the index",
    5: "the file ends within the records",
}


class Picked(NamedTuple):
    """Copied records."""

    data: UInt8Array
    starts: Int64Array
    fault: tuple[int, int, str] | None


class Encoded(NamedTuple):
    """The result of encoding one batch."""

    size: int
    records: int
    rejects: list[tuple[int, int, int]]
    max_relative_error: Float64Array


class Frames(NamedTuple):
    """The positions of the records in framed bytes."""

    starts: Int64Array
    consumed: int
    fault: tuple[int, str] | None


class RunEntries(NamedTuple):
    """The positions and sort keys of the records in the entries of a run, a sorted spill file."""

    starts: Int64Array
    sort_keys: UInt64Array


class DecodedFeature(NamedTuple):
    """The decoded values of one feature: m values in n records."""

    values: Int64Array | npt.NDArray[np.float32] | UInt8Array
    value_offsets: Int64Array | None
    row_offsets: Int64Array
    present: UInt8Array


class FitRule(NamedTuple):
    """The requirements of a schema on one feature of a record."""

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
    """A feature that was found in records without a schema."""

    kind: int
    present_count: int
    min_values: int
    max_values: int


# CSV

Dialect = (
    tuple[int, int | None, int | None, bool] | tuple[int, int | None, int | None, bool, int | None]
)
"""Delimiter, quote or None, escape or None, whether two quotes mean one; then comment or None.

Characters are bytes as integers. A line that begins with the comment character is not a row.
A quote opens a field only at the field's start; elsewhere it is literal. LF, CR and CRLF end a row.
"""

Passage = tuple[int, int, int, int]
"""Exit state, rows that end (blank lines aside), line ends, and start of the first row or -1."""

# States of a CSV parser between two bytes.
ROW_START, FIELD_START, UNQUOTED, QUOTED, QUOTE_SEEN, CR, ESCAPE, ESCAPE_QUOTED = range(8)
COMMENT = 8
# Kinds of CSV values, one bit each; an unquoted blank value has no kind, and `WORD` is a word for
# null unless the column is text.
BOOL, INT, BIG_INT, FLOAT, DATE, TIME, ZONED_TIME, TEXT, EMPTY, WORD = (
    1 << bit for bit in range(10)
)

# Types that a CSV column can be read as: see `Target.kind`.
(AS_NULL, AS_BOOL, AS_INT, AS_FLOAT, AS_DOUBLE, AS_DATE, AS_TIME, AS_TEXT, AS_BYTES, AS_WORDS) = (
    range(10)
)

# A batch of CSV rows ends early if the text of one column would exceed this size.
COLUMN_TEXT_BYTES = 2**28


class Target(NamedTuple):
    """The type that a CSV column is read as, with its limits."""

    column: int
    kind: int
    width: int = 0
    low: int = 0
    high: int = 0
    ticks: int = 1
    zoned: bool = False


class Row(NamedTuple):
    """One CSV row: its range of bytes in the text, end exclusive, and its values."""

    start: int
    stop: int
    values: list[bytes]


BROKEN_ROWS = {-1: "a quote that never closes", -2: "text behind a closing quote"}
"""What is wrong with a CSV row that cannot be divided into fields."""


class CsvRowError(NamedTuple):
    """A CSV row with a bad value or the wrong number of fields."""

    row: int
    target: int
    fields: int
    start: int
    stop: int
    value: bytes


class Sighting(NamedTuple):
    """The first value of a kind that was seen in a CSV column."""

    column: int
    kind: int
    row: int
    start: int
    value: bytes
