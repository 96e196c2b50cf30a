"""A table or a query of any database to a shuffled, split, sharded TFRecord dataset.

    export DB_PASSWORD=…
    python pipelines/jdbc_to_tfrecord.py --url postgresql://me@db.example/shop --table trips \
        --password_env DB_PASSWORD --output trips/
    python pipelines/jdbc_to_tfrecord.py --url sqlite:///shop.db --output trips/ \
        --query "SELECT id, fare, zone FROM trips WHERE fare > 0" --partition_column id

sqlite:///file.db needs nothing, postgresql:// the extra [postgres], duckdb:/// the extra [duckdb],
and jdbc: URLs of any driver the extra [jdbc] and a Java runtime. The password is read where the
database is read: on the workers.

Copy this file, and make `to_row` your own. Options that are not listed by --help go to Beam, such
as --workers=4 or those of another --runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import apache_beam as beam
import pyarrow as pa

import beam_tfrecord as bt

# Arguments of `bt.ReadFromSql`; it has more.
READ = {
    "table": "table or view to read",
    "query": "SELECT to read instead",
    "where": "condition on the rows",
    "partition_column": "column to cut the rows by; default: the key",
    "password_env": "variable of the workers that holds the password",
    "driver": "class of a JDBC driver",
}


def to_row(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return what to write of a batch of rows; a column more, a column less, or as it is."""
    return batch


def build(p: beam.Pipeline, arguments: argparse.Namespace) -> beam.PCollection[str]:
    """Add the steps to a pipeline; what comes out are the names of the shards."""
    options = {name: getattr(arguments, name) for name in (*READ, "partitions", "jars")}
    write = {name: getattr(arguments, name) for name in ("splits", "max_rejects", "overwrite")}
    return (
        p
        | "Read" >> bt.ReadFromSql(arguments.url, **options)
        | "ToRow" >> bt.MapBatches(to_row)
        | "Write" >> bt.WriteToTFRecord(arguments.output, **write)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Read the command line, and run the pipeline until it is done."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--url", required=True, help="the database, without the password")
    for name, told in READ.items():
        parser.add_argument(f"--{name}", help=told)
    parser.add_argument("--partitions", type=int, help="parts to read side by side")
    parser.add_argument("--jars", nargs="*", default=(), help="jars of a JDBC driver")
    parser.add_argument("--output", required=True, help="directory of the dataset, ends in /")
    parser.add_argument("--splits", default="train=0.9,test=0.1", help="names and shares")
    parser.add_argument("--max_rejects", default="0", help="a number, a share (1%%) or any")
    parser.add_argument("--overwrite", action="store_true", help="replace another dataset")
    parser.add_argument("--runner", default="direct", help="direct, or any runner of Beam")
    arguments, beam_options = parser.parse_known_args(argv)
    with bt.pipeline(arguments.runner, options=beam_options) as p:
        build(p, arguments)


if __name__ == "__main__":
    main()
