"""The schema as a text proto of TensorFlow Metadata, for TFX and tf.Transform.

Every feature is given an explicit TensorRepresentation, so that nothing is left to inference:
`tensorflow_transform` reads the same feature spec from it as `feature_spec` gives. The format is
`tensorflow_metadata/proto/v0/schema.proto`; the text is written here, without its package.
"""

from __future__ import annotations

from typing import Any

from beam_tfrecord.features.feature_spec import FIXED, RAGGED, Reading, readings
from beam_tfrecord.features.leaves import BYTES, FLOAT, INT64, schema_leaves
from beam_tfrecord.features.schema import Schema

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
