"""`Observed`: what writing saw of a feature, which makes a schema describe its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class Observed:
    """What writing saw of a feature, over all examples of the dataset.

    Attributes:
        missing: Examples without the feature.
        min: Smallest value of a numeric or time feature, as stored; None where there is none.
        max: Largest value, likewise.
        max_relative_error: Largest relative error of rounding to float32, or to float64 where that
            is stored (0 where all is exact). A number as text counts as the float64 that stands for
            it, if one does: see `beam_tfrecord.features.rounding`.
    """

    missing: int = 0
    min: float | int | None = None
    max: float | int | None = None
    max_relative_error: float = 0.0

    def merge(self, other: Observed) -> Observed:
        """Join what two parts of the data showed."""
        lows = [value for value in (self.min, other.min) if value is not None]
        highs = [value for value in (self.max, other.max) if value is not None]
        return Observed(
            missing=self.missing + other.missing,
            min=min(lows, default=None),
            max=max(highs, default=None),
            max_relative_error=max(self.max_relative_error, other.max_relative_error),
        )


def observed_to_json(arrow: pa.DataType, observed: Observed) -> dict[str, Any]:
    """Return the keys that what was observed adds to a feature of type `arrow`."""
    out: dict[str, Any] = {"missing": observed.missing}
    if observed.min is not None:
        out |= {"min": observed.min, "max": observed.max}
    if observed.max_relative_error:
        error = float(observed.max_relative_error)
        out["loss"] = {"from": str(arrow), "max_relative_error": error}
    return out


def observed_from_json(value: Mapping[str, Any]) -> Observed | None:
    """Read what `observed_to_json` wrote; None where nothing was."""
    if "missing" not in value:
        return None
    error = value.get("loss", {}).get("max_relative_error", 0.0)
    return Observed(value["missing"], value.get("min"), value.get("max"), error)
