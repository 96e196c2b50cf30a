"""Makes the rejects of rows that cannot be read, and batches without these rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from beam_tfrecord.rows.batch import MAX_VALUE_CHARS, Batch, Reject

# Length of a value in a message, which has to fit on one line.
_SHOWN_CHARS = 40


def bad_value(
    unit: str, row: int, where: str, column: str, value: str, problem: str, *, shown: str = ""
) -> Reject:
    """Return the reject of a row with a value that `problem` says more of: ``is not int64: …``.

    The message has the begin of the value, or the text `shown`.
    """
    message = f"column {column!r} is {shown or shortened(value)} in {where}, which {problem}"
    return Reject(unit, row, column, "bad-value", message, value[:MAX_VALUE_CHARS], where)


def shortened(text: str) -> str:
    """Return a text, cut if it is too long for a message."""
    return text[:_SHOWN_CHARS] + "…" * (len(text) > _SHOWN_CHARS)


def without_rows(batch: Batch, faulty: Mapping[int, Reject], lost: Iterable[Reject] = ()) -> Batch:
    """Return a batch without its faulty rows, which are given by their indices.

    It reports them, and others that were `lost` before the batch was made, in order of their rows.
    """
    rejects = sorted([*(faulty[index] for index in sorted(faulty)), *lost], key=lambda one: one.row)
    if faulty:
        indices = np.arange(batch.num_rows, dtype=np.int64)
        batch = batch.take(np.setdiff1d(indices, list(faulty)))
    return batch.replace(rejects=tuple(rejects)) if rejects else batch
