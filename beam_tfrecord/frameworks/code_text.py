"""Writes parts of a schema as Python code, for the programs of `code`."""

from __future__ import annotations

from typing import Any

from beam_tfrecord.features.feature_spec import FIXED, VARYING, Reading, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import BYTES, FLOAT, INT64

_DTYPES = {BYTES: "tf.string", FLOAT: "tf.float32", INT64: "tf.int64"}


def quoted(text: str | bytes) -> str:
    """Return a Python literal, in double quotes unless the text has quotes or backslashes."""
    literal = repr(text)
    plain = '"' not in literal and "\\" not in literal
    return literal.replace("'", '"') if plain and literal.count("'") == 2 else literal


def feature_lines(schema: Schema) -> str:
    """Return the entries of the feature spec of `schema` as code, one feature per line."""
    return "\n".join(
        f"    {quoted(reading.name)}: {reading_text(reading)}," for reading in readings(schema)
    )


def reading_text(reading: Reading) -> str:
    """Return the code of the feature that parses one key of the examples."""
    dtype = _DTYPES[reading.kind]
    if reading.how == VARYING:
        return f"tf.io.VarLenFeature({dtype})"
    if reading.how == FIXED:
        shown = "" if reading.default is None else f", default_value={default_text(reading)}"
        return f"tf.io.FixedLenFeature({list(reading.shape)}, {dtype}{shown})"
    options = f"value_key={quoted(reading.name)}, row_splits_dtype=tf.int64"
    if reading.row_lengths:
        lengths = [f"tf.io.RaggedFeature.RowLengths({quoted(n)})" for n in reading.row_lengths]
        options += f", partitions=[{', '.join(lengths)}]"
    return f"tf.io.RaggedFeature({dtype}, {options})"


def default_text(reading: Reading) -> str:
    """Return the Python literal of a default, in the form in which an Example stores it."""
    values = [_value_text(value) for value in reading.default or ()]
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


def _value_text(value: Any) -> str:
    if isinstance(value, str | bytes):
        return quoted(value)
    text = repr(value)
    return text if text[-1].isdigit() else f'float("{text}")'
