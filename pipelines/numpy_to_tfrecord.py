"""NumPy arrays to a shuffled, split, sharded TFRecord dataset, by way of a Python function.

    python pipelines/numpy_to_tfrecord.py --input train.npz --output digits/

Copy this file, and make `scaled` your own. Options that are not listed by --help go to Beam, such
as --workers=4 or those of another --runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np

import beam_tfrecord as bt


def scaled(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row to write: pictures of bytes as float32 from 0 to 1.

    A row is a dict with an array, or a single value, for each array of the input.
    """
    return {
        name: value.astype(np.float32) / 255 if getattr(value, "dtype", None) == np.uint8 else value
        for name, value in row.items()
    }


def build(p: beam.Pipeline, arguments: argparse.Namespace) -> beam.PCollection[str]:
    """Add the steps to a pipeline; what comes out are the names of the shards."""
    rows = p | "Read" >> bt.ReadFromNumpy(arguments.input, example=arguments.example)
    if arguments.scale:
        rows = rows | "Scale" >> bt.MapRows(scaled)
    return rows | "Write" >> bt.WriteToTFRecord(
        arguments.output, splits=arguments.splits, overwrite=arguments.overwrite
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, and run the pipeline until it is done."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", nargs="+", required=True, help=".npy and .npz files")
    parser.add_argument("--output", required=True, help="directory of the dataset, ends in /")
    parser.add_argument("--example", choices=("row", "array"), help="needed for several files")
    parser.add_argument("--scale", action="store_true", help="make bytes floats from 0 to 1")
    parser.add_argument("--splits", default="train=0.9,test=0.1", help="names and shares")
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset")
    parser.add_argument("--runner", default="direct", help="direct, or any runner of Beam")
    arguments, beam_options = parser.parse_known_args(argv)
    with bt.pipeline(arguments.runner, options=beam_options) as p:
        build(p, arguments)


if __name__ == "__main__":
    main()
