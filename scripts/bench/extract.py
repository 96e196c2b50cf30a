"""Measures `extract` of databases beside their drivers with a Parquet writer, on the same table.

    python scripts/bench/extract.py            # 1 M rows of 12 columns, five rounds
    python scripts/bench/extract.py --quick    # 20,000 rows, one round: does everything run?

Every case runs in a process of its own, in interleaved rounds; told are medians, and ratios of
medians beside the bar they are held to. The other side of each ratio is what one writes by hand:
the driver's rows, or Arrow batches where it gives them, handed to a ParquetWriter with zstd.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from databases import MEMORY_GROWTH, PASSWORD_VARIABLE, Bars, Cases, main

BATCH_ROWS = 65_536
ROW_GROUP_ROWS = 2**19


def sqlite_by_hand(place: str, work: Path) -> int:
    """Read by the standard library, and write by pyarrow."""
    import pyarrow as pa

    with contextlib.closing(sqlite3.connect(place)) as connection:
        cursor = connection.execute("SELECT * FROM trips")
        names = [column[0] for column in cursor.description]

        def batches() -> Iterator[Any]:
            while rows := cursor.fetchmany(BATCH_ROWS):
                columns = [pa.array(values) for values in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names)

        return _write_parquet(batches(), work)


def postgres_by_hand(place: str, work: Path) -> int:
    """Read by ADBC, and write by pyarrow."""
    import adbc_driver_postgresql.dbapi as driver

    url = f"{place}?password={os.environ[PASSWORD_VARIABLE]}"
    with driver.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM trips")
        return _write_parquet(iter(cursor.fetch_record_batch()), work)


def _write_parquet(batches: Iterator[Any], work: Path) -> int:
    """Write batches in row groups of half a million rows, and wait for the disk; count the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, pending, waiting = 0, [], 0
    path = work / "all.parquet"
    writer = None
    for batch in batches:
        writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
        pending.append(batch)
        rows, waiting = rows + batch.num_rows, waiting + batch.num_rows
        if waiting >= ROW_GROUP_ROWS:
            writer.write_table(pa.Table.from_batches(pending))
            pending, waiting = [], 0
    if writer is not None:
        if pending:
            writer.write_table(pa.Table.from_batches(pending))
        writer.close()
        # An extraction is on the disk when it ends; so is this.
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return rows


def extract(place: str, work: Path) -> int:
    """Extract the table."""
    import beam_tfrecord as bt

    given = {"password_env": PASSWORD_VARIABLE} if "://" in place else {}
    manifest = bt.extract(place, work / "stage", source_options={"table": "trips", **given})
    return manifest.rows


_OURS = ("beam_tfrecord.jobs.compose", "beam_tfrecord.jobs.api")

CASES: Cases = {
    "sqlite_by_hand": ("sqlite", sqlite_by_hand, ("pyarrow.parquet",)),
    "sqlite_extract": ("sqlite", extract, _OURS),
    "postgres_by_hand": (
        "postgres",
        postgres_by_hand,
        ("pyarrow.parquet", "adbc_driver_postgresql.dbapi"),
    ),
    "postgres_extract": ("postgres", extract, (*_OURS, "adbc_driver_postgresql.dbapi")),
    "sqlite_extract_large": ("sqlite_large", extract, _OURS),
}


BARS: Bars = (
    *(
        (
            f"extract {engine}, of driver and writer",
            *(f"{engine}_by_hand", f"{engine}_extract", "seconds", bar),
        )
        for engine, bar in (("sqlite", ">= 0.5x"), ("postgres", ">= 0.8x"))
    ),
    (
        f"peak memory, {MEMORY_GROWTH} times the rows",
        *("sqlite_extract_large", "sqlite_extract", "peak_mb", ""),
    ),
)


if __name__ == "__main__":
    main(__doc__, CASES, BARS, __file__)
