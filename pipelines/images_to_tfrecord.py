"""A directory of pictures, one folder a class, to a shuffled, split, sharded TFRecord dataset.

    python pipelines/images_to_tfrecord.py --input photos/ --output dataset/

Pictures are stored as they are, described by their headers; `--resize` makes them smaller. Options
that are not listed by --help go to Beam, such as --workers=4 or those of a --runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import apache_beam as beam

import beam_tfrecord as bt

MIN_SIDE = 8


def keep(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the row to write, None to leave it out: pictures too small to learn from.

    What is added here becomes a feature; untouched columns keep their types.
    """
    return row if min(row["width"], row["height"]) >= MIN_SIDE else None


def build(p: beam.Pipeline, arguments: argparse.Namespace) -> beam.PCollection[str]:
    """Add the steps to a pipeline; what comes out are the names of the shards."""
    return (
        p
        | "Read"
        >> bt.ReadFromImages(
            arguments.input, labels=arguments.labels, check=arguments.check, resize=arguments.resize
        )
        | "Keep" >> bt.MapRows(keep)
        | "Write"
        >> bt.WriteToTFRecord(
            arguments.output,
            splits=arguments.splits,
            group=["sha256"],  # copies of a picture must not be in two splits
            max_rejects=arguments.max_rejects,
            overwrite=arguments.overwrite,
        )
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, and run the pipeline until it is done."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", nargs="+", required=True, help="directories, patterns, files")
    parser.add_argument("--output", required=True, help="directory of the dataset, ends in /")
    parser.add_argument("--labels", help="file with the classes in order, one a line")
    parser.add_argument("--check", choices=("header", "decode", "none"), default="header")
    parser.add_argument("--resize", help="new length of the shorter side, or HEIGHTxWIDTH")
    parser.add_argument("--splits", default="train=0.9,test=0.1", help="names and shares")
    parser.add_argument("--max_rejects", default="0", help="a number, a share (1%%) or any")
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset")
    parser.add_argument("--runner", default="direct", help="direct, or any runner of Beam")
    arguments, beam_options = parser.parse_known_args(argv)
    with bt.pipeline(arguments.runner, options=beam_options) as p:
        build(p, arguments)


if __name__ == "__main__":
    main()
