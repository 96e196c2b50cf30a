"""Functions on framed records and tf.train.Examples, in C; they release the GIL while they work.

`data` is any object with a contiguous buffer. `starts` is the int64 position in it of each framed
record: le64 payload length, le32 masked CRC-32C of that length, payload, le32 masked CRC-32C of the
payload. Functions that read records raise `ValueError` if one lies outside of the data.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.native.kernel_types import (
    DecodedFeature,
    Encoded,
    FitRule,
    Found,
    Frames,
    RunEntries,
)

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]
_UInt64s = npt.NDArray[np.uint64]

def encode(
    batch: pa.RecordBatch,
    out: _Bytes,
    at: int,
    starts: _Int64s,
    rows: _Int64s,
    skip: npt.NDArray[Any] | None = None,
) -> Encoded:
    """Write the rows of a batch as framed Examples in canonical form.

    Canonical means features in byte order of their names, packed numbers and minimal varints. A
    null becomes an absent feature, an empty list a feature with its kind set and no value.

    Args:
        batch: Columns named as features; numbers, bool, text, binary, and lists of those.
        out: Where to write; up to 16 bytes after the last record may be overwritten, too.
        at: Position in `out` of the first record.
        starts: int64[>= rows]; receives the position in `out` of each record.
        rows: int64[>= rows]; receives the row number in the batch of each record.
        skip: uint8 or bool [rows]; rows to leave out without a reject.

    Raises:
        BufferError: `out` is too short for the rows; the bytes from `at` on may be overwritten.
        TypeError: A column has a type without an encoding.
        ValueError: Two columns have one name, or `starts` or `rows` is too short.
    """

def frame_bound(array: pa.Array) -> int:
    """Return an upper bound of the bytes `frame` writes."""

def frame(array: pa.Array, out: _Bytes, at: int, starts: _Int64s) -> int:
    """Write each value of a binary or large_binary array as one record; return the bytes written.

    Raises:
        TypeError: The array is of another type.
        ValueError: A value is null, or `out` or `starts` is too short.
    """

def canonicalize(array: pa.Array) -> tuple[_Bytes, _Int64s, npt.NDArray[np.bool_]]:
    """Return the canonical form of each value of a binary or large_binary array, if it has one.

    A value that is not an Example has none, nor has one with unknown fields: it stays as it is.

    Returns:
        All forms; their offsets, int64[n + 1]; and whether the value has a form, bool[n].

    Raises:
        TypeError: The array is of another type.
        ValueError: A value is null.
    """

def canonical_hashes(data: Any, starts: _Int64s, seed: int) -> _UInt64s:
    """Return the XXH64 of each payload in canonical form, or as it is if it is not an Example.

    Unknown fields of Examples are left out.
    """

def decode(
    data: Any, starts: _Int64s, features: Sequence[tuple[bytes, int]]
) -> list[DecodedFeature]:
    """Return the wanted features of the records, one column for each (name, kind).

    Kinds are 1 bytes, 2 float, 3 int64. A feature with its kind set and no value is present.

    Raises:
        ValueError: A record is not an Example, or has a feature of another kind.
    """

def shortest_doubles(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the double nearest to the shortest decimal that rounds to each float32."""

def discover(
    data: Any, starts: _Int64s, hashes: _UInt64s | None = None, seed: int = 0
) -> dict[bytes, Found]:
    """Return the features of the records by name.

    Args:
        data: Framed records.
        starts: Their positions.
        hashes: uint64[n]; receives the `canonical_hashes` of the records.
        seed: Seed of the hashes.

    Raises:
        ValueError: A record is not an Example or has unknown fields, or two records have one
            feature in two kinds.
    """

def fitting_records(data: Any, starts: _Int64s, rules: Sequence[FitRule]) -> int:
    """Return the number of leading records that certainly fit; the next one may fit, too.

    A record certainly fits if it is a canonical Example, has only features named in `rules` (in
    order of their names), and satisfies all rules.
    """

def scan_frames(data: Any, verify: bool = True) -> Frames:
    """Index framed bytes up to the first fault or the first incomplete record.

    Args:
        data: Bytes of a TFRecord file from the start of a record on; may end inside a record.
        verify: Whether to check both checksums of each record.
    """

def find_frame(data: Any, start: int) -> int:
    """Return the position of the first complete record at or after `start` with right checksums.

    Returns the size of the data if there is none.
    """

def scan_run(data: Any) -> RunEntries:
    """Index a buffer of complete run entries.

    Raises:
        ValueError: An entry is cut off or its length does not fit.
    """

def sort_records(
    data: Any,
    starts: _Int64s,
    splits: npt.NDArray[np.uint16] | None,
    sort_keys: _UInt64s,
    by_bytes: bool,
) -> _Int64s:
    """Return the numbers of the records in order of (split, sort key): int64[n].

    Ties are ordered by the bytes of the payload if `by_bytes` is true, then by record number.
    """

def gather(
    data: Any, starts: _Int64s, sort_keys: _UInt64s | None, order: _Int64s, out: _Bytes, at: int
) -> int:
    """Copy framed records in order to `out` from position `at` on; return the bytes written.

    Each comes after its sort key (le64) if there are sort keys, as an entry of a run.
    """

def hash_records(data: Any, starts: _Int64s, seed: int) -> _UInt64s:
    """Return the XXH64 of each payload: uint64[n]."""

def hash_origins(unit_hash: int, rows: _Int64s, sub: _Int64s | None, seed: int) -> _UInt64s:
    """Return the XXH64 of le64(unit hash) || le64(row) || le64(sub-index) for each row.

    Args:
        unit_hash: Hash of the unit's name.
        rows: int64[n].
        sub: int64[n]; None stands for zeros.
        seed: Seed of the hash.
    """

def crc32c(data: Any) -> int:
    """Return the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of the bytes."""

def crc32c_portable(data: Any) -> int:
    """Return the CRC-32C without the processor's instruction, for tests."""

def masked_crc32c(data: Any) -> int:
    """Return the CRC-32C as TFRecord files store it: rotated right by 15 bits, plus a constant."""

def xxh64(data: Any, seed: int = 0) -> int:
    """Return the XXH64 (xxHash specification 0.1.1) of the bytes."""

class XXH64:
    """XXH64 of bytes that come in pieces."""

    def __init__(self, seed: int = 0) -> None: ...
    def update(self, data: Any) -> None:
        """Add bytes."""

    def intdigest(self) -> int:
        """Return the hash of all bytes so far."""

def columns_of(rows: list[Any]) -> dict[str, tuple[type | None, list[Any]]] | None:
    """Return the values of rows by name, with their class; None in place of that if they differ.

    None among the values has no say in the class. Returns None unless all rows are dicts with the
    same names, which are text, in the same order. Holds the GIL.
    """
