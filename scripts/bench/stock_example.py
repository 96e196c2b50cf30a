"""A row as an example the way users of Beam write it; importing this imports TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def to_example(row: Mapping[str, Any]) -> bytes:
    """Serialize a row as users of Beam do, a `tf.train.Example` at a time."""
    feature = {}
    for name, value in row.items():
        if isinstance(value, float):
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        elif isinstance(value, int):
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            data = tf.train.BytesList(value=[value.encode()])
            feature[name] = tf.train.Feature(bytes_list=data)
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return bytes(example.SerializeToString())
