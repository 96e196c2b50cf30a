"""Converts a dataset to a ``tf.data.Dataset``; its functions import TensorFlow when called."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.dataset.rows import Rows
from beam_tfrecord.dataset.tf_decoding import (
    IMAGE,
    Decoding,
    ImageDecoding,
    image_decoding,
    tensor_decodings,
)
from beam_tfrecord.dataset.tf_records import Reading, serialized_examples
from beam_tfrecord.dataset.values import with_defaults
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import import_tensorflow, require
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.type_checks import as_words, check_seed

if TYPE_CHECKING:
    import tensorflow as tf


def tf_dataset(
    dataset: Rows,
    batch_size: int | None = None,
    *,
    label: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    shuffle: bool | int = False,
    seed: int | None = 0,
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
    start_step: int = 0,
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
    """
    require("tensorflow", "load(...).tf()")
    import_tensorflow("tensorflow")
    import tensorflow as tf

    dataset.check_single_split()
    labels = [label] if isinstance(label, str) else list(label or ())
    images = image_decoding(dataset, columns, image_size, decode=decode)
    if images is not None and columns is None:
        columns = [IMAGE]
    schema = _parsed_schema(dataset, labels, columns, {} if defaults is None else defaults)
    reading = Reading(
        shuffle,
        check_seed(seed),
        cache,
        deterministic,
        interleave,
        shard,
        drop_remainder,
        start_step,
    )
    decodings = tensor_decodings(schema)
    # Images are decoded one by one: they make a batch only after they have the same size.
    is_batched_first = batch_size is not None and images is None
    if batch_size is not None:
        if batch_size < 1:
            raise UsageError(f"a batch must have at least 1 row, not {batch_size}")
        for decoding in decodings:
            decoding.check_batch()
    records = serialized_examples(dataset, reading, batch_size, is_batched=is_batched_first)
    parse = _parser(schema, decodings, images, label, rename or {}, is_batch=is_batched_first)
    examples = records.map(parse, tf.data.AUTOTUNE, deterministic=deterministic)
    if batch_size is not None and not is_batched_first:
        # Makes ragged tensors of lists and of tensors of several sizes, as parsing a batch does.
        examples = examples.ragged_batch(batch_size, drop_remainder=drop_remainder)
    if repeat != 1:
        examples = examples.repeat(-1 if repeat is None else repeat)
    return examples.prefetch(tf.data.AUTOTUNE) if prefetch else examples


def _parsed_schema(
    dataset: Rows, labels: list[str], columns: Sequence[str] | None, defaults: Mapping[str, Any]
) -> Schema:
    """Return the schema of the columns to parse, labels included, with the user's defaults."""
    names = dataset.schema.names if columns is None else as_words("columns", columns)
    schema = dataset.manifest.schema.select(dict.fromkeys((*names, *labels)))
    if not schema.features:
        raise UsageError("there is no column to parse: choose at least one")
    schema = with_defaults(schema, defaults)
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
