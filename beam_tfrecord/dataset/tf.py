"""A dataset as a ``tf.data.Dataset``; TensorFlow is imported where it is used."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_tfrecord.dataset.images import IMAGE, pictures_of
from beam_tfrecord.dataset.parquet import ParquetDataset
from beam_tfrecord.dataset.tf_remote import remote_examples
from beam_tfrecord.dataset.tf_tensors import tensor_decodings
from beam_tfrecord.dataset.values import check_defaults
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    import tensorflow as tf

    from beam_tfrecord.dataset.load import Dataset

# The shuffle buffer holds serialized examples: about this much of them.
SHUFFLE_BYTES = 64 * 10**6
_MIX_SHARDS = 16
_READ_BYTES = 2**20


def tf_dataset(
    dataset: Dataset,
    batch_size: int | None = None,
    *,
    label: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    shuffle: bool | int = False,
    seed: int | None = None,
    repeat: int | None = 1,
    cache: bool | str = False,
    prefetch: bool = True,
    deterministic: bool = True,
    interleave: int | None = None,
    rename: Mapping[str, str] | None = None,
    shard: tuple[int, int] | None = None,
    drop_remainder: bool = False,
    image_size: tuple[int, int] | None = None,
    decode: bool = True,
) -> tf.data.Dataset:
    """Return the parsed examples, by the feature spec of the schema; the cardinality is exact.

    A list comes as a ragged tensor and a value that may be missing, without a default, as a
    sparse one; booleans and times are int64. A tensor or a float64 that is stored as bytes is
    decoded; tensors whose first axes differ make a ragged batch. Keras's ``fit`` refuses text
    among the features: choose `columns` without it, or encode it in the model.

    Pictures (the column ``image`` of `ReadFromImages`) are decoded to RGB, float32 from 0 to 255,
    shape `[height, width, 3]`. Without `columns` they alone are given, with the label as int32: as
    by ``keras.utils.image_dataset_from_directory``.

    Args:
        dataset: From `load`.
        batch_size: Examples a batch; None: single examples.
        label: Column, or columns, to give as the second part of ``(features, label)``.
        columns: Columns to parse besides the label; None: all of the dataset's.
        defaults: What replaces a missing value, by column; makes the column dense.
        shuffle: True mixes shards and a buffer of about 64 MB, a number a buffer of that many
            examples; anew in every epoch. False keeps the order of the dataset.
        seed: Of the shuffling; None: another order in every run.
        repeat: Number of epochs; None: without end.
        cache: True keeps the serialized examples in memory, a path in files whose names begin with
            it. They serve the same rows in the same order alone: another dataset, split or part
            gets files of its own. Remove those that are not wanted any more.
        prefetch: Prepare batches while the model is busy.
        deterministic: False lets shards and batches overtake each other, for speed.
        interleave: Read that many shards side by side, an example of each in turn; None: one after
            the other in the order of the dataset, 16 where it is not kept.
        rename: New names of columns in the result, by name.
        shard: ``(index, count)``: read every count-th file only, for one worker of several; see
            `Dataset.of_shards`.
        drop_remainder: Leave out a last batch that is not full.
        image_size: Height and width that pictures are resized to; None: they have one size.
        decode: False gives pictures as the bytes they are stored as.

    Raises:
        UsageError: An option names no column, a label may be missing and has no default, pictures
            have several sizes, or there are fewer shards than workers; or TensorFlow is not
            installed.
        DataError: A shard is missing or has the wrong size.
    """
    require("tensorflow", "load(...).tf()")
    import tensorflow as tf

    labels = [label] if isinstance(label, str) else list(label or ())
    pictures = pictures_of(dataset, columns, image_size, decode=decode)
    if pictures is not None and columns is None:
        columns = [IMAGE]
    schema = _parsed_schema(dataset, labels, columns, defaults or {})
    if shard is not None:
        dataset = dataset.of_shards(*shard)
    dataset.check_files()
    if interleave is not None and interleave < 1:
        raise UsageError(f"interleave is {interleave}: read at least 1 shard at a time")
    records = _records(dataset, bool(shuffle), seed, deterministic, interleave)
    records = records.apply(tf.data.experimental.assert_cardinality(len(dataset)))
    if cache:
        order = (bool(shuffle), deterministic, interleave)
        records = records.cache(_cache_file(dataset, cache, order))
    if shuffle:
        records = records.shuffle(_buffer_rows(dataset, shuffle), seed=seed)
    spec = schema.feature_spec()
    decodings = tensor_decodings(schema)
    for name in (name for decoding in decodings for name in decoding.unread):
        del spec[name]
    hidden = {decoding.shape_key for decoding in decodings}
    parse_one, parse_many = tf.io.parse_single_example, tf.io.parse_example
    # Pictures are decoded one by one, and become a batch when they have one size.
    is_batched_first = batch_size is not None and pictures is None
    parse = parse_many if is_batched_first else parse_one
    if batch_size is not None:
        for decoding in decodings:
            decoding.check_batch()
    if is_batched_first:
        records = records.batch(batch_size, drop_remainder=drop_remainder)
    single = isinstance(label, str)
    names = _new_names([name for name in spec if name not in hidden], rename or {})
    is_alone = pictures is not None and pictures.are_alone

    def element(serialized: tf.Tensor) -> Any:
        parsed = parse(serialized, spec)
        for decoding in decodings:
            parsed[decoding.column] = decoding.decode(parsed, is_batch=is_batched_first)
        if pictures is not None:
            parsed = pictures.decoded(parsed, labels)
        targets = {names[name]: parsed.pop(name) for name in labels}
        features = {names[name]: value for name, value in parsed.items()}
        given = features[names[IMAGE]] if is_alone else features
        if not labels:
            return given
        return given, targets[names[labels[0]]] if single else targets

    examples = records.map(element, tf.data.AUTOTUNE, deterministic=deterministic)
    if batch_size is not None and not is_batched_first:
        # Lists and tensors of several sizes become ragged tensors, as where a batch is parsed.
        examples = examples.ragged_batch(batch_size, drop_remainder=drop_remainder)
    if repeat != 1:
        examples = examples.repeat(-1 if repeat is None else repeat)
    return examples.prefetch(tf.data.AUTOTUNE) if prefetch else examples


def _records(
    dataset: Dataset, mixed: bool, seed: int | None, deterministic: bool, interleave: int | None
) -> tf.data.Dataset:
    """Return the serialized examples: in order, or of several shards in turn."""
    import tensorflow as tf

    if isinstance(dataset, ParquetDataset):
        return dataset.tf_records(mixed=mixed, seed=seed)
    paths = tf.constant([dataset.path(shard) for shard in dataset.shards], tf.string)
    compression = dataset.manifest.compression
    in_order = deterministic and not mixed and interleave is None
    is_elsewhere = is_remote(dataset.directory)
    if in_order and not is_elsewhere:
        names = _checked_names(paths, dataset)
        return tf.data.TFRecordDataset(names, compression, _READ_BYTES)

    def examples(path: tf.Tensor) -> tf.data.Dataset:
        if is_elsewhere:
            return remote_examples(path, compression, dataset.opened)
        names = _checked_names(path[None], dataset)
        return tf.data.TFRecordDataset(names, compression, _READ_BYTES)

    files = tf.data.Dataset.from_tensor_slices(paths)
    if in_order:
        return files.flat_map(examples)
    if mixed:
        files = files.shuffle(max(1, len(dataset.shards)), seed=seed)
    return files.interleave(
        examples,
        cycle_length=interleave or _MIX_SHARDS,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=deterministic,
    )


def _cache_file(dataset: Dataset, cache: bool | str, order: object) -> str:
    """Return the name of the file that keeps the examples; empty: memory does.

    TensorFlow takes whatever is there under that name for its own, so it says what is in it.
    """
    if not isinstance(cache, str):
        return ""
    return f"{cache}-{hashlib.sha256(repr((dataset.content, order)).encode()).hexdigest()[:16]}"


def _checked_names(paths: tf.Tensor, dataset: Dataset) -> tf.data.Dataset:
    """Return names of files one by one, each checked when its turn comes and when it is read.

    TensorFlow opens a file between two checks, so it is one of the dataset that was opened, and
    reads it to its end between them, so it was not changed meanwhile.
    """
    import tensorflow as tf

    def check(last: bytes, path: bytes) -> Any:
        dataset.opened.check()
        for name in filter(None, (last, path)):
            dataset.files.check(os.fsdecode(name))
        return np.array([path] if path else [], object)

    def checked(last: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        name = tf.numpy_function(check, [last, path], tf.string)
        return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(name, [None]))

    ends = (tf.concat([[""], paths], 0), tf.concat([paths, [""]], 0))
    return tf.data.Dataset.from_tensor_slices(ends).flat_map(checked)


def _buffer_rows(dataset: Dataset, shuffle: bool | int) -> int:
    if shuffle is not True:
        return int(shuffle)
    nbytes = sum(shard.bytes for shard in dataset.shards)
    mean_bytes = max(1, nbytes // max(1, len(dataset)))
    return max(1, min(len(dataset), SHUFFLE_BYTES // mean_bytes))


def _parsed_schema(
    dataset: Dataset,
    labels: list[str],
    columns: Sequence[str] | None,
    defaults: Mapping[str, Any],
) -> Schema:
    """Return the schema of the columns that are parsed, with the defaults in it."""
    names = dataset.schema.names if columns is None else tuple(columns)
    if isinstance(columns, str):
        raise UsageError(f"columns is the text {columns!r}: give a list of names")
    schema = dataset.manifest.schema.select(dict.fromkeys((*names, *labels)))
    if not schema.features:
        raise UsageError("there is no column to parse: choose at least one")
    check_defaults(schema, defaults)
    given = {
        name: dataclasses.replace(schema[name], default=value) for name, value in defaults.items()
    }
    schema = schema.edit(**given)
    for name in labels:
        feature = schema[name]
        if feature.nullable and feature.default is None:
            missing = f" {feature.observed.missing:,}" if feature.observed else ""
            raise UsageError(
                f"label {name!r} has{missing} missing values: pass defaults={{{name!r}: …}}"
            )
    return schema


def _new_names(spec: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """Return the name in the result of every parsed feature.

    Raises:
        UsageError: `rename` names no feature, or gives two features one name.
    """
    if unknown := [name for name in rename if name not in spec]:
        raise UsageError(
            f"there is no feature {unknown[0]!r} to rename: the features are {', '.join(spec)}"
        )
    names = {name: rename.get(name, name) for name in spec}
    seen: set[str] = set()
    for new in names.values():
        if new in seen:
            raise UsageError(f"two features would be named {new!r}: rename one of them otherwise")
        seen.add(new)
    return names
