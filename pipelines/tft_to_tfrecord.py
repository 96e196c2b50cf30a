"""Parquet through tensorflow-transform to split TFRecord files, with the fitted function beside.

    python pipelines/tft_to_tfrecord.py --input "trips/*.parquet" --output trips/

Copy this file, and make `preprocess` your own. Statistics are made of the split "train" alone.
`tf.saved_model.load("trips/transform_fn").transform_fn` is the fitted function, for serving.
Options that are not listed by --help go to Beam, such as --workers=4 or those of another
--runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf
import tensorflow_transform as tft

import beam_tfrecord as bt


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return what the model is given, from tensors of raw columns to tensors by name."""
    outputs = dict(inputs)  # what is not changed below is written as it came
    hours = filled(inputs["hours"])
    outputs["hours_bucket"] = tft.bucketize(hours, num_buckets=4)
    outputs["distance"] = tft.scale_to_z_score(filled(inputs["distance"]))
    outputs["city"] = tft.compute_and_apply_vocabulary(
        inputs["city"], top_k=1000, num_oov_buckets=1, vocab_filename="city"
    )
    return outputs


def filled(column: Any) -> Any:
    """Return a column of numbers, missing ones as their mean, shape `[rows]`, float64."""
    if isinstance(column, tf.Tensor):  # no value is ever missing
        return tf.cast(column, tf.float64)
    numbers = tf.cast(column, tf.float64)
    rows = tf.SparseTensor(numbers.indices, numbers.values, [column.dense_shape[0], 1])
    return tf.squeeze(tf.sparse.to_dense(rows, tft.mean(numbers)), 1)


def build(p: beam.Pipeline, arguments: argparse.Namespace) -> beam.PCollection[str]:
    """Add the steps to a pipeline; what comes out are the names of the shards."""
    return (
        p
        | "Read" >> bt.ReadFromParquet(arguments.input)
        | "Split" >> bt.AssignSplits(arguments.splits)
        | "Preprocess" >> bt.Preprocess(preprocess)
        | "Write" >> bt.WriteToTFRecord(arguments.output)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, and run the pipeline until it is done."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", nargs="+", required=True, help="files, patterns, directories")
    parser.add_argument("--output", required=True, help="directory of the dataset, ends in /")
    parser.add_argument("--splits", default="train=0.9,test=0.1", help="names and shares")
    parser.add_argument("--runner", default="direct", help="direct, or any runner of Beam")
    arguments, beam_options = parser.parse_known_args(argv)
    with bt.pipeline(arguments.runner, options=beam_options) as p:
        build(p, arguments)


if __name__ == "__main__":
    main()
