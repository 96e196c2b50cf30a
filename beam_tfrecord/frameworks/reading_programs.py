"""Writes Python programs that read a dataset, or train on it, without this package.

`show --code` prints them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import FIXED, VARYING, Reading, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import (
    BYTES,
    FLOAT,
    INT64,
    VALUES,
    TFColumn,
    schema_tf_columns,
    tf_columns,
)
from beam_tfrecord.format.manifest import Manifest, manifest_path
from beam_tfrecord.format.stage import format_at
from beam_tfrecord.frameworks.tf_parts import tensors_in_bytes
from beam_tfrecord.storage import is_remote

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


def has_code(path: str | os.PathLike[str]) -> bool:
    """Return whether `reading_code` reads a path: a local dataset with a manifest."""
    return not is_remote(path) and format_at(path).startswith("beam_tfrecord/")


def reading_code(
    manifest: Manifest, kind: str, path: str | os.PathLike[str], *, label: str | None = None
) -> str:
    """Return the text of a Python program that reads a dataset."""
    makers = {"tf": _tf_parts, "keras": _keras_parts, "torch": _torch_parts}
    if kind not in makers:
        raise UsageError(f"there is no code for {kind!r}: choose one of {', '.join(makers)}")
    if is_remote(path):
        raise UsageError(
            f"there is no code that reads {os.fspath(path)!r} by itself: use beam_tfrecord.load, "
            "or copy the dataset to a local directory"
        )
    filled = [name for name, split in manifest.splits.items() if split.examples]
    if not filled:
        raise UsageError(f"dataset {os.fspath(path)!r} has no examples: there is nothing to read")
    if kind != "keras" and label is not None:
        raise UsageError(
            f"--label is for --code keras: leave it out, code for {kind!r} reads all columns alike"
        )
    parts = {
        "manifest": manifest_path(path),
        "split": filled[0],
        "validation": filled[1] if len(filled) > 1 else None,
        "compression": manifest.compression,
        **makers[kind](manifest.schema, label),
    }
    # Imported here, since `show` without --code needs no templates.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(__file__)),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quoted"] = quoted
    return environment.get_template(f"program_{kind}.jinja").render(parts)


def _tf_parts(schema: Schema, label: str | None) -> dict[str, Any]:
    return {"features": feature_lines(schema), "decoded": "\n".join(_decoding_lines(schema))}


def _decoding_lines(schema: Schema) -> list[str]:
    """Return the lines that decode tensors from bytes, for columns with one shape for all rows."""
    lines = []
    for decoding in tensors_in_bytes(schema).values():
        if decoding.is_simple:
            name, sizes = quoted(decoding.column), [-1, *(decoding.shape or ())]
            raw = f"tf.io.decode_raw(parsed[{name}], tf.{decoding.dtype})"
            lines.append(f"    parsed[{name}] = tf.reshape({raw}, {sizes})")
    return lines


def _torch_parts(schema: Schema, label: str | None) -> dict[str, Any]:
    read = {reading.name: reading for reading in readings(schema)}
    lines, text = [], []
    for leaf in (leaf for column in schema_tf_columns(schema) for leaf in column):
        if leaf.shape == () and leaf.role == VALUES:
            lines.append(f"    {quoted(leaf.name)}: {_missing_text(read[leaf.name])},")
            if is_text(leaf.type) or leaf.store == "text":
                text.append(quoted(leaf.name))
    return {
        "columns": "\n".join(lines),
        "text": "{" + ", ".join(text) + "}" if text else "set()",
    }


def _missing_text(reading: Reading) -> str:
    if reading.default is not None:
        return default_text(reading)
    return {FLOAT: 'float("nan")', INT64: "0", BYTES: "None"}[reading.kind]


_MAX_CLASSES = 1000
_LABEL_NAMES = ("label", "target", "y", "class")
_FEW = "use --code tf and encode the other columns"


def _leaves(schema: Schema) -> Iterator[tuple[TFColumn, Feature]]:
    """Yield what a model can have as input or label: text, numbers and fixed lists of numbers.

    Times are left out, since their size means nothing to a model.
    """
    required = {reading.name for reading in readings(schema) if reading.how == FIXED}
    for feature in schema.features:
        for leaf in tf_columns(feature):
            if leaf.role != VALUES or pa.types.is_temporal(leaf.type):
                continue
            is_scalar = leaf.shape == () and (leaf.kind != BYTES or is_text(leaf.type))
            is_list = bool(leaf.shape) and leaf.kind != BYTES and leaf.name in required
            if is_scalar or is_list:
                yield leaf, feature


def _label_of(
    leaves: Mapping[str, tuple[TFColumn, Feature]], label: str | None
) -> tuple[str, bool]:
    """Return the label, and whether it is only a guess."""
    able = {
        name: feature
        for name, (leaf, feature) in leaves.items()
        if not leaf.shape or leaf.shape == (len(feature.labels),)
    }
    if label is not None:
        if label not in able:
            raise UsageError(
                f"label {label!r} is no column of numbers or text: choose one of "
                f"{listed(list(able)) or 'none'}"
            )
        return label, False
    for fitting in (
        [name for name, feature in able.items() if feature.labels],
        [name for name in able if name.lower() in _LABEL_NAMES],
    ):
        if len(fitting) == 1:
            return fitting[0], False
    scalars = [name for name in able if not leaves[name][0].shape]
    numbers = [name for name in scalars if leaves[name][0].kind != BYTES]
    if not numbers:
        raise UsageError(f"no column of numbers is there to learn: {_FEW}")
    return numbers[-1], True


def _keras_parts(schema: Schema, label: str | None) -> dict[str, Any]:
    leaves = {leaf.name: (leaf, feature) for leaf, feature in _leaves(schema)}
    label, is_guess = _label_of(leaves, label)
    inputs = [leaf for leaf, _ in leaves.values() if leaf.kind != BYTES and leaf.name != label]
    if not inputs:
        raise UsageError(f"no column of numbers is there as input: {_FEW}")
    used = {label, *(leaf.column for leaf in inputs)}
    leaf, feature = leaves[label]
    output, loss, metric = _head(leaf, feature)
    read = {reading.name: reading for reading in readings(schema)}
    lines = [_dense_line(one, read[one.name]) for one in inputs]
    lines.append(f"    {quoted(label)}: {reading_text(read[label])},")
    return {
        "features": "\n".join(lines),
        "label": label,
        "is_guess": is_guess,
        "is_text": leaf.kind == BYTES,
        "may_miss": read[label].how == VARYING,
        "left_out": listed([name for name in schema.names if name not in used]),
        "output": output,
        "loss": loss,
        "metric": metric,
    }


def _dense_line(leaf: TFColumn, reading: Reading) -> str:
    """Return the feature spec line of a scalar, with 0 for missing values if it has no default."""
    note = ""
    if reading.how == VARYING:
        zero = 0.0 if leaf.kind == FLOAT else 0
        reading = reading._replace(how=FIXED, default=(zero,))
        note = "  # stands for a missing value"
    return f"    {quoted(leaf.name)}: {reading_text(reading)},{note}"


def _head(leaf: TFColumn, label: Feature) -> tuple[str, str, str]:
    """Return the code of the last layer, of the loss and of the metric that suit a label."""
    if leaf.kind == BYTES:
        layer = 'keras.layers.Dense(classes.vocabulary_size(), activation="softmax")'
        return layer, '"sparse_categorical_crossentropy"', '"accuracy"'
    if leaf.shape:
        layer = f'keras.layers.Dense({leaf.shape[0]}, activation="softmax")'
        return layer, '"categorical_crossentropy"', '"accuracy"'
    seen = label.observed
    is_integer = pa.types.is_boolean(label.type) or pa.types.is_integer(label.type)
    low, high = (0, 1) if pa.types.is_boolean(label.type) else (None, None)
    if seen is not None and seen.min is not None and seen.max is not None:
        low, high = int(seen.min) if is_integer else None, int(seen.max) if is_integer else None
    if not is_integer or low is None or high is None or low < 0 or high >= _MAX_CLASSES:
        return "keras.layers.Dense(1)", '"mse"', '"mae"'
    if high <= 1:
        layer = 'keras.layers.Dense(1, activation="sigmoid")'
        return layer, '"binary_crossentropy"', '"accuracy"'
    layer = f'keras.layers.Dense({high + 1}, activation="softmax")'
    return layer, '"sparse_categorical_crossentropy"', '"accuracy"'
