"""A dataset as a ``tf.data.Dataset``; TensorFlow is imported where it is used."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.dataset.opened import OpenedManifest
from beam_tfrecord.dataset.parquet import ParquetDataset
from beam_tfrecord.dataset.values import check_defaults
from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.features.feature_spec import FIXED, readings
from beam_tfrecord.features.schema import Feature, Schema
from beam_tfrecord.features.tensors import OpenShape, is_foreign
from beam_tfrecord.features.type_kinds import is_numpy_tensor, is_tensor
from beam_tfrecord.records.blocks import read_blocks
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


# TensorFlow copies what comes out of Python: in small pieces that stays within a cache.
_BLOCK_BYTES = 2**20


def remote_examples(path: tf.Tensor, compression: str, opened: OpenedManifest) -> tf.data.Dataset:
    """Return the serialized examples of a shard.

    Args:
        path: URL of the shard, a scalar.
        compression: ``""`` or ``GZIP``.
        opened: The manifest that names the shard, which is checked once the shard is open.
    """
    import tensorflow as tf

    def blocks(url: bytes) -> Iterator[Any]:
        parts = read_blocks(url.decode(), compression=compression, block_bytes=_BLOCK_BYTES)
        for number, block in enumerate(parts):
            if not number:
                opened.check()
            yield np.array(list(block.payloads()), dtype=object)

    # A block an element, not an example an element: each costs a call into Python.
    signature = tf.TensorSpec([None], tf.string)
    return tf.data.Dataset.from_generator(
        blocks, args=(path,), output_signature=signature
    ).unbatch()


# The dtypes that `tf.io.decode_raw` gives; two more come by `tf.bitcast`.
_RAW = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
)
_CAST = ("uint32", "uint64")


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How the tensors of one column are made of parsed features.

    Attributes:
        column: Name of the column, and of the feature with the bytes.
        dtype: TensorFlow's name of the type of the values.
        shape: Of one example; None for sizes that differ.
        shape_key: Feature with the shape of each example; None where all have the same.
        unread: Features that need not be parsed.
    """

    column: str
    dtype: str
    shape: OpenShape
    shape_key: str | None
    unread: tuple[str, ...]

    @property
    def is_simple(self) -> bool:
        """Whether `tf.io.decode_raw` and a reshape to ``[-1, *shape]`` are all it takes."""
        return self.shape_key is None and self.dtype in _RAW and 0 not in (self.shape or ())

    def check_batch(self) -> None:
        """Refuse batches of tensors that no ragged tensor holds.

        Raises:
            UsageError: The tensors differ in more than the size of their first axis.
        """
        if self.shape_key and (self.shape is None or None in self.shape[1:]):
            raise UsageError(
                f"tensors of column {self.column!r} have different shapes: leave out batch_size, "
                "and batch them with padded_batch"
            )

    def decode(self, parsed: dict[str, Any], *, is_batch: bool) -> Any:
        """Return the tensor, whose features are taken out of `parsed`.

        Those of a batch form a ragged tensor where their first axes differ.
        """
        import tensorflow as tf

        data = parsed.pop(self.column)
        if self.shape_key is None:
            values = _decoded(data, self.dtype)
            leading = tf.shape(data) if is_batch else tf.constant([], tf.int32)
            tensor = tf.reshape(values, tf.concat([leading, self._sizes()], 0))
            return tf.ensure_shape(tensor, [None, *self._dims()] if is_batch else self._dims())
        sizes = parsed.pop(self.shape_key)
        if not is_batch:
            tensor = tf.reshape(_decoded(data, self.dtype), sizes)
            return tensor if self.shape is None else tf.ensure_shape(tensor, self.shape)
        lengths = sizes[:, 0]
        values = _decoded(tf.strings.reduce_join(data), self.dtype)
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


def _decoded(data: tf.Tensor, dtype: str) -> tf.Tensor:
    """Return the values of bytes: one more axis than `data` has."""
    import tensorflow as tf

    if dtype not in _CAST:
        return tf.io.decode_raw(data, tf.as_dtype(dtype))
    of = tf.as_dtype(dtype)
    raw = tf.io.decode_raw(data, tf.uint8)
    shape = tf.shape(raw)
    parts = tf.concat([shape[:-1], [shape[-1] // of.size, of.size]], 0)
    return tf.bitcast(tf.reshape(raw, parts), of)


IMAGE = "image"
# What `beam_tfrecord.sources.images.source` writes beside the bytes of every picture.
_DESCRIPTION = ("width", "height", "channels", "format")
_CHANNELS = 3


@dataclasses.dataclass(frozen=True)
class Pictures:
    """How pictures become tensors.

    Attributes:
        size: Height and width.
        resize: False where all pictures have that size already.
        are_alone: They are given by themselves, without the other columns.
    """

    size: tuple[int, int]
    resize: bool
    are_alone: bool

    def decoded(self, parsed: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
        """Return the columns of one parsed example with the picture decoded."""
        import tensorflow as tf

        decoded = dict(parsed)
        # The first frame of several: what moves cannot be one row of a batch.
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


def pictures_of(
    dataset: Dataset,
    columns: Sequence[str] | None,
    image_size: tuple[int, int] | None,
    *,
    decode: bool,
) -> Pictures | None:
    """Return how the pictures of a dataset are decoded; None where it has none, or they are not.

    Args:
        dataset: From `load`.
        columns: The columns that are read; None: all.
        image_size: Height and width that are wanted.
        decode: False leaves them as they are.

    Raises:
        UsageError: A size is wanted of what is no picture, or none where they have several.
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
        return Pictures(_checked(image_size), True, are_alone)
    ranges = [described[name].observed for name in ("height", "width")]
    lows = [seen.min if seen else None for seen in ranges]
    highs = [seen.max if seen else None for seen in ranges]
    if lows != highs or None in lows:
        raise UsageError(
            f"pictures are from {lows[0]}x{lows[1]} to {highs[0]}x{highs[1]} (height x width): "
            "pass image_size=(height, width), or decode=False for their bytes"
        )
    return Pictures((int(lows[0] or 0), int(lows[1] or 0)), False, are_alone)


def _checked(image_size: Any) -> tuple[int, int]:
    try:
        height, width = (operator.index(side) for side in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise UsageError(f"image_size {image_size!r} is no size: pass (height, width) in pixels")
    return height, width
