"""Converts a dataset to a ``tf.data.Dataset``; its functions import TensorFlow when called."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from beam_tfrecord.base.extras import import_tensorflow, require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.frameworks.tf_parts import ColumnPart, arrays_of_parts, parts_of, sparse
from beam_tfrecord.loading.batches import (
    IMAGE,
    MASK,
    MASK_SUFFIX,
    BatchColumns,
    ImageSize,
    check_masks,
    image_decoding,
)
from beam_tfrecord.loading.epochs import Division, Epochs
from beam_tfrecord.loading.rows import Rows

if TYPE_CHECKING:
    import tensorflow as tf

_READS_AT_ONCE = 2
_CHANNELS = 3


class Passes(NamedTuple):
    """Which rows iterations read, in which order and how often: the arguments of `tf_dataset`."""

    shuffle: bool | int
    seed: int | None
    repeat: int | None
    shard: tuple[int, int] | None
    drop_remainder: bool
    start_step: int


def tf_dataset(
    dataset: Rows,
    batch_size: int | None = None,
    *,
    label: str | Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    nulls: float | Literal["mask"] | None = None,
    shuffle: bool | int = False,
    seed: int | None = 0,
    repeat: int | None = 1,
    shard: tuple[int, int] | None = None,
    drop_remainder: bool = False,
    image_size: tuple[int, int] | None = None,
    decode: bool = True,
    start_step: int = 0,
) -> tf.data.Dataset:
    """Return a ``tf.data.Dataset`` of the examples, as the feature spec of the schema parses them.

    Its cardinality is exact. A list is a ragged tensor. A value that may be missing is a sparse
    tensor, unless its column has a default. Booleans and times are int64. A tensor or a float64
    that is stored as bytes is decoded; tensors whose first axes differ make a ragged batch. Keras's
    ``fit`` refuses text among the features: choose `columns` without text, or encode it in the
    model.

    Each iteration reads the next epoch, also one that stops after a batch: begin at any batch with
    `start_step`.

    Images (the column ``image`` of `ReadFromImages`) are decoded to RGB, float32 from 0 to 255,
    shape `[height, width, 3]`. If `columns` is None the result has only the images, and the label
    as int32, like ``keras.utils.image_dataset_from_directory``.

    Args:
        dataset: The rows; in ``load(...).tf(...)`` those that are loaded.
        batch_size: Number of rows per batch; None means single rows.
        label: Column, or columns, to return as the second part of ``(features, label)``.
        columns: Columns to return besides the label; None means all columns of the dataset.
        categories: Categories of text columns, by column; text becomes the position of its
            category, int64, from 0. Other text fails when its batch is read.
        defaults: Replacements of missing values, by column.
        nulls: Replacement of all missing numbers of features without a default; or ``"mask"`` for
            dense tensors with zeros, beside the boolean tensor ``<column>_mask``.
        shuffle: True reads each epoch in another random order: see `Epochs`. A number is the number
            of rows to mix at a time. False keeps the order of the dataset.
        seed: Seed of all orders.
        repeat: Number of epochs; None repeats without end.
        shard: Number of this reader, from 0, and number of readers, of which each reads its part of
            every epoch.
        drop_remainder: Leave out the rows after the last full batch of all readers.
        image_size: Height and width in pixels to resize images to, bilinear; None if all images
            have the same size.
        decode: False returns images as the bytes of their files.
        start_step: Number of batches to leave out before the first, counted over all epochs.

    Raises:
        UsageError: There are several splits, an option names no column, images have several sizes,
            or TensorFlow is not installed.
        DataError: A shard is missing, or the dataset was replaced.
    """
    require_tensorflow(dataset, "load(...).tf()")
    images = image_decoding(dataset, columns, image_size, decode=decode)
    only_images = images is not None and columns is None
    found = BatchColumns(
        dataset, [IMAGE] if only_images else columns, label,
        categories=categories, defaults=defaults, nulls=nulls,
    )  # fmt: skip
    parts = parts_of(found.schema)
    masked = [part.name for part in parts if part.may_miss] if nulls == MASK else []
    check_masks(masked, [part.name for part in parts])

    def finish(values: dict[str, Any]) -> Any:
        import tensorflow as tf

        out = {}
        for part in parts:
            value = values[part.name]
            if part.name in masked:
                out[part.name], out[part.name + MASK_SUFFIX] = value
            elif part.may_miss:
                out[part.name] = sparse(*value)
            else:
                out[part.name] = tf.reshape(*value) if part.has_shapes else value
        if only_images:
            for name in found.labels:
                if out[name].dtype == tf.int64:
                    out[name] = tf.cast(out[name], tf.int32)
        return found.arranged(out, IMAGE if only_images else None)

    passes = Passes(shuffle, seed, repeat, shard, drop_remainder, start_step)
    return examples(found, parts, finish, batch_size, passes, images)


def require_tensorflow(dataset: Rows, what: str) -> None:
    """Raise an error if TensorFlow is not installed, or a dataset cannot be read."""
    require("tensorflow", what)
    import_tensorflow("tensorflow")
    dataset.check_single_split()
    dataset.check_files()


def examples(
    columns: BatchColumns,
    parts: Sequence[ColumnPart],
    finish: Callable[[dict[str, Any]], Any],
    batch_size: int | None,
    passes: Passes,
    images: ImageSize | None,
) -> tf.data.Dataset:
    """Return what `finish` makes of the values of all parts of a batch, or of a single row.

    The first iteration reads the epoch of `start_step` from there on, and each later one the next
    epoch.
    """
    import tensorflow as tf

    start_step, repeat = passes.start_step, passes.repeat
    if start_step < 0:
        raise UsageError(f"start_step is {start_step}: count steps from 0")
    if batch_size is not None:
        for part in parts:
            part.check_batch()
    size = 1 if batch_size is None else batch_size
    division = Division(
        len(columns.rows), size, *(passes.shard or (0, 1)), passes.drop_remainder, pad=False
    )
    epochs = Epochs(columns.rows, division.step_examples, shuffle=passes.shuffle, seed=passes.seed)
    columns.decodes_images = images is not None
    # Images are decoded one by one: they make a batch only after they have the same size.
    is_batched_first = batch_size is not None and images is None
    rows = _rows(columns, parts, epochs, division, start_step, is_batch=is_batched_first)
    if images is not None:
        rows = rows.map(functools.partial(_decoded, images), tf.data.AUTOTUNE)
        if batch_size is not None:
            # Makes ragged tensors of lists and of tensors of several sizes.
            rows = rows.ragged_batch(batch_size, drop_remainder=passes.drop_remainder)
    found = rows.map(finish, tf.data.AUTOTUNE)
    if repeat != 1:
        found = found.repeat(-1 if repeat is None else repeat)
    return found.prefetch(tf.data.AUTOTUNE)


def _rows(
    columns: BatchColumns,
    parts: Sequence[ColumnPart],
    epochs: Epochs,
    division: Division,
    start_step: int,
    *,
    is_batch: bool,
) -> tf.data.Dataset:
    """Return the values of all parts, of batches or of single rows."""
    import tensorflow as tf

    first_epoch, first_step = divmod(start_step, max(1, len(division)))
    numbers = itertools.count(first_epoch)
    # A file that is read from its begin goes on where the last range of its epoch ended.
    reader = functools.lru_cache(2)(epochs.reader)
    # The last step may have no rows of this reader.
    size = division.batch_size
    own_steps = -(-division.examples // size)

    def step_ranges() -> Iterator[tuple[int, int, int]]:
        """Yield an epoch with the first step of those to read together, and the one after them."""
        epoch, step_size = next(numbers), division.step_examples
        first = first_step if epoch == first_epoch else 0
        while first < own_steps:
            end = (first * step_size // epochs.read_rows + 1) * epochs.read_rows
            stop = min(own_steps, -(-end // step_size))
            yield epoch, first, stop
            first = stop

    def read(epoch: Any, first: Any, stop: Any) -> list[Any]:
        ranges = [division.positions(step) for step in range(first, stop)]
        found, bounds = reader(int(epoch))(ranges)
        encoded = columns.encoded(found)
        return [np.array(bounds), *arrays_of_parts(parts, encoded)]

    specs = [tf.TensorSpec([None, 2], tf.int64), *(spec for part in parts for spec in part.specs())]

    def tensors_at(*numbers: tf.Tensor) -> tuple[tf.Tensor, ...]:
        arrays = tf.numpy_function(read, numbers, [spec.dtype for spec in specs])
        return tuple(map(tf.ensure_shape, arrays, (spec.shape for spec in specs)))

    def slices(bounds: tf.Tensor, *tensors: tf.Tensor) -> tf.data.Dataset:
        every = iter(tensors)
        values = {part.name: part.value(every) for part in parts}
        if not is_batch:
            return tf.data.Dataset.from_tensor_slices(values)

        def batch(bound: tf.Tensor) -> Any:
            def cut(one: Any) -> Any:
                found = one[bound[0] : bound[1]]
                is_whole = division.drop_remainder and isinstance(one, tf.Tensor)
                return tf.ensure_shape(found, [size, *one.shape[1:]]) if is_whole else found

            return tf.nest.map_structure(cut, values)

        return tf.data.Dataset.from_tensor_slices(bounds).map(batch)

    # Python yields ranges of steps, and reads a range at a time, since each call costs time.
    numbered = tf.data.Dataset.from_generator(
        step_ranges, output_signature=(tf.TensorSpec([], tf.int64),) * 3
    )
    # A window is a buffer of 64 MB, and a file that is read from its begin has one position.
    is_random = epochs.is_indexed and epochs.order(0).chunk == 1
    found = numbered.map(tensors_at, _READS_AT_ONCE if is_random else 1).flat_map(slices)
    if first_step:
        # The first iteration is shorter than the later ones.
        return found
    count = own_steps if is_batch else division.examples
    return found.apply(tf.data.experimental.assert_cardinality(count))


def _decoded(images: ImageSize, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a row with the pixels of the image in place of its bytes."""
    import tensorflow as tf

    # Only the first frame of an animation fits the shape of a batch.
    image = tf.io.decode_image(values[IMAGE], channels=_CHANNELS, expand_animations=False)
    image.set_shape((None, None, _CHANNELS))
    image = tf.image.resize(image, images.size) if images.resize else tf.cast(image, tf.float32)
    image.set_shape((*images.size, _CHANNELS))
    return {**values, IMAGE: image}
