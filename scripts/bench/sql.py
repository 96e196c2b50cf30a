"""Measures `write` of databases beside their drivers alone and a pipeline by hand.

    python scripts/bench/sql.py            # 1 M rows of 12 columns, five rounds: some minutes
    python scripts/bench/sql.py --quick    # 20,000 rows, one round: does everything run?

Every case runs in a process of its own; rounds are interleaved, so that a busy moment of the
machine meets all cases alike; told are medians, and ratios of medians beside the bar they are held
to. PostgreSQL is started here, on loopback, and stopped at the end.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from databases import MEMORY_GROWTH, PASSWORD_VARIABLE, Bars, Cases, main

FETCH_ROWS = 2048


# --- cases: each drains or writes the whole table, and gives the rows


def sqlite_fetchmany(place: str, work: Path) -> int:
    """Fetch all rows by the standard library alone."""
    rows = 0
    with contextlib.closing(sqlite3.connect(place)) as connection:
        cursor = connection.execute("SELECT * FROM trips")
        while found := cursor.fetchmany(FETCH_ROWS):
            rows += len(found)
    return rows


def adbc_drain(place: str, work: Path) -> int:
    """Read all rows into Arrow by ADBC alone."""
    import adbc_driver_postgresql.dbapi as driver

    rows = 0
    with driver.connect(_with_password(place)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM trips")
        for batch in cursor.fetch_record_batch():
            rows += batch.num_rows
    return rows


def write(place: str, work: Path, **options: Any) -> int:
    """Write the table as a dataset."""
    import beam_tfrecord as bt

    is_server = "://" in place
    given = {"password_env": PASSWORD_VARIABLE} if is_server else {}
    manifest = bt.write(place, work / "out", source_options={"table": "trips", **given, **options})
    return manifest.examples


def write_one(place: str, work: Path) -> int:
    """Write the table over one connection."""
    return write(place, work, partitions=1)


def write_two(place: str, work: Path) -> int:
    """Write the table over two."""
    return write(place, work, partitions=2)


def by_hand(place: str, work: Path) -> int:
    """Write the table as people do: a server cursor in a DoFn, an Example a row, Beam's sink."""
    import apache_beam as beam

    with beam.Pipeline(runner="FnApiRunner") as p:
        (
            p
            | beam.Create([_with_password(place)])
            | beam.FlatMap(_examples)
            | beam.io.WriteToTFRecord(str(work / "hand"), num_shards=1)
        )
    psycopg = importlib.import_module("psycopg")
    with psycopg.connect(_with_password(place)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM trips").fetchone()[0])


def _examples(url: str) -> Iterator[bytes]:
    import tensorflow as tf

    psycopg = importlib.import_module("psycopg")

    train = tf.train
    with psycopg.connect(url) as connection, connection.cursor("trips") as cursor:
        cursor.execute("SELECT * FROM trips")
        names = [column.name for column in cursor.description or ()]
        for row in cursor:
            features = {}
            for name, value in zip(names, row, strict=True):
                if isinstance(value, int):
                    feature = train.Feature(int64_list=train.Int64List(value=[value]))
                elif isinstance(value, float):
                    feature = train.Feature(float_list=train.FloatList(value=[value]))
                elif value is not None:
                    feature = train.Feature(bytes_list=train.BytesList(value=[str(value).encode()]))
                else:
                    continue
                features[name] = feature
            example = train.Example(features=train.Features(feature=features))
            yield example.SerializeToString()


def _with_password(url: str) -> str:
    return f"{url}?password={os.environ[PASSWORD_VARIABLE]}"


# Imported before the clock starts.
_OURS = ("beam_tfrecord.jobs.compose", "beam_tfrecord.transforms.write")
_ADBC = ("pyarrow", "adbc_driver_postgresql.dbapi")
_HAND = ("apache_beam", "tensorflow", "psycopg")

CASES: Cases = {
    "sqlite_fetchmany": ("sqlite", sqlite_fetchmany, ()),
    "sqlite_write": ("sqlite", write, _OURS),
    "adbc_drain": ("postgres", adbc_drain, _ADBC),
    "postgres_write": ("postgres", write, (*_OURS, *_ADBC)),
    "postgres_write_1": ("postgres", write_one, (*_OURS, *_ADBC)),
    "postgres_write_2": ("postgres", write_two, (*_OURS, *_ADBC)),
    "by_hand": ("postgres", by_hand, _HAND),
    "sqlite_write_large": ("sqlite_large", write, _OURS),
    "postgres_write_large": ("postgres_large", write, (*_OURS, *_ADBC)),
}

BARS: Bars = (
    (
        "SQLite end to end, of fetchmany alone",
        *("sqlite_fetchmany", "sqlite_write", "seconds", ">= 0.3x"),
    ),
    ("ADBC end to end, of ADBC alone", "adbc_drain", "postgres_write", "seconds", ">= 0.6x"),
    ("2 partitions, of 1", "postgres_write_1", "postgres_write_2", "seconds", ">= 1.5x"),
    (
        "ADBC end to end, of what is written by hand",
        *("by_hand", "postgres_write", "seconds", ">= 10.0x"),
    ),
    *(
        (
            f"peak memory, {MEMORY_GROWTH} times the rows",
            *(f"{name}_large", name, "peak_mb", "<= 1.2x"),
        )
        for name in ("sqlite_write", "postgres_write")
    ),
)


if __name__ == "__main__":
    main(__doc__, CASES, BARS, __file__)
