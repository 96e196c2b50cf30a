"""Generates the Python program that trains a small Keras model on a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import Template

import pyarrow as pa

from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.feature_spec import FIXED, VARYING, Reading, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import BYTES, FLOAT, VALUES, TFColumn, tf_columns
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.frameworks.code_text import quoted, reading_text

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
    """Return the program; see `beam_tfrecord.frameworks.code.reading_code`."""
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
