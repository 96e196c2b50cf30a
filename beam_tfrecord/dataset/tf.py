"""Converts a dataset to a ``tf.data.Dataset``; its functions import TensorFlow when called."""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_tfrecord.dataset.rows import RecordFiles, Rows, mixed_rows
from beam_tfrecord.dataset.tf_decoding import (
    IMAGE,
    Decoding,
    ImageDecoding,
    image_decoding,
    tensor_decodings,
)
from beam_tfrecord.dataset.values import check_defaults
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import import_tensorflow, require
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    import tensorflow as tf

_MIX_SHARDS = 16
_READ_BYTES = 2**20
# TensorFlow copies the records that Python yields: small blocks stay within a processor's cache.
_BLOCK_BYTES = 2**20


def tf_dataset(
    dataset: Rows,
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
    """Return a ``tf.data.Dataset`` of the examples, parsed by the feature spec of the schema.

    Its cardinality is exact. A list is a ragged tensor. A value that may be missing is a sparse
    tensor, unless its column has a default. Booleans and times are int64. A tensor or a float64
    that is stored as bytes is decoded; tensors whose first axes differ make a ragged batch. Keras's
    ``fit`` refuses text among the features: choose `columns` without text, or encode it in the
    model.

    Images (the column ``image`` of `ReadFromImages`) are decoded to RGB, float32 from 0 to 255,
    shape `[height, width, 3]`. If `columns` is None the result has only the images, and the label
    as int32, like ``keras.utils.image_dataset_from_directory``.

    Args:
        dataset: A dataset from `load`.
        batch_size: Number of examples per batch; None means single examples.
        label: Column, or columns, to return as the second part of ``(features, label)``.
        columns: Columns to parse besides the label; None means all columns of the dataset.
        defaults: Replacements of missing values, by column; each makes its column dense.
        shuffle: True shuffles the order of shards, and examples in a buffer of about 64 MB. A
            number is the size of the buffer in examples. Every epoch has another order. False keeps
            the order of the dataset.
        seed: Seed of the shuffling; None means another order in every program run.
        repeat: Number of epochs; None repeats without end.
        cache: True caches the serialized examples in memory; a path caches them in files whose
            names begin with the path. Another dataset, split, part or order of reading gets files
            of its own. Remove files that you no longer need.
        prefetch: Prepare batches while the model is busy.
        deterministic: False lets shards and batches overtake each other, for speed.
        interleave: Number of shards to read side by side, one example of each in turn. None reads
            one shard after the other if the order of the dataset is required, else 16 shards side
            by side. Row groups of Parquet files are read side by side only if a number is passed.
        rename: New names of columns in the result, by old name.
        shard: ``(index, count)``: read only every count-th file, for one of several workers; see
            `Dataset.of_shards`.
        drop_remainder: Leave out a last batch that is not full.
        image_size: Height and width in pixels to resize images to; None if all images have the
            same size.
        decode: False returns images as the bytes of their files.

    Raises:
        UsageError: An option names no column, a label may be missing and has no default, images
            have several sizes, there are fewer shards than workers, or TensorFlow is not installed.
        DataError: A shard is missing or has the wrong size.
    """
    require("tensorflow", "load(...).tf()")
    import_tensorflow("tensorflow")
    import tensorflow as tf

    labels = [label] if isinstance(label, str) else list(label or ())
    images = image_decoding(dataset, columns, image_size, decode=decode)
    if images is not None and columns is None:
        columns = [IMAGE]
    schema = _parsed_schema(dataset, labels, columns, {} if defaults is None else defaults)
    if shard is not None:
        dataset = dataset.of_shards(*shard)
    dataset.check_files()
    records = _records(dataset, bool(shuffle), seed, deterministic, interleave)
    records = records.apply(tf.data.experimental.assert_cardinality(len(dataset)))
    if cache:
        order = (bool(shuffle), deterministic, interleave)
        records = records.cache(_cache_file(dataset, cache, order))
    if shuffle:
        records = records.shuffle(mixed_rows(dataset, shuffle), seed=seed)
    decodings = tensor_decodings(schema)
    # Images are decoded one by one: they make a batch only after they have the same size.
    is_batched_first = batch_size is not None and images is None
    if batch_size is not None:
        for decoding in decodings:
            decoding.check_batch()
    if is_batched_first:
        records = records.batch(batch_size, drop_remainder=drop_remainder)
    parse = _parser(schema, decodings, images, label, rename or {}, is_batch=is_batched_first)
    examples = records.map(parse, tf.data.AUTOTUNE, deterministic=deterministic)
    if batch_size is not None and not is_batched_first:
        # Makes ragged tensors of lists and of tensors of several sizes, as parsing a batch does.
        examples = examples.ragged_batch(batch_size, drop_remainder=drop_remainder)
    if repeat != 1:
        examples = examples.repeat(-1 if repeat is None else repeat)
    return examples.prefetch(tf.data.AUTOTUNE) if prefetch else examples


def _records(
    dataset: Rows, mixed: bool, seed: int | None, deterministic: bool, interleave: int | None
) -> tf.data.Dataset:
    """Return the serialized examples, in the order of the dataset or of several shards in turn."""
    import tensorflow as tf

    if interleave is not None and interleave < 1:
        raise UsageError(f"interleave is {interleave}: read at least 1 shard at a time")
    are_records = isinstance(dataset.files, RecordFiles)
    if are_records and not is_remote(dataset.directory):
        shards = tf.constant([dataset.path(shard) for shard in dataset.shards], tf.string)
        examples = functools.partial(_read_by_tensorflow, dataset)
    else:
        shards = tf.range(len(dataset.shards), dtype=tf.int64)
        examples = functools.partial(_read_by_python, dataset)
    if deterministic and not mixed and interleave is None:
        return examples(shards)
    turns = tf.data.Dataset.from_tensor_slices(shards[:, None])
    if mixed:
        turns = turns.shuffle(max(1, len(dataset.shards)), seed=seed)
    return turns.interleave(
        examples,
        # Row groups one at a time: each is much larger in memory than the buffer of a record file.
        cycle_length=interleave or (_MIX_SHARDS if are_records else 1),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=deterministic,
    )


def _read_by_tensorflow(dataset: Rows, paths: tf.Tensor) -> tf.data.Dataset:
    """Return the serialized examples of local shards, one shard after the other."""
    import tensorflow as tf

    names = _checked_names(paths, dataset.files)
    return tf.data.TFRecordDataset(names, dataset.manifest.compression, _READ_BYTES)


def _read_by_python(dataset: Rows, indices: tf.Tensor) -> tf.data.Dataset:
    """Return the serialized examples of remote shards or Parquet files, read by this package.

    TensorFlow's own readers cannot read ``s3://``, and look for credentials and endpoints of
    ``gs://`` in other settings than this package.
    """
    import tensorflow as tf

    def blocks(indices: Sequence[int]) -> Iterator[Any]:
        shards = [dataset.shards[index] for index in indices]
        for _, block in dataset.files.blocks(shards, _BLOCK_BYTES):
            yield np.array(list(block.payloads()), dtype=object)

    # The generator yields blocks, not examples, because each element costs a call into Python.
    return (
        tf.data.Dataset.from_generator(
            blocks, args=(indices,), output_signature=tf.TensorSpec([None], tf.string)
        )
        .prefetch(1)
        .unbatch()
    )


def _cache_file(dataset: Rows, cache: bool | str, order: object) -> str:
    """Return the name of the file that caches the examples; empty if memory caches them.

    TensorFlow does not check the content of an existing cache file. Therefore the name has a hash
    of the examples and their order.
    """
    if not isinstance(cache, str):
        return ""
    return f"{cache}-{hashlib.sha256(repr((dataset.content, order)).encode()).hexdigest()[:16]}"


def _checked_names(paths: tf.Tensor, files: Any) -> tf.data.Dataset:
    """Return the paths of shards one by one, and check each file before and after it is read.

    TensorFlow opens and reads a file between the two checks. So the file belongs to the dataset
    that was opened, and was not changed meanwhile.

    Args:
        paths: Paths of the shards.
        files: The `RecordFiles` of the dataset.
    """
    import tensorflow as tf

    def check(last: bytes, path: bytes) -> Any:
        files.opened.check()
        for name in filter(None, (last, path)):
            files.check_unchanged(os.fsdecode(name))
        return np.array([path] if path else [], object)

    def checked(last: tf.Tensor, path: tf.Tensor) -> tf.data.Dataset:
        name = tf.numpy_function(check, [last, path], tf.string)
        return tf.data.Dataset.from_tensor_slices(tf.ensure_shape(name, [None]))

    ends = (tf.concat([[""], paths], 0), tf.concat([paths, [""]], 0))
    return tf.data.Dataset.from_tensor_slices(ends).flat_map(checked)


def _parsed_schema(
    dataset: Rows, labels: list[str], columns: Sequence[str] | None, defaults: Mapping[str, Any]
) -> Schema:
    """Return the schema of the columns to parse, labels included, with the user's defaults.

    Raises:
        UsageError: There is no column, no column of a name, or a label may be missing.
    """
    if isinstance(columns, str):
        raise UsageError(f"columns is one string, {columns!r}: pass a list of names")
    names = dataset.schema.names if columns is None else tuple(columns)
    schema = dataset.manifest.schema.select(dict.fromkeys((*names, *labels)))
    if not schema.features:
        raise UsageError("there is no column to parse: choose at least one")
    check_defaults(schema, defaults)
    filled = {name: dataclasses.replace(schema[name], default=defaults[name]) for name in defaults}
    schema = schema.edit(**filled)
    for name in labels:
        feature = schema[name]
        if feature.nullable and feature.default is None:
            missing = f" {feature.observed.missing:,}" if feature.observed else ""
            raise UsageError(
                f"label {name!r} has{missing} missing values: pass defaults={{{name!r}: …}}"
            )
    return schema


def _parser(
    schema: Schema,
    decodings: Sequence[Decoding],
    images: ImageDecoding | None,
    label: str | Sequence[str] | None,
    rename: Mapping[str, str],
    *,
    is_batch: bool,
) -> Callable[[tf.Tensor], Any]:
    """Return a function that parses an example, or a batch of examples, to features and labels."""
    import tensorflow as tf

    spec = schema.feature_spec()
    for decoding in decodings:
        for name in decoding.unread:
            del spec[name]
    hidden = {decoding.shape_key for decoding in decodings}
    names = _new_names([name for name in spec if name not in hidden], rename)
    labels = [label] if isinstance(label, str) else list(label or ())
    parse_examples = tf.io.parse_example if is_batch else tf.io.parse_single_example

    def parse(serialized: tf.Tensor) -> Any:
        parsed = parse_examples(serialized, spec)
        for decoding in decodings:
            parsed[decoding.column] = decoding.decode(parsed, is_batch=is_batch)
        if images is not None:
            images.decode(parsed, labels)
        targets = {names[name]: parsed.pop(name) for name in labels}
        features = {names[name]: value for name, value in parsed.items()}
        if images is not None and images.only_images_and_labels:
            features = features[names[IMAGE]]
        if not labels:
            return features
        return features, targets[names[label]] if isinstance(label, str) else targets

    return parse


def _new_names(spec: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    """Return the name in the result of each parsed feature, by the feature's name."""
    if unknown := [name for name in rename if name not in spec]:
        raise UsageError(
            f"there is no feature {unknown[0]!r} to rename: the features are {', '.join(spec)}"
        )
    names = {name: rename.get(name, name) for name in spec}
    for new, count in collections.Counter(names.values()).items():
        if count > 1:
            raise UsageError(
                f"two features would be named {new!r}: choose another name for one of them"
            )
    return names
