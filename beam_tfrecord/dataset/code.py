"""Generates Python programs that read a dataset without this package."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from string import Template
from typing import Any

import pyarrow as pa

from beam_tfrecord.dataset.tf_decoding import tensor_decodings
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
from beam_tfrecord.manifest import Manifest, manifest_path
from beam_tfrecord.storage import is_remote
from beam_tfrecord.tables import listed

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

KERAS = Template(
    '''\
import json
import pathlib

import keras
import tensorflow as tf

$files


# What the model learns: choose any column of FEATURES, or pass --label.$left_out
LABEL = $label
FEATURES = {
$features
}
INPUTS = [name for name in FEATURES if name != LABEL]


def inputs_and_label(batch):
    """Return the inputs of a batch side by side, and its labels."""
    parsed = tf.io.parse_example(batch, FEATURES)
    columns = [tf.cast(parsed[name], tf.float32) for name in INPUTS]
    return tf.stack(columns, axis=-1), parsed[LABEL]


def read(split, batch_size=256, shuffle=0):
    """Return batches of a split for one epoch; `shuffle` is the size of the buffer."""
    files, examples = shard_files(split)
    records = tf.data.TFRecordDataset(files, compression_type=$compression)
    records = records.apply(tf.data.experimental.assert_cardinality(examples))
    if shuffle:
        records = records.shuffle(shuffle)
    batches = records.batch(batch_size).map(inputs_and_label, tf.data.AUTOTUNE)
    return batches.prefetch(tf.data.AUTOTUNE)


normalize = keras.layers.Normalization()
normalize.adapt(read($split).take(100).map(lambda inputs, label: inputs))
model = keras.Sequential(
    [
        keras.Input((len(INPUTS),)),
        normalize,
        keras.layers.Dense(64, activation="relu"),
        $output,
    ]
)
model.compile(optimizer="adam", loss=$loss, metrics=[$metric])
model.fit(read($split, shuffle=10_000), epochs=1, shuffle=False$validation)
'''
)

TORCH = Template(
    '''\
import gzip
import json
import pathlib
import struct

import numpy as np
import torch

$files


# What stands for a missing value, by column; lists and bytes are left as they are.
COLUMNS = {
$columns
}
TEXT = $text


def records(path):
    """Yield the serialized examples of a file; checksums are not checked."""
    with $open as file:
        while header := file.read(12):
            (length,) = struct.unpack("<Q", header[:8])
            yield file.read(length)
            file.read(4)


def varint(data, at):
    """Return the protobuf integer at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Yield the number and value of every field of a protobuf message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def integers(values):
    """Return signed integers from packed or single protobuf integers."""
    out = []
    for value in values:
        at = 0
        while not isinstance(value, int) and at < len(value):
            number, at = varint(value, at)
            out.append(number)
        if isinstance(value, int):
            out.append(value)
    return np.array(out, dtype=np.uint64).view(np.int64)


def parse(example):
    """Return the features of a serialized tf.train.Example: arrays, or lists of bytes."""
    row = {}
    for _, features in fields(example):
        for _, entry in fields(features):
            parts = dict(fields(entry))
            for kind, message in fields(parts.get(2, b"")):
                values = [value for _, value in fields(message)]
                if kind == 2:
                    values = np.frombuffer(b"".join(values), "<f4")
                elif kind == 3:
                    values = integers(values)
                row[parts.get(1, b"").decode()] = values
    return row


def columns_of(example):
    """Return a row: scalars as Python values, the rest as `parse` returns it."""
    row = parse(example)
    for name, missing in COLUMNS.items():
        values = row.get(name, [])
        value = values[0] if len(values) else missing
        row[name] = value.decode() if name in TEXT and isinstance(value, bytes) else value
    return row


class Examples(torch.utils.data.IterableDataset):
    """The rows of a split; every file is read by one worker."""

    def __init__(self, split):
        self.files, self.examples = shard_files(split)

    def __len__(self):
        return self.examples

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        for path in self.files[first::step]:
            for example in records(path):
                yield columns_of(example)


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


_DTYPES = {BYTES: "tf.string", FLOAT: "tf.float32", INT64: "tf.int64"}
_MAX_CLASSES = 1000


def reading_code(
    manifest: Manifest, kind: str, path: str | os.PathLike[str], *, label: str | None = None
) -> str:
    """Return the text of a Python program that reads a dataset.

    Args:
        manifest: The manifest of the dataset.
        kind: Kind of program. ``tf`` reads parsed batches; ``keras`` trains a small model on the
            numeric columns; ``torch`` makes a ``DataLoader``, with a parser of Examples in Python.
        path: Path of the dataset that the program reads.
        label: Column that the Keras model learns; None means the last numeric column.

    Raises:
        UsageError: There is no such kind, the path is remote, the dataset is empty, or it has too
            few numeric columns or no such label to train on.
    """
    makers = {"tf": _tf_code, "keras": _keras_code, "torch": _torch_code}
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
        raise UsageError(f"code for {kind!r} has no label: drop it")
    common = {
        "files": FILES.substitute(manifest=_quoted(manifest_path(path))),
        "split": _quoted(filled[0]),
        "compression": _quoted(manifest.compression),
    }
    return makers[kind](manifest, filled, label, common)


def _quoted(text: str | bytes) -> str:
    """Return a Python literal, in double quotes unless the text has quotes or backslashes."""
    literal = repr(text)
    plain = '"' not in literal and "\\" not in literal
    return literal.replace("'", '"') if plain and literal.count("'") == 2 else literal


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
    for decoding in tensor_decodings(schema):
        if decoding.is_simple:
            name, sizes = _quoted(decoding.column), [-1, *(decoding.shape or ())]
            raw = f"tf.io.decode_raw(parsed[{name}], tf.{decoding.dtype})"
            lines.append(f"    parsed[{name}] = tf.reshape({raw}, {sizes})")
    return lines


def feature_lines(schema: Schema) -> str:
    """Return the entries of the feature spec of `schema` as code, one feature per line."""
    return "\n".join(
        f"    {_quoted(reading.name)}: {_reading_text(reading)}," for reading in readings(schema)
    )


def _reading_text(reading: Reading) -> str:
    dtype = _DTYPES[reading.kind]
    if reading.how == VARYING:
        return f"tf.io.VarLenFeature({dtype})"
    if reading.how == FIXED:
        shown = "" if reading.default is None else f", default_value={_default_text(reading)}"
        return f"tf.io.FixedLenFeature({list(reading.shape)}, {dtype}{shown})"
    options = f"value_key={_quoted(reading.name)}, row_splits_dtype=tf.int64"
    if reading.row_lengths:
        lengths = [f"tf.io.RaggedFeature.RowLengths({_quoted(n)})" for n in reading.row_lengths]
        options += f", partitions=[{', '.join(lengths)}]"
    return f"tf.io.RaggedFeature({dtype}, {options})"


def _default_text(reading: Reading) -> str:
    """Return the Python literal of a default, in the form in which an Example stores it."""
    values = [_value_text(value) for value in reading.default or ()]
    return values[0] if len(values) == 1 else f"[{', '.join(values)}]"


def _value_text(value: Any) -> str:
    if isinstance(value, str | bytes):
        return _quoted(value)
    text = repr(value)
    return text if text[-1].isdigit() else f'float("{text}")'


def _numeric_leaves(schema: Schema) -> Iterator[tuple[TFColumn, Feature]]:
    """Yield the columns of scalar numbers, except times, whose size means nothing to a model."""
    for feature in schema.features:
        for leaf in tf_columns(feature, separator=schema.separator):
            is_number = leaf.kind in (FLOAT, INT64) and leaf.role == VALUES
            if is_number and leaf.shape == () and not pa.types.is_temporal(leaf.type):
                yield leaf, feature


def _keras_code(
    manifest: Manifest, filled: list[str], label: str | None, common: dict[str, str]
) -> str:
    numeric = {leaf.name: (leaf, feature) for leaf, feature in _numeric_leaves(manifest.schema)}
    if label is not None and label not in numeric:
        raise UsageError(
            f"label {label!r} is not a numeric column: choose one of {', '.join(numeric) or 'none'}"
        )
    if len(numeric) < 2:
        raise UsageError(
            "a model needs two numeric columns, an input and a label: use --code tf and encode "
            "the other columns"
        )
    label = label or next(reversed(numeric))
    left_out = [name for name in manifest.schema.names if name not in numeric]
    output, loss, metric = _head(numeric[label][1])
    read = {reading.name: reading for reading in readings(manifest.schema)}
    lines = [_dense_line(leaf, read[leaf.name]) for leaf, _ in numeric.values()]
    validation = f", validation_data=read({_quoted(filled[1])})" if len(filled) > 1 else ""
    return KERAS.substitute(
        common,
        features="\n".join(lines),
        label=_quoted(label),
        left_out=f" Not numeric, so left out: {listed(left_out)}." if left_out else "",
        output=output,
        loss=loss,
        metric=metric,
        validation=validation,
    )


def _dense_line(leaf: TFColumn, reading: Reading) -> str:
    """Return the feature spec line of a scalar, with 0 for missing values if it has no default."""
    note = ""
    if reading.how == VARYING:
        zero = 0.0 if leaf.kind == FLOAT else 0
        reading = dataclasses.replace(reading, how=FIXED, default=(zero,))
        note = "  # stands for a missing value"
    return f"    {_quoted(leaf.name)}: {_reading_text(reading)},{note}"


def _head(label: Feature) -> tuple[str, str, str]:
    """Return the code of the last layer, of the loss and of the metric that suit a label."""
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


def _torch_code(
    manifest: Manifest, filled: list[str], label: str | None, common: dict[str, str]
) -> str:
    read = {reading.name: reading for reading in readings(manifest.schema)}
    lines, text = [], []
    for leaf in (leaf for column in schema_tf_columns(manifest.schema) for leaf in column):
        if leaf.shape == () and leaf.role == VALUES:
            lines.append(f"    {_quoted(leaf.name)}: {_missing_text(read[leaf.name])},")
            if is_text(leaf.type) or leaf.store == "text":
                text.append(_quoted(leaf.name))
    opened = "gzip.open(path)" if manifest.compression else 'open(path, "rb")'
    code = TORCH.substitute(
        common,
        columns="\n".join(lines),
        text="{" + ", ".join(text) + "}" if text else "set()",
        open=opened,
    )
    return code if manifest.compression else code.replace("import gzip\n", "")


def _missing_text(reading: Reading) -> str:
    if reading.default is not None:
        return _default_text(reading)
    return {FLOAT: 'float("nan")', INT64: "0", BYTES: "None"}[reading.kind]
