"""Describes the columns of the batches of `tf_dataset`, and makes dense numbers of them for Keras.

TensorFlow is imported in the functions that use it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfrecord.features.arrow_types import is_temporal, is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.features.tf_columns import VALUES, TFColumn, tf_columns

Categories = Mapping[str, Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Part:
    """A column, or one part of a nested column, in the batches of `tf_dataset`."""

    name: str
    feature: Feature
    stored: TFColumn
    spec: Any
    categories: tuple[str, ...]

    @property
    def is_sparse(self) -> bool:
        """True if values may be missing."""
        import tensorflow as tf

        return isinstance(self.spec, tf.SparseTensorSpec)

    @property
    def is_ragged(self) -> bool:
        """True if lists or tensors differ in length."""
        import tensorflow as tf

        return isinstance(self.spec, tf.RaggedTensorSpec)

    @property
    def has_mask(self) -> bool:
        """True if a mask says which values are there."""
        return self.is_sparse or self.is_ragged

    @property
    def is_encoded(self) -> bool:
        """True if the values are numbers in bytes, which `tf_dataset` decodes unless missing."""
        arrow, is_string = self.stored.type, self.spec.dtype.name == "string"
        in_bytes = isinstance(arrow, TensorType) or self.stored.store == "bytes"
        return is_string and in_bytes

    @property
    def is_string(self) -> bool:
        """True if the values stay text or bytes."""
        return self.spec.dtype.name == "string" and not self.categories

    @property
    def is_time(self) -> bool:
        """True if the values are times."""
        return not self.is_string and is_temporal(self.stored.type)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value of one row, which is not ragged."""
        return tuple((self.stored.shape or ()) if self.is_sparse else self.spec.shape[1:])

    @property
    def class_names(self) -> tuple[str, ...]:
        """Categories that the values stand for; empty if they are not known."""
        return self.categories or self.feature.labels

    def entry_names(self) -> list[str]:
        """Return the names of the numbers of one row."""
        names = self.class_names
        if not self.shape:
            return [self.name]
        if self.shape == (len(names),):
            return [f"{self.name}={name}" for name in names]
        return [f"{self.name}[{','.join(map(str, i))}]" for i in np.ndindex(*self.shape)]

    def values(self) -> Callable[[Any], Any]:
        """Return a function from a tensor in the batches to one of float32, integers or text."""
        import tensorflow as tf

        if self.categories:
            convert: Callable[[Any], Any] = self._numbers
        elif self.spec.dtype.is_floating:
            convert = _as_float
        elif self.spec.dtype == tf.bool:
            convert = _as_int
        else:
            return lambda tensor: tensor
        on_values = tf.sparse.map_values if self.is_sparse else tf.ragged.map_flat_values
        return lambda tensor: on_values(convert, tensor)

    def _numbers(self, texts: Any) -> Any:
        """Return the numbers of texts; fail, in the graph, with one that is no category."""
        import tensorflow as tf

        # The layer numbers other texts as 0, and the categories from 1 on.
        numbers = tf.keras.layers.StringLookup(vocabulary=self.categories)(texts) - 1
        other = tf.boolean_mask(texts, numbers < 0)[:1]
        message = f"column {self.feature.name!r} has text that is not one of its categories:"
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.equal(tf.size(other), 0), [message, other])]
        ):
            return tf.identity(numbers)

    def dense(self) -> Callable[[Any], tuple[Any, Any]]:
        """Return a function from a tensor in the batches to a dense one and its mask, or None."""
        values = self.values()
        if self.is_sparse:
            return lambda tensor: _filled(values(tensor), self.shape)
        if self.is_ragged:
            return lambda tensor: _padded(values(tensor))
        return lambda tensor: (values(tensor), None)


def _as_float(tensor: Any) -> Any:
    import tensorflow as tf

    return tf.cast(tensor, tf.float32)


def _as_int(tensor: Any) -> Any:
    import tensorflow as tf

    return tf.cast(tensor, tf.int64)


def _is_there(values: Any) -> Any:
    import tensorflow as tf

    return tf.ones_like(values, tf.bool)


def _filled(tensor: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return a sparse tensor as a dense one, shape `[batch, *shape]`, and a mask, `[batch]`."""
    import tensorflow as tf

    rows = tensor.dense_shape[0]
    # A batch in which all values are missing has the width 0.
    wide = tf.sparse.reset_shape(tensor, [rows, math.prod(shape)])
    mask = tf.sparse.to_dense(tf.sparse.map_values(_is_there, wide))
    full = tf.reshape(tf.sparse.to_dense(wide), [rows, *shape])
    return tf.ensure_shape(full, [None, *shape]), mask[:, 0]


def _padded(tensor: Any) -> tuple[Any, Any]:
    """Return a ragged tensor as a dense one, and a mask of the same shape."""
    import tensorflow as tf

    return tensor.to_tensor(), tf.ragged.map_flat_values(_is_there, tensor).to_tensor()


def parts_of(schema: Schema, specs: Mapping[str, Any], categories: Categories) -> Iterator[Part]:
    """Yield the parts of the columns of a schema, in order."""
    for feature in schema.features:
        for stored in tf_columns(feature):
            if stored.role == VALUES:
                words = categories.get(feature.name, feature.labels)
                known = tuple(words) if is_text(stored.type) else ()
                yield Part(stored.name, feature, stored, specs[stored.name], known)
