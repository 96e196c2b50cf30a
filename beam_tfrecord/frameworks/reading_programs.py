"""Writes Python programs that read a dataset, or train on it, without this package.

`show --code` prints them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from string import Template
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


FILES = Template(
    '''\
MANIFEST = pathlib.Path($manifest)


def shard_files(split):
    """Return the paths of a split's files, in order, and the number of its examples."""
    found = json.loads(MANIFEST.read_text(encoding="utf-8"))["splits"][split]
    return [str(MANIFEST.parent / shard["path"]) for shard in found["shards"]], found["examples"]\
'''
)

TF = Template(
    '''\
import json
import pathlib

import tensorflow as tf

$files


FEATURES = {
$features
}


${parsing}def read(split, batch_size=256):
    """Return the examples of a split in batches, as dicts of tensors."""
    files, examples = shard_files(split)
    records = tf.data.TFRecordDataset(files, compression_type=$compression)
    records = records.apply(tf.data.experimental.assert_cardinality(examples))
    batches = records.batch(batch_size)
    parsed = batches.map($parse, tf.data.AUTOTUNE)
    return parsed.prefetch(tf.data.AUTOTUNE)


for batch in read($split).take(1):
    for name, values in batch.items():
        print(name, values.dtype.name, values.shape)
'''
)

# The part `$parsing` of the program above if tensors are stored as bytes.
PARSE = Template(
    '''\
def parse(batch):
    """Return the tensors of a batch; arrays are stored as their bytes."""
    parsed = tf.io.parse_example(batch, FEATURES)
$decoded
    return parsed


'''
)

TORCH = Template(
    '''\
import json
import pathlib

import numpy as np
import torch
from tfrecord.example_pb2 import Example  # pip install tfrecord
from tfrecord.reader import tfrecord_iterator

$files


# What stands for a missing value, by column; lists and bytes are left as they are.
COLUMNS = {
$columns
}
TEXT = $text
DTYPES = {"float_list": np.float32, "int64_list": np.int64}


def parse(record):
    """Return the features of a serialized tf.train.Example: arrays, or lists of bytes."""
    row = {}
    for name, feature in Example.FromString(record).features.feature.items():
        for kind, values in feature.ListFields():
            found = list(values.value)
            row[name] = np.array(found, DTYPES[kind.name]) if kind.name in DTYPES else found
    return row


def columns_of(record):
    """Return a row: scalars as Python values, the rest as `parse` returns it."""
    row = parse(record)
    for name, missing in COLUMNS.items():
        values = row.get(name, [])
        value = values[0] if len(values) else missing
        row[name] = value.decode() if name in TEXT and isinstance(value, bytes) else value
    return row


class Examples(torch.utils.data.IterableDataset):
    """The rows of a split; every file is read by one worker, and checksums are not checked."""

    def __init__(self, split):
        self.files, self.examples = shard_files(split)

    def __len__(self):
        return self.examples

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for path in self.files[first::step]:
            for record in tfrecord_iterator(path, compression_type=$gzip):
                yield columns_of(bytes(record))


def collate(rows):
    """Return a batch: numbers as tensors, everything else as lists."""
    batch = {name: [row.get(name) for row in rows] for row in rows for name in row}
    numbers = {name for name, missing in COLUMNS.items() if isinstance(missing, int | float)}
    return {
        name: torch.tensor(np.array(values)) if name in numbers else values
        for name, values in batch.items()
    }


loader = torch.utils.data.DataLoader(Examples($split), batch_size=256, collate_fn=collate)
for name, values in next(iter(loader)).items():
    is_list = isinstance(values, list)
    print(name, f"list of {len(values)}" if is_list else f"{values.dtype} {tuple(values.shape)}")
'''
)


def has_code(path: str | os.PathLike[str]) -> bool:
    """Return whether `reading_code` reads a path: a local dataset with a manifest."""
    return not is_remote(path) and format_at(path).startswith("beam_tfrecord/")


def reading_code(
    manifest: Manifest, kind: str, path: str | os.PathLike[str], *, label: str | None = None
) -> str:
    """Return the text of a Python program that reads a dataset."""
    makers = {"tf": _tf_code, "keras": keras_code, "torch": _torch_code}
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
    common = {
        "files": FILES.substitute(manifest=quoted(manifest_path(path))),
        "split": quoted(filled[0]),
        "compression": quoted(manifest.compression),
    }
    return makers[kind](manifest, filled, label, common)


def _tf_code(
    manifest: Manifest, filled: list[str], label: str | None, common: dict[str, str]
) -> str:
    decoded = _decoding_lines(manifest.schema)
    return TF.substitute(
        common,
        features=feature_lines(manifest.schema),
        parsing=PARSE.substitute(decoded="\n".join(decoded)) if decoded else "",
        parse="parse" if decoded else "lambda batch: tf.io.parse_example(batch, FEATURES)",
    )


def _decoding_lines(schema: Schema) -> list[str]:
    """Return the lines that decode tensors from bytes, for columns with one shape for all rows."""
    lines = []
    for decoding in tensors_in_bytes(schema).values():
        if decoding.is_simple:
            name, sizes = quoted(decoding.column), [-1, *(decoding.shape or ())]
            raw = f"tf.io.decode_raw(parsed[{name}], tf.{decoding.dtype})"
            lines.append(f"    parsed[{name}] = tf.reshape({raw}, {sizes})")
    return lines


def _torch_code(
    manifest: Manifest, filled: list[str], label: str | None, common: dict[str, str]
) -> str:
    read = {reading.name: reading for reading in readings(manifest.schema)}
    lines, text = [], []
    for leaf in (leaf for column in schema_tf_columns(manifest.schema) for leaf in column):
        if leaf.shape == () and leaf.role == VALUES:
            lines.append(f"    {quoted(leaf.name)}: {_missing_text(read[leaf.name])},")
            if is_text(leaf.type) or leaf.store == "text":
                text.append(quoted(leaf.name))
    return TORCH.substitute(
        common,
        columns="\n".join(lines),
        text="{" + ", ".join(text) + "}" if text else "set()",
        gzip=quoted("gzip") if manifest.compression else None,
    )


def _missing_text(reading: Reading) -> str:
    if reading.default is not None:
        return default_text(reading)
    return {FLOAT: 'float("nan")', INT64: "0", BYTES: "None"}[reading.kind]


KERAS = Template(
    '''\
import json
import math
import pathlib

import keras
import tensorflow as tf

$files


# What the model learns$chosen.$left_out
LABEL = $label
FEATURES = {
$features
}
INPUTS = [name for name in FEATURES if name != LABEL]


def inputs_and_label(batch):
    """Return the inputs of a batch side by side, and its labels."""
    parsed = tf.io.parse_example(batch, FEATURES)
    columns = [tf.reshape(parsed[name], [-1, math.prod(FEATURES[name].shape)]) for name in INPUTS]
    inputs = tf.concat([tf.cast(column, tf.float32) for column in columns], axis=1)
$targets


def read(split, batch_size=256, shuffle=0):
    """Return batches of a split for one epoch; `shuffle` is the size of the buffer."""
    files, examples = shard_files(split)
    records = tf.data.TFRecordDataset(files, compression_type=$compression)
    records = records.apply(tf.data.experimental.assert_cardinality(examples))
    if shuffle:
        records = records.shuffle(shuffle)
    batches = records.batch(batch_size).map(inputs_and_label, tf.data.AUTOTUNE)$rebatch
    return batches.prefetch(tf.data.AUTOTUNE)


${classes}normalize = keras.layers.Normalization()
normalize.adapt(read($split).take(100).map(lambda inputs, label: inputs))
model = keras.Sequential(
    [
        normalize,
        keras.layers.Dense(64, activation="relu"),
        $output,
    ]
)
model.compile(optimizer="adam", loss=$loss, metrics=[$metric])
model.fit(read($split, shuffle=10_000)$encode, epochs=1, shuffle=False$validation)
$warning'''
)

# The part `$targets` if the label may be missing.
PRESENT = """\
    label = parsed[LABEL]  # sparse: rows without a label are left out
    return tf.gather(inputs, label.indices[:, 0]), label.values"""

# The part `$classes` if the label is text.
CLASSES = Template(
    '''\
# Numbers the texts of the label from 1; 0 is for texts that are only in other splits.
classes = keras.layers.StringLookup()
classes.adapt(read($split).map(lambda inputs, label: label))


def encoded(inputs, label):
    """Return the inputs, and the numbers of the labels."""
    return inputs, classes(label)


'''
)

GUESS = 'print(f"the label {LABEL!r} is only a guess: choose one with show --code keras --label")\n'

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


def keras_code(
    manifest: Manifest, filled: list[str], label: str | None, common: dict[str, str]
) -> str:
    """Return the program; see `beam_tfrecord.frameworks.reading_programs.reading_code`."""
    leaves = {leaf.name: (leaf, feature) for leaf, feature in _leaves(manifest.schema)}
    label, is_guess = _label_of(leaves, label)
    inputs = [leaf for leaf, _ in leaves.values() if leaf.kind != BYTES and leaf.name != label]
    if not inputs:
        raise UsageError(f"no column of numbers is there as input: {_FEW}")
    used = {label, *(leaf.column for leaf in inputs)}
    left_out = [name for name in manifest.schema.names if name not in used]
    leaf, feature = leaves[label]
    is_text_label = leaf.kind == BYTES
    output, loss, metric = _head(leaf, feature)
    read = {reading.name: reading for reading in readings(manifest.schema)}
    lines = [_dense_line(one, read[one.name]) for one in inputs]
    lines.append(f"    {quoted(label)}: {reading_text(read[label])},")
    may_miss = read[label].how == VARYING
    encode = ".map(encoded)" if is_text_label else ""
    validation = f", validation_data=read({quoted(filled[1])}){encode}" if len(filled) > 1 else ""
    chosen = (
        ", only a guess: pass --label to choose it" if is_guess else "; --label chooses another"
    )
    return KERAS.substitute(
        common,
        features="\n".join(lines),
        label=quoted(label),
        chosen=chosen,
        left_out=f" Not numeric, so left out: {listed(left_out)}." if left_out else "",
        targets=PRESENT if may_miss else "    return inputs, parsed[LABEL]",
        rebatch=".rebatch(batch_size)" if may_miss else "",
        classes=CLASSES.substitute(common) if is_text_label else "",
        encode=encode,
        output=output,
        loss=loss,
        metric=metric,
        validation=validation,
        warning=GUESS if is_guess else "",
    )


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
