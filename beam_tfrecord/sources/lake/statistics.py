"""Finds the files of a table that a filter cannot match, from what the table's log says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.selection.nodes import Condition
from beam_tfrecord.selection.prune import Bounds, parts_that_may_match

# Whether a column of a file has nulls.
NO, YES, UNKNOWN = range(3)

Ends = tuple[pa.Array, pa.Array]


class LogColumn(NamedTuple):
    """What a log says of a column, an element for each file."""

    bounds: Bounds | None
    nulls: npt.NDArray[np.uint8]


def of_values(values: pa.Array) -> LogColumn:
    """Return what is known of a column that has one value, or null, in each file."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    return LogColumn(Bounds(values, values, is_null, ~is_null), is_null.astype(np.uint8))


def of_statistics(ends: Ends | None, leaves: Sequence[pa.Array], rows: pa.Array) -> LogColumn:
    """Return what is known of a column from its statistics."""
    counts = np.array([leaf.to_numpy(zero_copy_only=False) for leaf in leaves], np.float64)
    # As in a footer: a null struct is a null in each of its leaves, and lists prove nothing.
    counts = counts.reshape(len(leaves), len(rows))
    is_without, is_known = (counts == 0).any(axis=0), ~np.isnan(counts).any(axis=0)
    nulls = np.where(is_without, NO, np.where(is_known, YES, UNKNOWN)).astype(np.uint8)
    if ends is None:
        return LogColumn(None, nulls)
    (count,) = leaves
    may_be_null, may_be_value = (
        pc.fill_null(pc.not_equal(count, other), True).to_numpy(zero_copy_only=False)
        for other in (pa.scalar(0), rows)
    )
    return LogColumn(Bounds(*ends, may_be_null, may_be_value), nulls)


def excluded(
    condition: Condition, columns: Mapping[str, LogColumn], count: int
) -> list[bytes | None]:
    """Return for each file that the condition cannot match which of its columns have nulls."""
    bounds = {name: one.bounds for name, one in columns.items() if one.bounds is not None}
    may_match = parts_that_may_match(condition, bounds, count)
    nulls = np.stack([one.nulls for one in columns.values()], axis=1)
    # A column that has nulls in one file has nulls in the table, whatever the others have.
    nulls[:, (nulls == YES).any(axis=0)] = YES
    found = zip(may_match.tolist(), nulls, strict=True)
    return [None if may else states.tobytes() for may, states in found]


def says_all(nulls: bytes | None) -> bool:
    """Return whether a file need not even be opened, given what `excluded` returns for it.

    Its footer would only say which columns have nulls, and the log says that.
    """
    return nulls is not None and UNKNOWN not in nulls


def without_nan(ends: pa.Array) -> pa.Array:
    """Return bounds of floats, unknown where they are NaN, which has no place in their order."""
    return pc.if_else(pc.is_nan(ends), pa.scalar(None, ends.type), ends)


def mapped(function: Callable[[str], str | None], values: pa.Array) -> pa.Array:
    """Return the results of a function for texts, null for null."""
    found = (None if text is None else function(text) for text in values.to_pylist())
    return pa.array(found, values.type)


def after_all_with(prefix: str) -> str | None:
    """Return a text after all texts that begin with a prefix, by code points; None if none is."""
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return None
    last = ord(text[-1]) + 1
    # There are no texts with the code points of surrogates.
    return text[:-1] + chr(0xE000 if last == 0xD800 else last)
