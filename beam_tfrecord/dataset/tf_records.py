"""Reads the serialized examples of a dataset with ``tf.data``, in the order of its options.

Its functions import TensorFlow when called.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_tfrecord.dataset.epochs import Division, Epochs
from beam_tfrecord.dataset.record_files import RecordFiles
from beam_tfrecord.dataset.rows import Rows, mixed_rows
from beam_tfrecord.errors import UsageError
from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    import tensorflow as tf

_MIX_SHARDS = 16
_READ_BYTES = 2**20
# TensorFlow copies the records that Python yields: small blocks stay within a processor's cache.
_BLOCK_BYTES = 2**20
_READS_AT_ONCE = 2


@dataclasses.dataclass(frozen=True)
class Reading:
    """Options that decide which examples are read, and in which order.

    See `beam_tfrecord.dataset.tf.tf_dataset`.
    """

    shuffle: bool | int
    seed: int
    cache: bool | str
    deterministic: bool
    interleave: int | None
    shard: tuple[int, int] | None
    drop_remainder: bool
    start_step: int

    def __post_init__(self) -> None:
        if self.interleave is not None and self.interleave < 1:
            raise UsageError(f"interleave is {self.interleave}: read at least 1 shard at a time")
        index, count = self.part
        if not 0 <= index < count:
            raise UsageError(f"shard {index} of {count} does not exist: count from 0")
        if self.start_step < 0:
            raise UsageError(f"start_step is {self.start_step}: count steps from 0")

    @property
    def part(self) -> tuple[int, int]:
        """Number of this reader, from 0, and number of readers."""
        return self.shard or (0, 1)


def serialized_examples(
    dataset: Rows, reading: Reading, batch_size: int | None, *, is_batched: bool
) -> tf.data.Dataset:
    """Return the serialized examples of one reader; each iteration over them is an epoch."""
    import tensorflow as tf

    dataset.check_files()
    if reading.shuffle or reading.shard or reading.start_step:
        epochs = Epochs(dataset, shuffle=reading.shuffle, seed=reading.seed)
        if epochs.is_indexed and not reading.cache and reading.interleave is None:
            division = Division(
                len(dataset), batch_size or 1, *reading.part, reading.drop_remainder, pad=False
            )
            return _read_by_index(epochs, division, reading.start_step, is_batched)
    if reading.start_step:
        raise UsageError(
            "start_step needs shards that have an index, and no cache or interleave: write without "
            "compression, make indexes with beam-tfrecord index, or use the method skip"
        )
    records = _read_by_shard(dataset, reading)
    index, count = reading.part
    own = len(range(index, len(dataset), count))
    records = records.apply(tf.data.experimental.assert_cardinality(own))
    if reading.cache:
        records = records.cache(_cache_file(dataset, reading))
    if reading.shuffle:
        records = records.shuffle(mixed_rows(dataset, reading.shuffle), seed=reading.seed % 2**63)
    return records.batch(batch_size, reading.drop_remainder) if is_batched else records


def _read_by_index(
    epochs: Epochs, division: Division, start_step: int, is_batched: bool
) -> tf.data.Dataset:
    """Return the serialized examples of a reader, in the order of `epochs`.

    The first iteration reads the epoch of `start_step` from there on, and each later one the next
    epoch.
    """
    import tensorflow as tf

    first_epoch, first_step = divmod(start_step, max(1, len(division)))
    numbers = itertools.count(first_epoch)

    def groups() -> Iterator[tuple[int, int, int]]:
        """Yield an epoch with the first step of those to read together, and the one after them."""
        epoch, size = next(numbers), division.step_examples
        first = first_step if epoch == first_epoch else 0
        while first < len(division):
            end = (first * size // epochs.read_rows + 1) * epochs.read_rows
            stop = min(len(division), -(-end // size))
            yield epoch, first, stop
            first = stop

    def read(epoch: Any, first: Any, stop: Any) -> Any:
        ranges = [division.positions(step) for step in range(first, stop)]
        return _payload_array(
            *epochs.records(int(epoch), [own for own in ranges if own[0] < own[1]])
        )

    def array(*group: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(read, group, tf.string), [None])

    # Python yields numbers of groups, and reads a group at a time, since each call costs time.
    numbered = tf.data.Dataset.from_generator(
        groups, output_signature=(tf.TensorSpec([], tf.int64),) * 3
    )
    # A window is a buffer of 64 MB: one is read while another one is used.
    at_once = 1 if epochs.order(0).chunk > 1 else _READS_AT_ONCE
    arrays = numbered.map(array, at_once)
    count = division.examples
    if is_batched:
        # Much faster than to unbatch and batch.
        records = arrays.rebatch(division.batch_size, drop_remainder=division.drop_remainder)
        count = -(-count // division.batch_size)
    else:
        records = arrays.unbatch()
    if first_step:
        # The first iteration is shorter than the later ones.
        return records
    return records.apply(tf.data.experimental.assert_cardinality(count))


def _read_by_shard(dataset: Rows, reading: Reading) -> tf.data.Dataset:
    """Return the serialized examples of a reader, in the order of the dataset or of shards in turn.

    Of all readers, number `i` of `n` has every n-th example of the dataset from example `i` on.
    """
    import tensorflow as tf

    are_records = isinstance(dataset.files, RecordFiles)
    if are_records and not is_remote(dataset.directory):
        shards = tf.constant([dataset.path(shard) for shard in dataset.shards], tf.string)
        examples = functools.partial(_read_by_tensorflow, dataset)
    else:
        shards = tf.range(len(dataset.shards), dtype=tf.int64)
        examples = functools.partial(_read_by_python, dataset)
    index, count = reading.part

    def part(shards: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        records = examples(shards)
        return records if count == 1 else records.shard(count, first)

    if reading.deterministic and not reading.shuffle and reading.interleave is None:
        return part(shards, index)
    # The first example of this reader in each shard.
    ends = np.cumsum([0, *(shard.examples for shard in dataset.shards)])
    turns = tf.data.Dataset.from_tensor_slices((shards[:, None], (index - ends[:-1]) % count))
    if reading.shuffle:
        turns = turns.shuffle(max(1, len(dataset.shards)), seed=reading.seed % 2**63)
    return turns.interleave(
        part,
        # Row groups one at a time: each is much larger in memory than the buffer of a record file.
        cycle_length=reading.interleave or (_MIX_SHARDS if are_records else 1),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=reading.deterministic,
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
            yield _payload_array(block)

    # The generator yields arrays, not examples, because each element costs a call into Python.
    signature = tf.TensorSpec([None], tf.string)
    arrays = tf.data.Dataset.from_generator(blocks, args=(indices,), output_signature=signature)
    return arrays.prefetch(1).unbatch()


def _payload_array(*blocks: RecordBlock) -> Any:
    return np.array([payload for block in blocks for payload in block.payloads()], dtype=object)


def _cache_file(dataset: Rows, reading: Reading) -> str:
    """Return the name of the file that caches the examples; empty if memory caches them.

    TensorFlow does not check the content of an existing cache file. Therefore the name has a hash
    of the examples and their order.
    """
    if not isinstance(reading.cache, str):
        return ""
    order = (bool(reading.shuffle), reading.deterministic, reading.interleave)
    identity = repr((dataset.content, order, *(reading.shard or ())))
    return f"{reading.cache}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _checked_names(paths: tf.Tensor, files: Any) -> tf.data.Dataset:
    """Return the paths of shards one by one, and check each file before and after it is read.

    TensorFlow opens and reads a file between the two checks. So the file belongs to the dataset
    that was opened, and was not changed meanwhile.
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
