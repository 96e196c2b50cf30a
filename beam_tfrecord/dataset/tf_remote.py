"""Shards on remote filesystems as ``tf.data``: read by this package, parsed by TensorFlow.

TensorFlow's own readers know no ``s3://``, and look for credentials and endpoints of ``gs://``
elsewhere than the rest of the package does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_tfrecord.dataset.opened import OpenedManifest
from beam_tfrecord.records.tfrecord import read_blocks

if TYPE_CHECKING:
    import tensorflow as tf

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
