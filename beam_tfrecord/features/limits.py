"""`Limits`: finds the values of a column that its schema does not allow.

A float that is stored as float32 is compared as such, and so is the limit. NaN is in no range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_arrays import bare_array, open_list, round_text
from beam_tfrecord.features.arrow_to_tf import store_values, typed_scalar
from beam_tfrecord.features.arrow_types import is_list, is_text, value_type
from beam_tfrecord.features.cast_to_schema import rows_with
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.tf_columns import SchemaLike
from beam_tfrecord.native.kernel_types import BoolArray


class Limits(NamedTuple):
    """The limits on the values of a column, or on those inside its lists.

    Attributes:
        type: Type in which values are compared.
        limits: Each limit: an Arrow array of this type, or a pattern.
    """

    type: pa.DataType
    limits: Mapping[str, Any]

    @classmethod
    def of(cls, feature: Feature) -> Limits:
        """Return the limits of a feature.

        Raises:
            UsageError: A limit does not fit the type of the feature.
        """
        arrow = value_type(feature.type)
        compared = pa.large_string() if is_text(arrow) else arrow
        if pa.types.is_floating(arrow):
            compared = pa.float32() if feature.store == "auto" else pa.float64()
        limits: dict[str, Any] = {}
        for key, limit in feature.allowed.items():
            if key == "max_null_share":
                continue
            try:
                if key == "pattern":
                    for limits[key] in (limit, f"^(?:{limit})$"):
                        pc.match_substring_regex(pa.nulls(1, compared), limits[key])
                else:
                    given = limit if key == "values" else [limit]
                    scalars = [typed_scalar(one, arrow, feature, key) for one in given]
                    limits[key] = pa.array(scalars, arrow).cast(compared)
                    _holds(key, pa.array([], compared), limits[key])
            except (pa.ArrowException, TypeError) as error:
                raise UsageError(
                    f"column {feature.name!r} of type {feature.type} cannot have {key!r} "
                    f"{limit!r:.40} in the schema: {error!s:.100}"
                ) from error
        made = cls(compared, limits)
        if limits and feature.fill is not None:
            fill = pa.array([typed_scalar(feature.fill, arrow, feature, "fill")], arrow)
            for key, _ in made.broken(fill):
                raise UsageError(
                    f"fill {feature.fill!r} of column {feature.name!r} is not allowed ({key})"
                )
        return made

    def broken(self, column: pa.Array) -> Iterator[tuple[str, BoolArray]]:
        """Yield the key of each limit that values break, and the rows with them, `[rows]`."""
        layers, values = [], bare_array(column)
        while is_list(values.type):
            layer, values = open_list(values)
            layers.append(layer)
            values = bare_array(values)
        if pa.types.is_floating(self.type):
            values = round_text(values).nearest if is_text(values.type) else values
            # Adding zero leaves only one zero: `is_in` tells -0.0 from 0.0.
            values = pc.add(values.cast(self.type, safe=False), pa.scalar(0, self.type))
        values = values.cast(self.type)
        for key, limit in self.limits.items():
            rows: Any = pc.invert(_holds(key, values, limit)).to_numpy(zero_copy_only=False)
            for layer in reversed(layers):
                rows = rows_with(layer, rows)
            if rows.any():
                yield key, rows

    def stored(self, arrow: pa.DataType) -> dict[str, list[Any]]:
        """Return the limits, except for patterns, as values of type `arrow` are stored."""
        arrays = {key: limit for key, limit in self.limits.items() if key != "pattern"}
        return {
            key: store_values(array.cast(arrow), arrow).to_pylist() for key, array in arrays.items()
        }


def refuse_limits(schema: SchemaLike | None, what: str) -> None:
    """Check that a schema has no limits, because nobody would check `what` for them."""
    if schema is not None and any(feature.allowed for feature in schema.features):
        raise UsageError(f'{what} cannot be checked by "allowed" in the schema: leave it out there')


def _holds(key: str, values: pa.Array, limit: Any) -> pa.BooleanArray:
    """Return whether each value keeps to a limit; null does."""
    if key == "pattern":
        holds = pc.match_substring_regex(values, limit)
    elif key == "values":
        holds = pc.is_in(values, limit)
    else:
        holds = (pc.greater_equal if key == "min" else pc.less_equal)(values, limit[0])
    return pc.or_(pc.fill_null(holds, True), pc.is_null(values))
