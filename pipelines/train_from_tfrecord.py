"""A Keras model trained on a written dataset with TensorFlow alone, as it is done anywhere.

    python pipelines/train_from_tfrecord.py --input trips/

Copy this file, and make `SPEC` your own: `beam-tfrecord show --code tf trips/` prints it for any
dataset. Reads the splits "train" and "test", gzip or not; this package is not needed for it.
"""

from __future__ import annotations

import argparse
import functools
import glob
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

BATCH_ROWS = 64
LABEL = "fare"
SPEC = {
    LABEL: tf.io.FixedLenFeature([], tf.float32),  # never missing
    "distance": tf.io.FixedLenFeature([], tf.float32, default_value=0.0),  # missing here and there
    "hours": tf.io.FixedLenFeature([], tf.int64, default_value=0),
    "stops": tf.io.VarLenFeature(tf.int64),  # a list
}


def batches(directory: str, split: str) -> tf.data.Dataset:
    """Return one epoch of ``(features, label)``, features as numbers of shape `[rows]`."""
    files = sorted(glob.glob(f"{directory}/{split}-*.tfrecord*"))
    compression = "GZIP" if files[0].endswith(".gz") else ""
    dataset = tf.data.experimental.make_batched_features_dataset(
        files,
        BATCH_ROWS,
        SPEC,
        reader=functools.partial(tf.data.TFRecordDataset, compression_type=compression),
        label_key=LABEL,
        num_epochs=1,  # it repeats for ever otherwise
    )
    return dataset.map(with_numbers)


def with_numbers(features: dict[str, Any], label: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
    """Replace the list by its length: Keras takes no sparse tensor of varying width."""
    ones = tf.sparse.map_values(tf.ones_like, features["stops"])
    lengths = tf.ensure_shape(tf.sparse.reduce_sum(ones, axis=1), [None])
    return {**features, "stops": lengths}, label


def linear_model() -> keras.Model:
    """Return a linear model of numbers at unit scale."""
    inputs = {name: keras.Input((1,), name=name) for name in SPEC if name != LABEL}
    numbers = keras.layers.BatchNormalization()(keras.layers.Concatenate()([*inputs.values()]))
    model = keras.Model(inputs, keras.layers.Dense(1)(numbers))
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
    return model


def main(argv: Sequence[str] | None = None) -> float:
    """Read the command line, train, and return the loss on the split "test"."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", required=True, help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args(argv)
    model = linear_model()
    model.fit(batches(arguments.input, "train"), epochs=arguments.epochs, verbose=0)
    return float(model.evaluate(batches(arguments.input, "test"), verbose=0))


if __name__ == "__main__":
    print(f"loss on test: {main():.4g}")
