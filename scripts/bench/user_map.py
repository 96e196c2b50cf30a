"""The user's functions of the benchmark, the same for stock Beam and for us."""

from __future__ import annotations

from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc


class Enriched(TypedDict):
    """The row that `enrich_hinted` returns."""

    i0: int
    i1: int
    f0: float
    f1: float
    s0: str
    s1: str
    bucket: int
    ratio: float


def rescale(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with two columns computed anew, exact in the types they have."""
    row["f0"] = row["f0"] * 0.5
    row["i0"] = row["i0"] % 1000
    return row


def enrich(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with two columns more; the hint says nothing about their types."""
    row["bucket"] = row["i0"] % 100
    row["ratio"] = row["f0"] / (abs(row["f1"]) + 1.0)
    return row


def enrich_hinted(row: Enriched) -> Enriched:
    """Do the same as `enrich`, with a hint that has all types."""
    row["bucket"] = row["i0"] % 100
    row["ratio"] = row["f0"] / (abs(row["f1"]) + 1.0)
    return row


def enrich_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Do the same as `enrich` to the columns of a batch."""
    numbers, above, below = (batch[name] for name in ("i0", "f0", "f1"))
    hundreds = pc.multiply(pc.divide(numbers, 100), 100)
    ratio = pc.divide(above.cast(pa.float64()), pc.add(pc.abs(below.cast(pa.float64())), 1.0))
    return batch.append_column("bucket", pc.subtract(numbers, hundreds)).append_column(
        "ratio", ratio
    )
