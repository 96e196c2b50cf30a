"""Converts schemas to TensorFlow feature specs, and writes ``schema.pbtxt``.

TensorFlow parses only int64, float32 and bytes, so it returns booleans and times as int64.

``schema.pbtxt`` is a text proto of TensorFlow Metadata, for TFX and tf.Transform; the format is
`tensorflow_metadata/proto/v0/schema.proto`. Every feature has an explicit TensorRepresentation, so
`tensorflow_transform` reads the same feature spec from it as `feature_spec` returns. The text is
written without the package `tensorflow_metadata`.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_to_tf import arrow_to_tf, typed_scalar
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.limits import Limits
from beam_tfrecord.features.tf_columns import (
    BYTES,
    FLOAT,
    INT64,
    ROW_LENGTHS,
    SHAPE,
    VALUES,
    SchemaLike,
    TFColumn,
    schema_tf_columns,
)

FIXED, VARYING, RAGGED = "fixed", "varying", "ragged"

_TYPES = {BYTES: "BYTES", FLOAT: "FLOAT", INT64: "INT"}
_VALUES = {BYTES: "bytes_value", FLOAT: "float_value", INT64: "int_value"}
_ESCAPES = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n", ord("\r"): "\\r"}


class Reading(NamedTuple):
    """How `tf.io.parse_example` parses one TF column."""

    name: str
    kind: int
    how: str
    shape: tuple[int, ...] = ()
    default: tuple[Any, ...] | None = None
    row_lengths: tuple[str, ...] = ()


def readings(schema: SchemaLike, *, ragged: bool = True) -> list[Reading]:
    """Return how TensorFlow parses each TF column of a schema; see `Schema.feature_spec`."""
    out = []
    for feature, columns in zip(schema.features, schema_tf_columns(schema), strict=True):
        for column, default in zip(columns, _defaults(feature, columns), strict=True):
            if column.role == ROW_LENGTHS and ragged:
                continue
            reading = Reading(column.name, column.kind, VARYING)
            if column.shape is None and ragged:
                reading = reading._replace(how=RAGGED, row_lengths=column.row_lengths)
            elif column.shape is not None and not column.nullable:
                reading = reading._replace(how=FIXED, shape=column.shape)
            elif column.shape is not None and default is not None:
                reading = reading._replace(how=FIXED, shape=column.shape, default=default)
            out.append(reading)
    return out


def _defaults(feature: Feature, columns: tuple[TFColumn, ...]) -> list[tuple[Any, ...] | None]:
    """Return the default of each TF column, as a missing value would be stored with it."""
    if feature.default is None:
        return [None] * len(columns)
    value = feature.default
    (shape, *_) = [column.shape for column in columns if column.role != SHAPE]
    if shape and not isinstance(value, (list, tuple)):
        for size in reversed(shape):
            value = [value] * size
    scalar = typed_scalar(value, feature.type, feature, "default")
    one = pa.array([scalar], scalar.type)
    defaults: list[tuple[Any, ...] | None] = []
    for column, array in zip(columns, arrow_to_tf(one, feature).arrays, strict=True):
        stored = array[0].as_py()
        if column.shape is None or stored is None:
            defaults.append(None)
            continue
        values = stored if isinstance(stored, list) else [stored]
        flat = tuple(_as_read(column.kind, one_value) for one_value in values)
        if column.role == VALUES and len(set(flat)) > 1:
            raise UsageError(
                f"default {value!r} of column {feature.name!r} has several values, which the "
                "schema.pbtxt of TFX cannot hold: give one value for the whole list"
            )
        defaults.append(flat or None)
    return defaults


def _as_read(kind: int, value: Any) -> Any:
    """Return a default as readers of ``schema.pbtxt`` return it.

    A float is rounded to float32, and bytes are text if they are valid UTF-8.
    """
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


def feature_spec(schema: SchemaLike, *, ragged: bool = True) -> dict[str, Any]:
    """Return the feature spec for `tf.io.parse_example`; see `Schema.feature_spec`."""
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


def schema_pbtxt(schema: SchemaLike) -> str:
    """Return a schema as the text of a `tensorflow.metadata.v0.Schema`."""
    lines: list[str] = []
    for feature, columns in zip(schema.features, schema_tf_columns(schema), strict=True):
        for column in columns:
            name = _quoted(column.name)
            lines += ["feature {", f"  name: {name}", f"  type: {_TYPES[column.kind]}"]
            lines += [f"  {limit}" for limit in _limits(feature, column)]
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


def _limits(feature: Feature, column: TFColumn) -> Iterator[str]:
    """Yield the presence and the domain of a TF column, as far as the format has them."""
    share, is_part = feature.allowed.get("max_null_share"), pa.types.is_struct(feature.type)
    if not column.nullable:
        yield "presence { min_fraction: 1 min_count: 1 }"
    elif share is not None and not is_part:
        # By decimal digits: 1 - 0.7 is more than 0.3, the share of 3 rows of 10.
        yield f"presence {{ min_fraction: {1 - Decimal(str(share))} }}"
    limits = Limits.of(feature).stored(column.type) if column.role == VALUES else {}
    if column.kind == BYTES:
        if is_text(column.type) and "values" in limits:
            values = " ".join(f"value: {_quoted(text)}" for text in limits["values"])
            yield f"string_domain {{ {values} }}"
        return
    ends = {end: limits[end][0] for end in ("min", "max") if end in limits}
    # What only uint64 can hold is no limit of int64.
    is_int = column.kind == INT64
    texts = [f"{end}: {of + 0}" for end, of in ends.items() if not is_int or of < 2**63]
    if texts and is_int:
        yield f"int_domain {{ {' '.join(texts)} }}"
    elif texts:
        yield f"float_domain {{ {' '.join(texts)} disallow_nan: true }}"


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
    # TensorFlow Metadata holds only one value, which stands for all values of a tensor.
    value = _quoted(values[0]) if kind == BYTES else repr(values[0])
    return f"default_value {{ {_VALUES[kind]}: {value} }}"


def _quoted(text: str | bytes) -> str:
    if isinstance(text, str):
        return '"' + text.translate(_ESCAPES) + '"'
    return '"' + "".join(f"\\{byte:03o}" for byte in text) + '"'
