"""CSV to a shuffled, split, sharded TFRecord dataset, each row by way of a Python function.

    python pipelines/csv_to_tfrecord.py --input "trips-*.csv" --output trips/

Copy this file, and make `Trip` and `to_trip` your own. Options that are not listed by --help go
to Beam, such as --workers=4 or those of another --runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, TypedDict

import apache_beam as beam

import beam_tfrecord as bt


class Trip(TypedDict):
    """The columns of the dataset; as a return hint it spares a pass that infers their types."""

    fare: float
    distance: float
    speed: float | None


def to_trip(row: dict[str, Any]) -> Trip | None:
    """Return the row to write, None to leave it out, or a list of rows.

    A row whose function raises is a reject: --max_rejects says how many there may be.
    """
    if row["fare"] is None or row["distance"] is None:
        return None
    speed = row["distance"] / row["hours"] if row["hours"] else None
    return {"fare": row["fare"], "distance": row["distance"], "speed": speed}


def build(p: beam.Pipeline, arguments: argparse.Namespace) -> beam.PCollection[str]:
    """Add the steps to a pipeline; what comes out are the names of the shards."""
    return (
        p
        | "Read" >> bt.ReadFromCsv(arguments.input)
        | "ToTrip" >> bt.MapRows(to_trip)
        | "Write"
        >> bt.WriteToTFRecord(
            arguments.output,
            splits=arguments.splits,
            compression_type=arguments.compression,
            max_rejects=arguments.max_rejects,
            overwrite=arguments.overwrite,
        )
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, and run the pipeline until it is done."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", nargs="+", required=True, help="files, patterns, directories")
    parser.add_argument("--output", required=True, help="directory of the dataset, ends in /")
    parser.add_argument("--splits", default="train=0.9,test=0.1", help="names and shares")
    parser.add_argument("--compression", choices=("none", "gzip"), default="none")
    parser.add_argument("--max_rejects", default="0", help="a number, a share (1%%) or any")
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset")
    parser.add_argument("--runner", default="direct", help="direct, or any runner of Beam")
    arguments, beam_options = parser.parse_known_args(argv)
    with bt.pipeline(arguments.runner, options=beam_options) as p:
        build(p, arguments)


if __name__ == "__main__":
    main()
