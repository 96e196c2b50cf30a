"""Extraction of databases, beside the bare drivers and a Parquet writer on the same table.

    python scripts/bench/extract.py            # 1 M rows of 12 columns, five rounds
    python scripts/bench/extract.py --quick    # 20,000 rows, one round: does everything run?

Every case runs in a process of its own, in interleaved rounds; told are medians, and ratios of
medians beside the bar they are held to. The other side of each ratio is what one writes by hand:
the driver's rows, or Arrow batches where it gives them, handed to a ParquetWriter with zstd.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sql

BATCH_ROWS = 65_536
ROW_GROUP_ROWS = 2**19
BAR = 0.8


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

    url = f"{place}?password={os.environ[sql.PASSWORD_VARIABLE]}"
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

    given = {"password_env": sql.PASSWORD_VARIABLE} if "://" in place else {}
    manifest = bt.extract(place, work / "stage", source_options={"table": "trips", **given})
    return manifest.rows


_OURS = ("beam_tfrecord.staging.composing", "beam_tfrecord.staging.job")

CASES: sql.Cases = {
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


def report(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of medians, and the ratios beside their bars."""
    medians = {
        name: {key: statistics.median(run[key] for run in of) for key in ("seconds", "peak_mb")}
        for name, of in runs.items()
        if of and not any("error" in run for run in of)
    }
    lines = ["| case | krows/s | peak MB |", "|---|---|---|"]
    for name, median in medians.items():
        speed = runs[name][0]["rows"] / median["seconds"] / 1000
        lines.append(f"| {name} | {speed:,.0f} | {median['peak_mb']:,.0f} |")
    lines += ["", "| what | measured | bar |", "|---|---|---|"]
    for engine in ("sqlite", "postgres"):
        ours, hand = medians.get(f"{engine}_extract"), medians.get(f"{engine}_by_hand")
        if ours and hand:
            ratio = hand["seconds"] / ours["seconds"]
            lines.append(f"| extract {engine}, of driver and writer | {ratio:.2f}x | >= {BAR}x |")
    large, small = medians.get("sqlite_extract_large"), medians.get("sqlite_extract")
    if large and small:
        growth = large["peak_mb"] / small["peak_mb"]
        lines.append(f"| peak memory, {sql.MEMORY_GROWTH} times the rows | {growth:.2f}x | |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tiny table, one round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES), help="names with commas between")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(sql.run_case(arguments.case, arguments.place, CASES)))
        return
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    names = arguments.cases.split(",")
    print(report(sql.measure(rows, rounds, names, CASES, script=__file__)))


if __name__ == "__main__":
    main()
