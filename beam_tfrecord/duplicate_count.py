"""How many rows are copies of others, by a hash of their content, in bounded memory.

Exact up to `MAX_HASHES` different contents. Beyond, only hashes below a bound are kept, which is
halved as often as needed: content that is copied is in that sample with all its copies or with
none, so their number there, over the share of the sample, is an estimate without bias.

Where rows have a class, equal content under two of them is counted, too: one of them is wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import native

UInt64Array = npt.NDArray[np.uint64]
Int64Array = npt.NDArray[np.int64]

CONTENT_KEY = b"beam_tfrecord.content"
MAX_HASHES = 2**18

_RANGE = 2**64
_NO_LABEL = -(2**63)


def mark_content(field: pa.Field, *, label: str = "") -> pa.Field:
    """Return `field`, a column of text, marked as one whose equal values mean equal content.

    Args:
        field: The column.
        label: Name of a column of whole numbers that should be equal where the content is; empty:
            there is none.
    """
    return field.with_metadata({**(field.metadata or {}), CONTENT_KEY: label.encode()})


@dataclasses.dataclass(frozen=True)
class Copies:
    """A sample of contents and how often each was seen.

    Attributes:
        bound: Hashes below it are in the sample, of 2^64.
        hashes: Different hashes, sorted, as little-endian uint64.
        counts: How often each was seen, likewise.
        least: The smallest label of each, as little-endian int64.
        most: The largest, likewise; both are 0 where rows have no label.
        is_labelled: Rows have labels.
    """

    bound: int = _RANGE
    hashes: bytes = b""
    counts: bytes = b""
    least: bytes = b""
    most: bytes = b""
    is_labelled: bool = False

    @classmethod
    def of(cls, column: pa.Array, labels: pa.Array | None = None) -> Copies:
        """Return what a column of texts shows, and one of their labels."""
        texts = column.to_pylist()
        known = [index for index, text in enumerate(texts) if text is not None]
        hashes = np.array([native.xxh64(texts[index].encode(), 0) for index in known], "<u8")
        named = np.zeros(len(texts), "<i8")
        if labels is not None:
            named = labels.fill_null(_NO_LABEL).to_numpy(zero_copy_only=False).astype("<i8")
        named = named[known]
        found = _limited(hashes, np.ones(len(hashes), "<u8"), named, named, _RANGE)
        return dataclasses.replace(found, is_labelled=labels is not None)

    def merge(self, other: Copies) -> Copies:
        """Join what two parts of the data showed."""
        hashes = np.concatenate([_numbers(self.hashes), _numbers(other.hashes)])
        counts = np.concatenate([_numbers(self.counts), _numbers(other.counts)])
        least = np.concatenate([_labels(self.least), _labels(other.least)])
        most = np.concatenate([_labels(self.most), _labels(other.most)])
        found = _limited(hashes, counts, least, most, min(self.bound, other.bound))
        return dataclasses.replace(found, is_labelled=self.is_labelled or other.is_labelled)

    @property
    def is_exact(self) -> bool:
        """True where every content is in the sample."""
        return self.bound == _RANGE

    @property
    def number(self) -> int:
        """Rows whose content an earlier one has; an estimate unless `is_exact`."""
        counts = _numbers(self.counts)
        return self._scaled(int(counts.sum()) - len(counts))

    @property
    def mixed(self) -> int | None:
        """Contents with more than one label, an estimate unless `is_exact`; None without labels."""
        if not self.is_labelled:
            return None
        return self._scaled(int((_labels(self.least) != _labels(self.most)).sum()))

    def _scaled(self, seen: int) -> int:
        return seen if self.is_exact else round(seen * (_RANGE / self.bound))


def copies_in(data: pa.RecordBatch) -> Copies | None:
    """Return what the marked column of `data` shows; None where no column is marked."""
    for field in data.schema:
        label = (field.metadata or {}).get(CONTENT_KEY)
        if label is not None:
            name = label.decode()
            has_labels = name in data.schema.names
            return Copies.of(data.column(field.name), data.column(name) if has_labels else None)
    return None


def copies_told(copies: Copies | None) -> dict[str, Any] | None:
    """Return what ``job.json`` tells of copies; None where nothing counts them."""
    if copies is None:
        return None
    return {
        "rows": copies.number,
        "exact": copies.is_exact,
        "contents_of_several_labels": copies.mixed,
    }


def copies_lines(told: Mapping[str, Any]) -> list[str]:
    """Return lines for a human, given what ``job.json`` tells."""
    lines = []
    about = "" if told["exact"] else "about "
    if rows := told["rows"]:
        are = "row is a duplicate of another" if rows == 1 else "rows are duplicates of others"
        lines.append(f"{about}{rows:,} {are} by content")
    if mixed := told["contents_of_several_labels"]:
        have = "content has" if mixed == 1 else "contents have"
        lines.append(f"{about}{mixed:,} duplicated {have} several labels: correct the wrong ones")
    return lines


def _numbers(data: bytes) -> UInt64Array:
    return np.frombuffer(data, "<u8")


def _labels(data: bytes) -> Int64Array:
    return np.frombuffer(data, "<i8")


def _limited(
    hashes: UInt64Array, counts: UInt64Array, least: Int64Array, most: Int64Array, bound: int
) -> Copies:
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] + np.uint64(1)))
    different = ordered[starts]
    if len(starts):
        counts = np.add.reduceat(counts[order], starts)
        least = np.minimum.reduceat(least[order], starts)
        most = np.maximum.reduceat(most[order], starts)
    while True:
        kept = int(np.searchsorted(different, np.uint64(min(bound, _RANGE - 1)), "right"))
        kept = len(different) if bound == _RANGE else kept
        if kept <= MAX_HASHES:
            return Copies(
                bound,
                different[:kept].tobytes(),
                counts[:kept].tobytes(),
                least[:kept].tobytes(),
                most[:kept].tobytes(),
            )
        bound //= 2
