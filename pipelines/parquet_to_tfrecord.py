"""Parquet to sharded TFRecord files, each example built by a DoFn of your own.

    python pipelines/parquet_to_tfrecord.py --input "trips/*.parquet" --output out/part

Copy this file, and make `RowToExample` your own. Where a function from row to row is enough,
csv_to_tfrecord.py shows what is shorter, and faster by far. Options that are not listed by --help
go to Beam, such as --workers=4 or those of another --runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import tensorflow as tf

import beam_tfrecord as bt


class RowToExample(beam.DoFn):
    """Builds the `tf.train.Example` of a row; a missing value is a missing feature."""

    def process(self, row: dict[str, Any]) -> Iterator[tf.train.Example]:
        """Yield one example, several or none."""
        features = {"fare": floats(row["fare"])}
        if row["distance"] is not None:
            features["distance"] = floats(row["distance"])
        if row["note"] is not None:
            features["note"] = text(row["note"])
        yield tf.train.Example(features=tf.train.Features(feature=features))


def floats(*values: float) -> tf.train.Feature:
    """Return a feature of numbers, kept as float32."""
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def text(value: str) -> tf.train.Feature:
    """Return a feature of text, kept as UTF-8."""
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))


def build(p: beam.Pipeline, arguments: argparse.Namespace) -> beam.PCollection[str]:
    """Add the steps to a pipeline; what comes out are the names of the shards."""
    return (
        p
        | "Read" >> bt.ReadFromParquet(arguments.input)
        | "ToRows" >> bt.ToRows()
        | "ToExample" >> beam.ParDo(RowToExample())
        | "Write" >> bt.WriteToTFRecord(arguments.output, num_shards=arguments.num_shards)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, and run the pipeline until it is done."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", nargs="+", required=True, help="files, patterns, directories")
    parser.add_argument("--output", required=True, help="prefix of the files, or a directory/")
    parser.add_argument("--num_shards", type=int, default=0, help="0: as many as the size asks for")
    parser.add_argument("--runner", default="direct", help="direct, or any runner of Beam")
    arguments, beam_options = parser.parse_known_args(argv)
    with bt.pipeline(arguments.runner, options=beam_options) as p:
        build(p, arguments)


if __name__ == "__main__":
    main()
