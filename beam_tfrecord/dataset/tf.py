"""A dataset as a ``tf.data.Dataset``: reading, parsing, and decoding of tensors and pictures.

TensorFlow is imported in the functions that use it, so `tensor_decodings` works without it.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.dataset.rows import RecordFiles, Rows
from beam_tfrecord.dataset.values import check_defaults
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.feature_spec import FIXED, readings
from beam_tfrecord.features.schema import Feature, Schema
from beam_tfrecord.features.tensors import OpenShape, is_foreign
from beam_tfrecord.features.type_kinds import is_numpy_tensor, is_tensor
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    import tensorflow as tf

# The shuffle buffer holds serialized examples: about this many bytes of them.
SHUFFLE_BYTES = 64 * 10**6
_MIX_SHARDS = 16
_READ_BYTES = 2**20
# TensorFlow copies what comes out of Python: in small pieces that stays within a cache.
_BLOCK_BYTES = 2**20

# The dtypes that `tf.io.decode_raw` decodes; `tf.bitcast` adds two more.
_RAW = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
)
_CAST = ("uint32", "uint64")

IMAGE = "image"
# The columns that `beam_tfrecord.sources.images.source` writes beside the bytes of a picture.
_DESCRIPTION = ("width", "height", "channels", "format")
_CHANNELS = 3


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
    """Return the examples, parsed by the feature spec of the schema; the cardinality is exact.

    A list comes as a ragged tensor and a value that may be missing, without a default, as a
    sparse one; booleans and times are int64. A tensor or a float64 that is stored as bytes is
    decoded; tensors whose first axes differ make a ragged batch. Keras's ``fit`` refuses text
    among the features: choose `columns` without it, or encode it in the model.

    Pictures (the column ``image`` of `ReadFromImages`) are decoded to RGB, float32 from 0 to 255,
    shape `[height, width, 3]`. Without `columns` the result has only them, with the label as int32,
    like ``keras.utils.image_dataset_from_directory``.

    Args:
        dataset: A dataset from `load`.
        batch_size: Examples per batch; None for single examples.
        label: Column, or columns, to return as the second part of ``(features, label)``.
        columns: Columns to parse besides the label; None for all of the dataset's.
        defaults: Replacements of missing values, by column; each makes its column dense.
        shuffle: True mixes shards and a buffer of about 64 MB, a number a buffer of that many
            examples, in another order every epoch. False keeps the order of the dataset.
        seed: Seed of the shuffling; None for another order in every run.
        repeat: Number of epochs; None for no end.
        cache: True keeps the serialized examples in memory, a path in files whose names begin with
            it. These files serve only the same rows in the same order: another dataset, split or
            part gets files of its own. Remove files that you no longer need.
        prefetch: Prepare batches while the model is busy.
        deterministic: False lets shards and batches overtake each other, for speed.
        interleave: Read that many shards side by side, an example of each in turn; None reads one
            after the other in the order of the dataset, and 16 if that order is not required.
        rename: New names of columns in the result, by name.
        shard: ``(index, count)``: read every count-th file only, for one worker of several; see
            `Dataset.of_shards`.
        drop_remainder: Leave out a last batch that is not full.
        image_size: Height and width in pixels that pictures are resized to; None if all pictures
            have one size.
        decode: False returns pictures as the bytes they are stored as.

    Raises:
        UsageError: An option names no column, a label may be missing and has no default, pictures
            have several sizes, or there are fewer shards than workers; or TensorFlow is not
            installed.
        DataError: A shard is missing or has the wrong size.
    """
    require("tensorflow", "load(...).tf()")
    import tensorflow as tf

    labels = [label] if isinstance(label, str) else list(label or ())
    pictures = _pictures(dataset, columns, image_size, decode=decode)
    if pictures is not None and columns is None:
        columns = [IMAGE]
    schema = _parsed_schema(dataset, labels, columns, defaults or {})
    if shard is not None:
        dataset = dataset.of_shards(*shard)
    dataset.check_files()
    records = _records(dataset, bool(shuffle), seed, deterministic, interleave)
    records = records.apply(tf.data.experimental.assert_cardinality(len(dataset)))
    if cache:
        order = (bool(shuffle), deterministic, interleave)
        records = records.cache(_cache_file(dataset, cache, order))
    if shuffle:
        records = records.shuffle(_buffer_rows(dataset, shuffle), seed=seed)
    decodings = tensor_decodings(schema)
    # Pictures are decoded one by one, and become a batch when they have one size.
    is_batched_first = batch_size is not None and pictures is None
    if batch_size is not None:
        for decoding in decodings:
            decoding.check_batch()
    if is_batched_first:
        records = records.batch(batch_size, drop_remainder=drop_remainder)
    parse = _parser(schema, decodings, pictures, label, rename or {}, is_batch=is_batched_first)
    examples = records.map(parse, tf.data.AUTOTUNE, deterministic=deterministic)
    if batch_size is not None and not is_batched_first:
        # Lists and tensors of several sizes become ragged tensors, as in a batch that is parsed.
        examples = examples.ragged_batch(batch_size, drop_remainder=drop_remainder)
    if repeat != 1:
        examples = examples.repeat(-1 if repeat is None else repeat)
    return examples.prefetch(tf.data.AUTOTUNE) if prefetch else examples


def _records(
    dataset: Rows, mixed: bool, seed: int | None, deterministic: bool, interleave: int | None
) -> tf.data.Dataset:
    """Return the serialized examples: in order, or of several shards in turn."""
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
        # A row group in memory is much larger than the buffer of a record file.
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

    TensorFlow's own readers know no ``s3://``, and look for credentials and endpoints of ``gs://``
    elsewhere than the rest of the package does.
    """
    import tensorflow as tf

    def blocks(indices: Sequence[int]) -> Iterator[Any]:
        shards = [dataset.shards[index] for index in indices]
        for _, block in dataset.files.blocks(shards, _BLOCK_BYTES):
            yield np.array(list(block.payloads()), dtype=object)

    # A block is an element, because each element costs a call into Python.
    return (
        tf.data.Dataset.from_generator(
            blocks, args=(indices,), output_signature=tf.TensorSpec([None], tf.string)
        )
        .prefetch(1)
        .unbatch()
    )


def _cache_file(dataset: Rows, cache: bool | str, order: object) -> str:
    """Return the name of the file that caches the examples; empty to cache in memory.

    TensorFlow uses any file of that name as it is, so the name identifies the content.
    """
    if not isinstance(cache, str):
        return ""
    return f"{cache}-{hashlib.sha256(repr((dataset.content, order)).encode()).hexdigest()[:16]}"


def _checked_names(paths: tf.Tensor, files: Any) -> tf.data.Dataset:
    """Return names of files one by one, each checked when its turn comes and when it is read.

    TensorFlow opens a file between two checks, so it is one of the dataset that was opened, and
    reads it to its end between them, so it was not changed meanwhile.

    Args:
        paths: Paths of shards, shape `[n]`.
        files: The `RecordFiles` that the shards belong to.
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


def _buffer_rows(dataset: Rows, shuffle: bool | int) -> int:
    if shuffle is not True:
        return int(shuffle)
    nbytes = sum(shard.bytes for shard in dataset.shards)
    mean_bytes = max(1, nbytes // max(1, len(dataset)))
    return max(1, min(len(dataset), SHUFFLE_BYTES // mean_bytes))


def _parsed_schema(
    dataset: Rows, labels: list[str], columns: Sequence[str] | None, defaults: Mapping[str, Any]
) -> Schema:
    """Return the schema of the columns that are parsed, with the defaults in it.

    Raises:
        UsageError: A name is no column, there is no column, or a label may be missing.
    """
    if isinstance(columns, str):
        raise UsageError(f"columns is the text {columns!r}: give a list of names")
    names = dataset.schema.names if columns is None else tuple(columns)
    schema = dataset.manifest.schema.select(dict.fromkeys((*names, *labels)))
    if not schema.features:
        raise UsageError("there is no column to parse: choose at least one")
    check_defaults(schema, defaults)
    schema = schema.edit(
        **{
            name: dataclasses.replace(schema[name], default=value)
            for name, value in defaults.items()
        }
    )
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
    pictures: Pictures | None,
    label: str | Sequence[str] | None,
    rename: Mapping[str, str],
    *,
    is_batch: bool,
) -> Callable[[tf.Tensor], Any]:
    """Return the function that makes features, and labels if there are any, of examples.

    Args:
        schema: The columns that are parsed.
        decodings: Those among them that are decoded.
        pictures: How pictures are decoded; None if there are none to decode.
        label: Column, or columns, that are returned as labels.
        rename: New names of columns in the result.
        is_batch: The function is called with a batch of examples.
    """
    import tensorflow as tf

    spec = schema.feature_spec()
    for name in (name for decoding in decodings for name in decoding.unread):
        del spec[name]
    hidden = {decoding.shape_key for decoding in decodings}
    names = _new_names([name for name in spec if name not in hidden], rename)
    labels = [label] if isinstance(label, str) else list(label or ())
    parse_examples = tf.io.parse_example if is_batch else tf.io.parse_single_example

    def parse(serialized: tf.Tensor) -> Any:
        parsed = parse_examples(serialized, spec)
        for decoding in decodings:
            parsed[decoding.column] = decoding.decode(parsed, is_batch=is_batch)
        if pictures is not None:
            parsed = pictures.decode(parsed, labels)
        targets = {names[name]: parsed.pop(name) for name in labels}
        features = {names[name]: value for name, value in parsed.items()}
        if pictures is not None and pictures.are_alone:
            features = features[names[IMAGE]]
        if not labels:
            return features
        return features, targets[names[label]] if isinstance(label, str) else targets

    return parse


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
    for new, count in collections.Counter(names.values()).items():
        if count > 1:
            raise UsageError(f"two features would be named {new!r}: rename one of them otherwise")
    return names


@dataclasses.dataclass(frozen=True)
class Decoding:
    """The decoding of one column of tensors that are stored as bytes.

    Attributes:
        column: Name of the column, and of the feature with the bytes.
        dtype: TensorFlow's name of the type of the values.
        shape: Shape of the tensor of one example; None for sizes that differ.
        shape_key: Feature with the shape of each example; None if all examples have one shape.
        unread: Features that need not be parsed.
    """

    column: str
    dtype: str
    shape: OpenShape
    shape_key: str | None
    unread: tuple[str, ...]

    @property
    def is_simple(self) -> bool:
        """True if `tf.io.decode_raw` and a reshape to ``[-1, *shape]`` decode the column."""
        return self.shape_key is None and self.dtype in _RAW and 0 not in (self.shape or ())

    def check_batch(self) -> None:
        """Refuse batches of tensors that no ragged tensor can hold.

        Raises:
            UsageError: The tensors differ in more than the size of their first axis.
        """
        if self.shape_key and (self.shape is None or None in self.shape[1:]):
            raise UsageError(
                f"tensors of column {self.column!r} have different shapes: leave out batch_size, "
                "and batch them with padded_batch"
            )

    def decode(self, parsed: dict[str, Any], *, is_batch: bool) -> Any:
        """Return the tensor, and remove its features from `parsed`.

        The tensors of a batch form a ragged tensor if their first axes differ.
        """
        import tensorflow as tf

        data = parsed.pop(self.column)
        if self.shape_key is None:
            values = _numbers_in(data, self.dtype)
            leading = tf.shape(data) if is_batch else tf.constant([], tf.int32)
            tensor = tf.reshape(values, tf.concat([leading, self._sizes()], 0))
            return tf.ensure_shape(tensor, [None, *self._dims()] if is_batch else self._dims())
        sizes = parsed.pop(self.shape_key)
        if not is_batch:
            tensor = tf.reshape(_numbers_in(data, self.dtype), sizes)
            return tensor if self.shape is None else tf.ensure_shape(tensor, self.shape)
        lengths = sizes[:, 0]
        values = _numbers_in(tf.strings.reduce_join(data), self.dtype)
        total = tf.cast(tf.reduce_sum(lengths), tf.int32)
        inner = tf.reshape(values, tf.concat([[total], self._sizes()], 0))
        inner = tf.ensure_shape(inner, [None, *self._dims()])
        return tf.RaggedTensor.from_row_lengths(inner, lengths)

    def _dims(self) -> list[int]:
        return [size for size in self.shape or () if size is not None]

    def _sizes(self) -> tf.Tensor:
        import tensorflow as tf

        return tf.constant(self._dims(), tf.int32)


def tensor_decodings(schema: Schema) -> list[Decoding]:
    """Return how columns of tensors in bytes, and float64 in bytes, are decoded.

    Columns that may be missing, and those of text, have no decoding: they stay as they are parsed.
    """
    fixed = {reading.name for reading in readings(schema) if reading.how == FIXED}
    out = []
    for feature in schema.features:
        described = _described(feature)
        if described is None or feature.name not in fixed:
            continue
        dtype, shape, parts = described
        names = [f"{feature.name}{schema.separator}{part}" for part in parts]
        is_open = shape is None or None in shape
        shape_key = names.pop(0) if is_open else None
        out.append(Decoding(feature.name, dtype, shape, shape_key, tuple(names)))
    return out


def _described(feature: Feature) -> tuple[str, OpenShape, tuple[str, ...]] | None:
    """Return dtype, shape and the further features of a column in bytes; None for any other."""
    arrow = feature.type
    if pa.types.is_float64(arrow) and feature.store == "bytes":
        return "float64", (), ()
    if feature.store == "values":
        return None
    if is_tensor(arrow):
        name = str(np.dtype(arrow.value_type.to_pandas_dtype()))
        return name, tuple(arrow.shape), ("shape",)
    if not is_numpy_tensor(arrow) or arrow.dtype.kind in "SU":
        return None
    if arrow.dtype.kind in "mM":
        return "int64", arrow.shape, ("shape", "dtype")
    name = arrow.dtype.name
    if name not in (*_RAW, *_CAST) and is_foreign(arrow.dtype):
        # TensorFlow has these numbers but decodes none: they come as their bytes.
        name = "uint8"
    return name, arrow.shape, ("shape", "dtype")


def _numbers_in(data: tf.Tensor, dtype: str) -> tf.Tensor:
    """Return the numbers that are stored in bytes: one more axis than `data` has."""
    import tensorflow as tf

    if dtype not in _CAST:
        return tf.io.decode_raw(data, tf.as_dtype(dtype))
    raw = tf.io.decode_raw(data, tf.uint8)
    number = tf.as_dtype(dtype)
    return tf.bitcast(tf.reshape(raw, tf.concat([tf.shape(data), [-1, number.size]], 0)), number)


@dataclasses.dataclass(frozen=True)
class Pictures:
    """How pictures become tensors.

    Attributes:
        size: Height and width in pixels.
        resize: False if all pictures have that size already.
        are_alone: The result has only the pictures, not the other columns.
    """

    size: tuple[int, int]
    resize: bool
    are_alone: bool

    def decode(self, parsed: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """Return the columns of one parsed example with the picture decoded."""
        import tensorflow as tf

        decoded = dict(parsed)
        # The first frame of several: an animation cannot be one row of a batch.
        image = tf.io.decode_image(parsed[IMAGE], channels=_CHANNELS, expand_animations=False)
        image.set_shape((None, None, _CHANNELS))
        image = tf.image.resize(image, self.size) if self.resize else tf.cast(image, tf.float32)
        image.set_shape((*self.size, _CHANNELS))
        decoded[IMAGE] = image
        if self.are_alone:
            for name in labels:
                if decoded[name].dtype == tf.int64:
                    decoded[name] = tf.cast(decoded[name], tf.int32)
        return decoded


def _pictures(
    dataset: Rows,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    *,
    decode: bool,
) -> Pictures | None:
    """Return how the pictures of a dataset are decoded; None if there are none to decode.

    Args:
        dataset: The dataset.
        columns: The columns that are read; None for all.
        image_size: Height and width in pixels to resize to; None if pictures have one size.
        decode: False leaves pictures as bytes.

    Raises:
        UsageError: A size is set but there are no pictures, or it is missing though they have
            several.
    """
    names = dataset.schema.names if columns is None else columns
    described = dataset.manifest.schema
    has_pictures = IMAGE in names and all(name in described for name in (IMAGE, *_DESCRIPTION))
    if image_size is not None and (not decode or IMAGE not in names):
        what = f"there is no column {IMAGE!r} among them" if decode else "decode is False"
        raise UsageError(f"image_size is for pictures, but {what}: leave it out")
    if not decode or not (has_pictures or image_size):
        return None
    are_alone = columns is None
    if image_size is not None:
        return Pictures(_checked_size(image_size), True, are_alone)
    ranges = [described[name].observed for name in ("height", "width")]
    lows = [seen.min if seen else None for seen in ranges]
    highs = [seen.max if seen else None for seen in ranges]
    if lows != highs or None in lows:
        raise UsageError(
            f"pictures are from {lows[0]}x{lows[1]} to {highs[0]}x{highs[1]} (height x width): "
            "pass image_size=(height, width), or decode=False for their bytes"
        )
    return Pictures((int(lows[0] or 0), int(lows[1] or 0)), False, are_alone)


def _checked_size(image_size: Any) -> tuple[int, int]:
    try:
        height, width = (operator.index(side) for side in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise UsageError(f"image_size {image_size!r} is no size: pass (height, width) in pixels")
    return height, width
