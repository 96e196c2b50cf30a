"""The texts that `code` fills in: programs that read a dataset without this package."""

from __future__ import annotations

from string import Template

FILES = '''\
MANIFEST = pathlib.Path($manifest)


def shard_files(split):
    """Return the paths of a split's files, in order, and the number of its examples."""
    found = json.loads(MANIFEST.read_text(encoding="utf-8"))["splits"][split]
    return [str(MANIFEST.parent / shard["path"]) for shard in found["shards"]], found["examples"]
'''

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
        print(name, values)
'''
)

# What the program above has besides where tensors are stored as bytes.
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
model.fit(read($split, shuffle=10_000), epochs=1$validation)
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
    """Return a row: scalars as Python values, the rest as `parse` gives it."""
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
print(next(iter(loader)))
'''
)
