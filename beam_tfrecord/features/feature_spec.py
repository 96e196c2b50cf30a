"""Feature specs of TensorFlow: what `tf.io.parse_example` is told to read, and schemas from them.

TensorFlow parses integers, float32 and bytes only: booleans and times come back as int64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_to_tf import lower, typed_scalar
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.type_contract import (
    BYTES,
    FLOAT,
    INT64,
    ROW_LENGTHS,
    SHAPE,
    VALUES,
    Leaf,
    schema_leaves,
)

FIXED, VARYING, RAGGED = "fixed", "varying", "ragged"


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a reader is told to parse one TFRecord feature.

    Attributes:
        name: Name of the feature.
        kind: `BYTES`, `FLOAT` or `INT64`.
        how: ``fixed``: a dense tensor; ``varying``: a sparse one; ``ragged``.
        shape: Shape of a dense tensor for one example.
        default: Its value where the feature is missing, as stored, flat; None where there is none.
        row_lengths: Features with the lengths of inner lists of a ragged one, outermost first.
    """

    name: str
    kind: int
    how: str
    shape: tuple[int, ...] = ()
    default: tuple[Any, ...] | None = None
    row_lengths: tuple[str, ...] = ()


def readings(schema: Schema, *, ragged: bool = True) -> list[Reading]:
    """Return how each TFRecord feature of `schema` is read; see `feature_spec`.

    Raises:
        UsageError: A type has no place in an Example, or a default is no value of its column.
    """
    out = []
    for feature, leaves in zip(schema.features, schema_leaves(schema), strict=True):
        defaults = _defaults(feature, leaves)
        for leaf, default in zip(leaves, defaults, strict=True):
            if leaf.role == ROW_LENGTHS and ragged:
                continue
            row_lengths = leaf.row_lengths(schema.separator) if ragged else ()
            out.append(_reading(leaf, default, row_lengths, ragged))
    return out


def _reading(
    leaf: Leaf, default: tuple[Any, ...] | None, row_lengths: tuple[str, ...], ragged: bool
) -> Reading:
    if leaf.shape is not None and (default is not None or not leaf.nullable):
        default = default if leaf.nullable else None
        return Reading(leaf.name, leaf.kind, FIXED, shape=leaf.shape, default=default)
    if leaf.shape is None and ragged:
        return Reading(leaf.name, leaf.kind, RAGGED, row_lengths=row_lengths)
    return Reading(leaf.name, leaf.kind, VARYING)


def _defaults(feature: Feature, leaves: tuple[Leaf, ...]) -> list[tuple[Any, ...] | None]:
    """Return the default of each leaf as it would be stored."""
    if feature.default is None:
        return [None] * len(leaves)
    value = feature.default
    (shape, *_) = [leaf.shape for leaf in leaves if leaf.role != SHAPE]
    if shape and not isinstance(value, (list, tuple)):
        for size in reversed(shape):
            value = [value] * size
    one = pa.array([typed_scalar(value, feature.type, feature, "default")], feature.type)
    stored = [array[0].as_py() for array in lower(one, feature).arrays]
    defaults = [
        None if leaf.shape is None or value is None else _flat(leaf.kind, value)
        for leaf, value in zip(leaves, stored, strict=True)
    ]
    for leaf, flat in zip(leaves, defaults, strict=True):
        if leaf.role == VALUES and flat is not None and len(set(flat)) > 1:
            raise UsageError(
                f"default {value!r} of column {feature.name!r} has several values, which the "
                "schema.pbtxt of TFX cannot hold: give one value for the whole list"
            )
    return [flat or None for flat in defaults]


def _flat(kind: int, value: Any) -> tuple[Any, ...]:
    return tuple(_as_read(kind, one) for one in (value if isinstance(value, list) else [value]))


def _as_read(kind: int, value: Any) -> Any:
    """Return a default as readers of TFMD give it: floats rounded to float32, text where it is."""
    if kind == FLOAT:
        return float(np.float32(value))
    if kind == INT64:
        return int(value)
    if isinstance(value, str):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def feature_spec(schema: Schema, *, ragged: bool = True) -> dict[str, Any]:
    """Return the feature spec for `tf.io.parse_example`; imports TensorFlow.

    A scalar that is never null is a `FixedLenFeature`, as is one with a default; one that may be
    null is a `VarLenFeature`. Fixed-size lists are a `FixedLenFeature` of their shape under the
    same conditions. Lists are `RaggedFeature`s, with partitions where they are nested.

    Args:
        schema: The features.
        ragged: False reads lists, and the row lengths of nested ones, as `VarLenFeature`.

    Raises:
        UsageError: A default is no value of its column.
    """
    import tensorflow as tf

    dtypes = {BYTES: tf.string, FLOAT: tf.float32, INT64: tf.int64}
    spec: dict[str, Any] = {}
    for reading in readings(schema, ragged=ragged):
        dtype = dtypes[reading.kind]
        if reading.how == VARYING:
            spec[reading.name] = tf.io.VarLenFeature(dtype)
        elif reading.how == FIXED:
            default: Any = reading.default
            if default is not None:
                default = default[0] if len(default) == 1 else list(default)
            spec[reading.name] = tf.io.FixedLenFeature(list(reading.shape), dtype, default)
        else:
            spec[reading.name] = tf.io.RaggedFeature(
                dtype,
                value_key=reading.name,
                partitions=[tf.io.RaggedFeature.RowLengths(key) for key in reading.row_lengths],
                row_splits_dtype=tf.int64,
            )
    return spec


def schema_from_feature_spec(spec: Mapping[str, Any]) -> Schema:
    """Return the schema of data that a feature spec reads; imports TensorFlow.

    Strings become bytes, as TensorFlow knows no text. A `VarLenFeature` becomes a list, which
    takes scalars too: one value and a list of one are the same Example.

    Raises:
        UsageError: A feature has no counterpart.
    """
    return Schema(tuple(_feature_of(name, entry) for name, entry in spec.items()))


def _feature_of(name: str, entry: Any) -> Feature:
    import tensorflow as tf

    types = {tf.int64: pa.int64(), tf.float32: pa.float32(), tf.string: pa.binary()}
    arrow = types.get(getattr(entry, "dtype", None))
    if arrow is None:
        raise UsageError(f"feature {name!r} has no type that an Example holds: {entry}")
    if isinstance(entry, tf.io.FixedLenFeature):
        for size in reversed(list(entry.shape)):
            arrow = pa.list_(arrow, size)
        default = entry.default_value
        return Feature(name, arrow, nullable=default is not None, default=_plain(default, entry))
    if isinstance(entry, tf.io.VarLenFeature):
        return Feature(name, pa.list_(arrow))
    if isinstance(entry, tf.io.FixedLenSequenceFeature) and not list(entry.shape):
        return Feature(name, pa.list_(arrow))
    if isinstance(entry, tf.io.RaggedFeature):
        column = entry.value_key or name
        wanted = [f"{column}/row_lengths_{i}" for i in range(1, len(entry.partitions) + 1)]
        if [getattr(part, "key", None) for part in entry.partitions] == wanted:
            for _ in range(len(wanted) + 1):
                arrow = pa.list_(arrow)
            return Feature(column, arrow)
    raise UsageError(
        f"feature {name!r} cannot be written as {type(entry).__name__}: use FixedLenFeature, "
        "VarLenFeature or RaggedFeature (its row lengths under name/row_lengths_1, …)"
    )


def _plain(default: Any, entry: Any) -> Any:
    """Return a default as plain Python values, nested as the shape of the feature says."""
    if default is None:
        return None
    values = np.asarray(default)
    if values.size == 1:
        return values.item()
    return values.reshape([int(size) for size in entry.shape]).tolist()


_TYPES = {BYTES: "BYTES", FLOAT: "FLOAT", INT64: "INT"}
_VALUES = {BYTES: "bytes_value", FLOAT: "float_value", INT64: "int_value"}
_ESCAPES = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r"}


def schema_pbtxt(schema: Schema) -> str:
    """Return `schema` as the text of a `tensorflow.metadata.v0.Schema`.

    Raises:
        UsageError: A type has no place in an Example, or a default is no value of its column.
    """
    lines: list[str] = []
    for column in schema_leaves(schema):
        for leaf in column:
            lines += ["feature {", f"  name: {_quoted(leaf.name)}", f"  type: {_TYPES[leaf.kind]}"]
            if not leaf.nullable:
                lines.append("  presence { min_fraction: 1 min_count: 1 }")
            lines.append("}")
    lines += ["tensor_representation_group {", '  key: ""', "  value {"]
    for reading in readings(schema):
        representation = _representation(reading)
        lines += [
            "    tensor_representation {",
            f"      key: {_quoted(reading.name)}",
            f"      value {{ {representation} }}",
            "    }",
        ]
    return "\n".join([*lines, "  }", "}", ""])


def _representation(reading: Reading) -> str:
    name = _quoted(reading.name)
    if reading.how == FIXED:
        dims = " ".join(f"dim {{ size: {size} }}" for size in reading.shape)
        default = "" if reading.default is None else f" {_default(reading.kind, reading.default)}"
        shape = f"shape {{ {dims} }}" if dims else "shape { }"
        return f"dense_tensor {{ column_name: {name} {shape}{default} }}"
    if reading.how == RAGGED:
        partitions = "".join(
            f" partition {{ row_length: {_quoted(key)} }}" for key in reading.row_lengths
        )
        path = f"feature_path {{ step: {name} }}"
        return f"ragged_tensor {{ {path}{partitions} row_partition_dtype: INT64 }}"
    return f"varlen_sparse_tensor {{ column_name: {name} }}"


def _default(kind: int, values: tuple[Any, ...]) -> str:
    # TFMD holds one value, which stands for all of a tensor.
    value = _quoted(values[0]) if kind == BYTES else repr(values[0])
    return f"default_value {{ {_VALUES[kind]}: {value} }}"


def _quoted(text: str | bytes) -> str:
    if isinstance(text, str):
        return '"' + text.translate(_ESCAPES) + '"'
    return '"' + "".join(f"\\{byte:03o}" for byte in text) + '"'
