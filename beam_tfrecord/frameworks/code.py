"""Generates Python programs that read a dataset without this package."""

from __future__ import annotations

import os
from string import Template

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.features.feature_spec import Reading, readings
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import (
    BYTES,
    FLOAT,
    INT64,
    VALUES,
    schema_tf_columns,
)
from beam_tfrecord.format.manifest import Manifest, manifest_path
from beam_tfrecord.format.stage import format_at
from beam_tfrecord.frameworks.code_keras import keras_code
from beam_tfrecord.frameworks.code_text import default_text, feature_lines, quoted
from beam_tfrecord.loading.tensor_bytes import tensors_in_bytes
from beam_tfrecord.storage import is_remote

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
        return default_text(reading)
    return {FLOAT: 'float("nan")', INT64: "0", BYTES: "None"}[reading.kind]
