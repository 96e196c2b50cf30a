"""What encoding sees of the values: ranges, missing values and rounding, per column."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.leaves import BYTES, VALUES, Leaf
from beam_tfrecord.features.schema import Observed, Schema


class Observer:
    """Observes the columns of batches of one schema.

    A column with one leaf of numbers or times (scalars or lists) has a range; one with several,
    such as a struct, has none.

    Args:
        schema: The schema.
        leaves: The leaves of each of its features.
    """

    def __init__(self, schema: Schema, leaves: tuple[tuple[Leaf, ...], ...]) -> None:
        self._names = schema.names
        self._ranged: list[int | None] = []
        self._spans: list[tuple[int, int]] = []
        at = 0
        for column in leaves:
            values = [i for i, leaf in enumerate(column) if leaf.role == VALUES]
            leaf = column[values[0]]
            has_range = (
                len(values) == 1 and leaf.kind != BYTES and not pa.types.is_boolean(leaf.type)
            )
            self._ranged.append(at + values[0] if has_range else None)
            self._spans.append((at, at + len(column)))
            at += len(column)

    def observe(
        self,
        columns: list[pa.Array],
        lowered: pa.RecordBatch,
        errors: npt.NDArray[np.float64],
        kept: npt.NDArray[np.int64] | None,
    ) -> dict[str, Observed]:
        """Return what a batch shows.

        Args:
            columns: The columns before lowering.
            lowered: The leaves of all columns.
            errors: Largest relative rounding error of each leaf.
            kept: Rows that were encoded; None for all.
        """
        indices = None if kept is None else pa.array(kept)
        observed = {}
        for i, (name, column) in enumerate(zip(self._names, columns, strict=True)):
            if indices is not None and column.null_count:
                missing = pc.is_null(column).take(indices).true_count
            else:
                missing = column.null_count
            low = high = None
            if (leaf := self._ranged[i]) is not None:
                values = lowered.column(leaf)
                low, high = value_range(values if indices is None else values.take(indices))
            start, stop = self._spans[i]
            observed[name] = Observed(missing, low, high, float(errors[start:stop].max()))
        return observed


def value_range(values: pa.Array) -> tuple[float | int | None, float | int | None]:
    """Return the smallest and the largest finite value, as stored; None where there is none."""
    while pa.types.is_nested(values.type):
        values = values.flatten()
    if values.null_count:
        values = values.drop_null()
    if not len(values):
        return None, None
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind != "f":
        return int(numbers.min()), int(numbers.max())
    low, high = float(numbers.min()), float(numbers.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return None, None
        low, high = float(numbers.min()), float(numbers.max())
    # There are two zeros, and which one is found depends on the order of the rows.
    return float(np.float32(low)) + 0.0, float(np.float32(high)) + 0.0
