"""How many rows are copies of others, by a hash of their content, in bounded memory.

Exact up to `MAX_HASHES` different contents. Beyond, only hashes below a bound are kept, which is
halved as often as needed: content that is copied is in that sample with all its copies or with
none, so their number there, over the share of the sample, is an estimate without bias.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native

UInt64Array = npt.NDArray[np.uint64]

CONTENT_KEY = b"beam_tfrecord.content"
MAX_HASHES = 2**18

_RANGE = 2**64


def mark_content(field: pa.Field) -> pa.Field:
    """Return `field`, a column of text, marked as one whose equal values mean equal content."""
    return field.with_metadata({**(field.metadata or {}), CONTENT_KEY: b"1"})


@dataclasses.dataclass(frozen=True)
class Copies:
    """A sample of contents and how often each was seen.

    Attributes:
        bound: Hashes below it are in the sample, of 2^64.
        hashes: Different hashes, sorted, as little-endian uint64.
        counts: How often each was seen, likewise.
    """

    bound: int = _RANGE
    hashes: bytes = b""
    counts: bytes = b""

    @classmethod
    def of(cls, column: pa.Array) -> Copies:
        """Return what a column of texts shows."""
        texts = column.drop_null().to_pylist()
        hashes = np.array([native.xxh64(text.encode(), 0) for text in texts], "<u8")
        return _limited(hashes, np.ones(len(hashes), "<u8"), _RANGE)

    def merge(self, other: Copies) -> Copies:
        """Join what two parts of the data showed."""
        hashes = np.concatenate([_numbers(self.hashes), _numbers(other.hashes)])
        counts = np.concatenate([_numbers(self.counts), _numbers(other.counts)])
        return _limited(hashes, counts, min(self.bound, other.bound))

    @property
    def is_exact(self) -> bool:
        """True where every content is in the sample."""
        return self.bound == _RANGE

    @property
    def number(self) -> int:
        """Rows whose content an earlier one has; an estimate unless `is_exact`."""
        counts = _numbers(self.counts)
        extra = int(counts.sum()) - len(counts)
        return extra if self.is_exact else round(extra * (_RANGE / self.bound))


def copies_in(data: pa.RecordBatch) -> Copies | None:
    """Return what the marked column of `data` shows; None where no column is marked."""
    for field in data.schema:
        if CONTENT_KEY in (field.metadata or {}):
            return Copies.of(data.column(field.name))
    return None


def copies_told(copies: Copies | None) -> dict[str, Any] | None:
    """Return what ``job.json`` tells of copies; None where nothing counts them."""
    return None if copies is None else {"rows": copies.number, "exact": copies.is_exact}


def _numbers(data: bytes) -> UInt64Array:
    return np.frombuffer(data, "<u8")


def _limited(hashes: UInt64Array, counts: UInt64Array, bound: int) -> Copies:
    different, places = np.unique(hashes, return_inverse=True)
    summed = np.zeros(len(different), "<u8")
    np.add.at(summed, places, counts)
    while True:
        kept = int(np.searchsorted(different, np.uint64(min(bound, _RANGE - 1)), "right"))
        kept = len(different) if bound == _RANGE else kept
        if kept <= MAX_HASHES:
            return Copies(bound, different[:kept].tobytes(), summed[:kept].tobytes())
        bound //= 2
