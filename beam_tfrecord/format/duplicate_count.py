"""Counts duplicate rows (rows of equal content) in bounded memory, by hashes of their content.

The count is exact for up to `MAX_HASHES` different contents. For more, it counts only a sample, the
hashes below a bound, and halves the bound as often as needed. The sample contains either all
duplicates of a content or none. So the number of duplicates in the sample, divided by the share of
the sample in all hashes, is an unbiased estimate.

If rows have a class label, it also counts the contents that occur with several labels, because all
labels but one must be wrong.
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

_LARGEST = 2**64 - 1
_NO_LABEL = -(2**63)


def mark_content(field: pa.Field, *, label: str = "") -> pa.Field:
    """Return a copy of the text column `field` that makes `count_duplicates` count its values."""
    return field.with_metadata({**(field.metadata or {}), CONTENT_KEY: label.encode()})


@dataclasses.dataclass(frozen=True)
class DuplicateCount:
    """A sample of the hashes of contents, with the number of rows of each hash."""

    bound: int = _LARGEST
    hashes: bytes = b""
    counts: bytes = b""
    least: bytes = b""
    most: bytes = b""
    is_labelled: bool = False

    @classmethod
    def of(cls, column: pa.Array, labels: pa.Array | None = None) -> DuplicateCount:
        """Return the count for a column of texts and, if rows have labels, a column of labels."""
        texts = column.to_pylist()
        present = [index for index, text in enumerate(texts) if text is not None]
        hashes = np.array([native.xxh64(texts[index].encode(), 0) for index in present], "<u8")
        numbers = np.zeros(len(texts), "<i8")
        if labels is not None:
            numbers = labels.fill_null(_NO_LABEL).to_numpy(zero_copy_only=False).astype("<i8")
        numbers = numbers[present]
        ones = np.ones(len(hashes), "<u8")
        return _limited(hashes, ones, numbers, numbers, _LARGEST, labels is not None)

    def merge(self, other: DuplicateCount) -> DuplicateCount:
        """Return the joint count of two parts of the data."""
        return _limited(
            np.frombuffer(self.hashes + other.hashes, "<u8"),
            np.frombuffer(self.counts + other.counts, "<u8"),
            np.frombuffer(self.least + other.least, "<i8"),
            np.frombuffer(self.most + other.most, "<i8"),
            min(self.bound, other.bound),
            self.is_labelled or other.is_labelled,
        )

    @property
    def is_exact(self) -> bool:
        """Whether every content is in the sample."""
        return self.bound == _LARGEST

    @property
    def number(self) -> int:
        """Number of rows that repeat the content of another row; an estimate unless `is_exact`."""
        counts = np.frombuffer(self.counts, "<u8")
        return self._scaled(int(counts.sum()) - len(counts))

    @property
    def mixed(self) -> int | None:
        """Number of contents with several labels, an estimate unless `is_exact`.

        It is None if rows have no labels.
        """
        if not self.is_labelled:
            return None
        least, most = np.frombuffer(self.least, "<i8"), np.frombuffer(self.most, "<i8")
        return self._scaled(int((least != most).sum()))

    def _scaled(self, seen: int) -> int:
        return seen if self.is_exact else round(seen * (_LARGEST / self.bound))


def count_duplicates(data: pa.RecordBatch) -> DuplicateCount | None:
    """Return the count for the column that `mark_content` marked, or None if there is none."""
    for field in data.schema:
        label = (field.metadata or {}).get(CONTENT_KEY)
        if label is not None:
            name = label.decode()
            labels = data.column(name) if name in data.schema.names else None
            return DuplicateCount.of(data.column(field.name), labels)
    return None


def duplicates_to_json(duplicates: DuplicateCount | None) -> dict[str, Any] | None:
    """Return the entry of ``job.json`` for a count, or None if nothing was counted."""
    if duplicates is None:
        return None
    return {
        "rows": duplicates.number,
        "exact": duplicates.is_exact,
        "contents_of_several_labels": duplicates.mixed,
    }


def duplicate_lines(found: Mapping[str, Any]) -> list[str]:
    """Return warnings about duplicates, given the entry of `duplicates_to_json`."""
    lines = []
    about = "" if found["exact"] else "about "
    if rows := found["rows"]:
        are = "row is a duplicate of another" if rows == 1 else "rows are duplicates of others"
        lines.append(f"{about}{rows:,} {are} by content")
    if mixed := found["contents_of_several_labels"]:
        have = "content has" if mixed == 1 else "contents have"
        lines.append(f"{about}{mixed:,} duplicated {have} several labels: correct the wrong ones")
    return lines


def _limited(
    hashes: UInt64Array,
    counts: UInt64Array,
    least: Int64Array,
    most: Int64Array,
    bound: int,
    is_labelled: bool,
) -> DuplicateCount:
    """Join equal hashes, and halve the bound until at most `MAX_HASHES` hashes remain."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] + np.uint64(1)))
    different = ordered[starts]
    if len(starts):
        counts = np.add.reduceat(counts[order], starts)
        least = np.minimum.reduceat(least[order], starts)
        most = np.maximum.reduceat(most[order], starts)
    while True:
        size = int(np.searchsorted(different, np.uint64(bound), "right"))
        if size <= MAX_HASHES:
            return DuplicateCount(
                bound=bound,
                hashes=different[:size].tobytes(),
                counts=counts[:size].tobytes(),
                least=least[:size].tobytes(),
                most=most[:size].tobytes(),
                is_labelled=is_labelled,
            )
        bound //= 2
