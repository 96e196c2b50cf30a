"""SQLite files for the tests, and what the tests ask of sources and datasets."""

import sqlite3

import beam_tfrecord as bt


def make_database(path, *statements, rows=()):
    """Make a SQLite file; `rows` go into the table ``t``."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    if rows:
        marks = ",".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    connection.commit()
    connection.close()
    return path


def conditions(source):
    """Return condition and rows of every partition."""
    (scan,) = source.all_scans()
    source.release()
    return [(partition.condition, partition.rows) for partition in scan.detail.partitions]


def shards_of(directory):
    """Return the hash of every shard of a dataset."""
    return {shard.path: shard.xxh64 for shard in bt.Manifest.load(directory).shards}
