"""A row as an example the way users of Beam write it; importing this imports TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def to_example(row: Mapping[str, Any]) -> bytes:
    """Serialize a row as users of Beam do, a `tf.train.Example` at a time; nulls are left out."""
    feature = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, float):
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
        elif isinstance(value, int):
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            data = tf.train.BytesList(value=[value.encode() if isinstance(value, str) else value])
            feature[name] = tf.train.Feature(bytes_list=data)
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return bytes(example.SerializeToString())


def six_features(row: Mapping[str, Any]) -> tf.train.Example:
    """Build an example of six columns feature by feature, as in the pipeline of the first page."""
    numbers = tf.train.Int64List(value=[row["i0"], row["i0"] % 100])
    count = tf.train.Int64List(value=[row["i1"]])
    height = tf.train.FloatList(value=[row["f0"] * 0.5])
    width = tf.train.FloatList(value=[row["f1"]])
    kind = tf.train.BytesList(value=[row["s0"].encode()])
    user = tf.train.BytesList(value=[row["s1"].encode()])
    feature = {
        "numbers": tf.train.Feature(int64_list=numbers),
        "count": tf.train.Feature(int64_list=count),
        "height": tf.train.Feature(float_list=height),
        "width": tf.train.Feature(float_list=width),
        "kind": tf.train.Feature(bytes_list=kind),
        "user": tf.train.Feature(bytes_list=user),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))
