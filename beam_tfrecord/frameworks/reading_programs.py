"""Writes Python programs that read a dataset, or train on it, without this package.

`show --code` prints them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_temporal, is_text, time_unit
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
    manifest: Manifest,
    kind: str,
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    seen: Mapping[str, Any] | None = None,
) -> str:
    """Return the text of a Python program that reads a dataset.

    What was `seen`, statistics of rows of each split, tells what a model can learn from.
    """
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
    if kind == "tf" and label is not None:
        raise UsageError("--label is for --code keras and torch: leave it out")
    known = (seen or {}).get(filled[0], {})
    if kind == "keras" and (images := _images(known)):
        kind, made = "keras_images", _image_parts(manifest.schema, label, images[0])
    else:
        made = makers[kind](manifest.schema, label, known)
    parts = {
        "manifest": manifest_path(path),
        "split": filled[0],
        "validation": filled[1] if len(filled) > 1 else None,
        "compression": manifest.compression,
        **made,
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


def _tf_parts(schema: Schema, label: str | None, seen: Mapping[str, Any]) -> dict[str, Any]:
    tensors = tensors_in_bytes(schema).values()
    return {"features": feature_lines(schema), "decoded": [of for of in tensors if of.is_simple]}


def _torch_parts(schema: Schema, label: str | None, seen: Mapping[str, Any]) -> dict[str, Any]:
    read = {reading.name: reading for reading in readings(schema)}
    leaves = [leaf for column in schema_tf_columns(schema) for leaf in column]
    scalars = [leaf for leaf in leaves if leaf.shape == () and leaf.role == VALUES]
    columns = {leaf.name: _missing_text(read[leaf.name]) for leaf in scalars}
    if label not in (None, *columns):
        raise UsageError(f"label {label!r} is no column of single values: {_choose(columns)}")
    learned: dict[str, Any] = {"label": None, "may_miss": False}
    if label is not None:
        if images := _images(seen):
            raise UsageError(
                f"{images[0]!r} has images, and this program is for tables: use --code keras, or "
                "pass image_size=(64, 64) to load(…).torch(…)"
            )
        learned = _keras_parts(schema, label, seen)
        columns |= {name: str(first) for name, (first, _) in learned["days"].items()}
        columns |= {label: "None"} if learned["may_miss"] else {}
    return {
        **learned,
        "columns": columns,
        "text": [leaf.name for leaf in scalars if is_text(leaf.type) or leaf.store == "text"],
        "shapes": {o.name: o.shape for o in leaves if o.kind != BYTES and len(o.shape or ()) > 1},
    }


def _images(seen: Mapping[str, Any]) -> list[str]:
    """Return the columns in which images were seen."""
    return [name for name, of in seen.get("features", {}).items() if "image" in of]


def _missing_text(reading: Reading) -> str:
    if reading.default is not None:
        return default_text(reading)
    return {FLOAT: 'float("nan")', INT64: "0", BYTES: "None"}[reading.kind]


_MAX_CLASSES = 1000
_CATEGORIES = range(1, 51)
# Integers identify so many rows if nine of ten differ, by an estimate to 5 %.
_LEAST_ROWS = 90
_LABEL_NAMES = ("label", "target", "y", "class")
_FEW = "use --code tf and encode the other columns"


def _choose(names: Iterable[str]) -> str:
    return f"choose one of {listed(list(names)) or 'none'}"


def _leaves(schema: Schema) -> Iterator[TFColumn]:
    """Yield what a model can have as input: text, numbers, times and fixed lists of numbers."""
    required = {reading.name for reading in readings(schema) if reading.how == FIXED}
    for leaf in (leaf for column in schema_tf_columns(schema) for leaf in column):
        is_number = leaf.kind != BYTES and not (leaf.shape and is_temporal(leaf.type))
        is_known = leaf.shape == () or leaf.name in required
        if (
            leaf.role == VALUES
            and is_known
            and (is_number or (not leaf.shape and is_text(leaf.type)))
        ):
            yield leaf


def _label_of(schema: Schema, leaves: dict[str, TFColumn], label: str | None) -> tuple[str, bool]:
    """Return the label, and whether it is only a guess."""
    able = {
        name: schema[leaf.column]
        for name, leaf in leaves.items()
        if not is_temporal(leaf.type) and leaf.shape in ((), (len(schema[leaf.column].labels),))
    }
    if label is not None:
        if label not in able:
            raise UsageError(f"label {label!r} is no column of numbers or text: {_choose(able)}")
        return label, False
    for fitting in (
        [name for name, feature in able.items() if feature.labels],
        [name for name in able if name.lower() in _LABEL_NAMES],
    ):
        if len(fitting) == 1:
            return fitting[0], False
    numbers = [name for name in able if not leaves[name].shape and leaves[name].kind != BYTES]
    if not numbers:
        raise UsageError(f"no column of numbers is there to learn: {_FEW}")
    return numbers[-1], True


def _keras_parts(schema: Schema, label: str | None, seen: Mapping[str, Any]) -> dict[str, Any]:
    rows, columns = seen.get("examples", 0), seen.get("features", {})
    numbers = [name for name, of in columns.items() if re.fullmatch(r"u?int\d+", of["type"])]
    differing = [n for n in numbers if columns[n]["distinct"] >= 0.9 * rows >= _LEAST_ROWS]
    ids = [name for name in differing if name != label]
    leaves = {leaf.name: leaf for leaf in _leaves(schema) if leaf.name not in ids}
    label, is_guess = _label_of(schema, leaves, label)
    top = {name: [word for word, _ in of.get("top", ())] for name, of in columns.items()}
    able = [leaf for leaf in leaves.values() if leaf.name != label]
    inputs = [o for o in able if o.kind != BYTES or len(top.get(o.name, ())) in _CATEGORIES]
    if not inputs:
        raise UsageError(f"no column of numbers is there as input: {_FEW}")
    used = {label, *ids, *(leaf.column for leaf in inputs)}
    read = {reading.name: reading for reading in readings(schema)}
    days = {one.name: _days_of(one, schema[one.column]) for one in inputs if is_temporal(one.type)}
    lines = [_dense_line(one, read[one.name], days) for one in inputs]
    lines.append(f"    {quoted(label)}: {reading_text(read[label])},")
    leaf = leaves[label]
    return {
        "features": "\n".join(lines),
        "label": label,
        "inputs": [leaf.name for leaf in inputs],
        "is_guess": is_guess,
        "is_text": leaf.kind == BYTES,
        "is_vector": bool(leaf.shape),
        "classes": _classes_of(leaf, schema[leaf.column]),
        "may_miss": read[label].how == VARYING,
        "left_out": listed([name for name in schema.names if name not in used]),
        "ids": listed(ids),
        "categories": {one.name: top[one.name] for one in inputs if one.kind == BYTES},
        "days": days,
    }


def _image_parts(schema: Schema, label: str | None, image: str) -> dict[str, Any]:
    leaves = {leaf.name: leaf for column in schema_tf_columns(schema) for leaf in column}
    read = {reading.name: reading for reading in readings(schema)}
    label, is_guess = _label_of(schema, {leaf.name: leaf for leaf in _leaves(schema)}, label)
    leaf = leaves[label]
    classes = 0 if is_guess or leaf.shape else _classes_of(leaf, schema[leaf.column])
    if not classes:
        raise UsageError(f"no integers number the classes of {image!r}: pass --label")
    lines = [_dense_line(leaves[name], read[name], {label: (-1, 0)}) for name in (image, label)]
    return {
        "features": "\n".join(lines),
        "image": image,
        "label": label,
        "classes": classes,
        "may_miss": VARYING in (read[image].how, read[label].how),
    }


def _days_of(leaf: TFColumn, feature: Feature) -> tuple[int, int]:
    """Return the first time of a column, and its number of units in a day."""
    first = feature.observed and feature.observed.min
    return int(first or 0), int(np.timedelta64(1, "D") / np.timedelta64(1, time_unit(leaf.type)))


def _dense_line(leaf: TFColumn, reading: Reading, days: Mapping[str, tuple[int, int]]) -> str:
    """Return the feature spec line of a column, whose missing values have a default.

    It is 0, no text or the first time, unless the schema has one.
    """
    note = ""
    if reading.how == VARYING:
        zero: Any = {FLOAT: 0.0, INT64: days.get(leaf.name, (0,))[0], BYTES: ""}[leaf.kind]
        reading = reading._replace(how=FIXED, default=(zero,))
        note = "  # stands for a missing value"
    return f"    {quoted(leaf.name)}: {reading_text(reading)},{note}"


def _classes_of(leaf: TFColumn, label: Feature) -> int:
    """Return the number of classes that the numbers of a label are; 0 if they are quantities."""
    if leaf.shape:
        return leaf.shape[0]
    if pa.types.is_boolean(label.type):
        return 2
    seen = label.observed
    if seen is None or seen.min is None or seen.max is None or not pa.types.is_integer(label.type):
        return 0
    return max(2, int(seen.max) + 1) if seen.min >= 0 and seen.max < _MAX_CLASSES else 0
