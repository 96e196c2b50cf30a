"""A column on its way through its steps, as tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Filled:
    """What is known of a number column that was imputed, before it was.

    Attributes:
        present: Its values, shape `[values]`, float64.
        rows: Number of rows of the batch, those with an infinity left out.
        fill: What replaced the missing ones, a float64 scalar.
    """

    present: tf.Tensor
    rows: tf.Tensor
    fill: tf.Tensor


@dataclasses.dataclass(frozen=True)
class Column:
    """A column on its way through its steps.

    Attributes:
        tensor: Dense, shape `[rows]`, or sparse, `[rows, values]`.
        number: The same in float64 where that says more than `tensor`.
        filled: How it was imputed, if by its last step.
    """

    tensor: tf.Tensor | tf.SparseTensor
    number: tf.Tensor | tf.SparseTensor | None = None
    filled: Filled | None = None

    def on_values(self, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor | tf.SparseTensor:
        """Return what a function makes of the values; of float64 where they are numbers."""
        return on_values(self.as_numbers(), function)

    def as_numbers(self) -> tf.Tensor | tf.SparseTensor:
        """Return the values as float64, but text as it is."""
        import tensorflow as tf

        if self.number is not None:
            return self.number
        return self.tensor if self.tensor.dtype == tf.string else tf.cast(self.tensor, tf.float64)

    def values(self) -> tf.Tensor:
        """Return the values that are there, shape `[values]`."""
        return values_of(self.as_numbers())

    def with_tensor(self, tensor: Any, number: Any = None) -> Column:
        """Return the column with other values."""
        return Column(tensor, number)


def values_of(tensor: Any) -> Any:
    """Return the values of a tensor that are there, shape `[values]`."""
    return tensor.values if hasattr(tensor, "dense_shape") else tensor


def on_values(tensor: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of the values of a dense or sparse tensor."""
    import tensorflow as tf

    if not hasattr(tensor, "dense_shape"):
        return function(tensor)
    return tf.SparseTensor(tensor.indices, function(tensor.values), tensor.dense_shape)


def finite(values: Any) -> Any:
    """Return the values that are neither NaN nor infinite."""
    import tensorflow as tf

    return tf.boolean_mask(values, tf.math.is_finite(values))


def rows_of(tensor: Any) -> Any:
    """Return the number of rows, an int64 scalar."""
    import tensorflow as tf

    if hasattr(tensor, "dense_shape"):
        return tensor.dense_shape[0]
    return tf.shape(tensor, tf.int64)[0]


def as_sparse(tensor: Any) -> Any:
    """Return at most one value a row as a sparse tensor."""
    import tensorflow as tf

    if hasattr(tensor, "dense_shape"):
        return tensor
    rows = tf.range(rows_of(tensor))
    return tf.SparseTensor(
        tf.stack([rows, tf.zeros_like(rows)], axis=1), tensor, [rows_of(tensor), 1]
    )


def dense(tensor: Any, fill: Any) -> Any:
    """Return at most one value a row as shape `[rows]`, missing ones filled."""
    import tensorflow as tf

    if not hasattr(tensor, "dense_shape"):
        return tensor
    owners = tensor.indices[:, 0]
    base = tf.fill([tensor.dense_shape[0]], tf.cast(fill, tensor.dtype))
    return tf.ensure_shape(
        tf.tensor_scatter_nd_update(base, owners[:, tf.newaxis], tensor.values), [None]
    )
