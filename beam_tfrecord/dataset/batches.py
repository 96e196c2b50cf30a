"""Batches of another size than they were read in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def rebatch(batches: Iterable[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches` in batches of exactly `batch_rows`, but for the last."""
    held: list[pa.RecordBatch] = []
    held_rows = 0
    for batch in batches:
        start = 0
        while held_rows + batch.num_rows - start >= batch_rows:
            stop = start + batch_rows - held_rows
            yield _joined([*held, batch.slice(start, stop - start)])
            held, held_rows, start = [], 0, stop
        if start < batch.num_rows:
            held.append(batch.slice(start))
            held_rows += batch.num_rows - start
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
