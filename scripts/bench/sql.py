"""Databases: reading and writing whole datasets, beside the bare drivers on the same table.

    python scripts/bench/sql.py            # 1 M rows of 12 columns, five rounds: some minutes
    python scripts/bench/sql.py --quick    # 20,000 rows, one round: does everything run?

Every case runs in a process of its own; rounds are interleaved, so that a busy moment of the
machine meets all cases alike; told are medians, and ratios of medians beside the bar they are held
to. PostgreSQL is started here, on loopback, and stopped at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

FETCH_ROWS = 2048
PASSWORD_VARIABLE = "BENCH_PASSWORD"
MEMORY_GROWTH = 20

COLUMNS = (
    "id BIGINT PRIMARY KEY, vendor INTEGER NOT NULL, passengers INTEGER, distance {real}, "
    "fare {real}, tip {real}, zone TEXT, note TEXT, pickup {moment}, code BIGINT, ok {boolean}, "
    "amount {decimal}"
)
SQLITE_TABLE = (
    "CREATE TABLE trips ("
    + COLUMNS.replace("id BIGINT", "id INTEGER").format(
        real="REAL", moment="TEXT", boolean="INTEGER", decimal="REAL"
    )
    + ")"
)
POSTGRES_TABLE = (
    "CREATE TABLE trips ("
    + COLUMNS.format(
        real="double precision", moment="timestamp", boolean="boolean", decimal="numeric(12,2)"
    )
    + ")"
)
SQLITE_ROWS = """
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO trips SELECT i, i % 3, CASE WHEN i % 17 > 0 THEN i % 7 END, i * 7919 % 10007 / 37.0,
  i * 31 % 9973 / 41.0, i % 1009 / 13.0, 'zone ' || i % 200, 'note number ' || i,
  strftime('%Y-%m-%d %H:%M:%S', 1700000000 + i, 'unixepoch'), i * 104729 % 1000003, i % 2, i / 100.0
FROM n
"""
POSTGRES_ROWS = """
INSERT INTO trips SELECT i, i % 3, CASE WHEN i % 17 > 0 THEN i % 7 END, i * 7919 % 10007 / 37.0,
  i * 31 % 9973 / 41.0, i % 1009 / 13.0, 'zone ' || i % 200, 'note number ' || i,
  timestamp '2023-11-14' + i * interval '1 second', i * 104729 % 1000003, i % 2 = 1, i / 100.0
FROM generate_series(1, {rows}::bigint) AS i
"""


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
_OURS = ("beam_tfrecord.composing", "beam_tfrecord.writing")
_ADBC = ("pyarrow", "adbc_driver_postgresql.dbapi")
_HAND = ("apache_beam", "tensorflow", "psycopg")

# By name: what is read, how, and the modules it uses.
Cases = dict[str, tuple[str, Callable[[str, Path], int], tuple[str, ...]]]
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

# What, of which two cases, and the bar: the first case's time is at most 1/bar of the second's.
BARS: tuple[tuple[str, str, str, float], ...] = (
    ("SQLite end to end, of fetchmany alone", "sqlite_write", "sqlite_fetchmany", 0.7),
    ("ADBC end to end, of ADBC alone", "postgres_write", "adbc_drain", 0.6),
    ("2 partitions, of 1", "postgres_write_2", "postgres_write_1", 1.5),
    ("ADBC end to end, of what is written by hand", "postgres_write", "by_hand", 10.0),
)
MEMORY_BARS: tuple[tuple[str, str, str, float], ...] = (
    (f"peak memory, {MEMORY_GROWTH} times the rows", "sqlite_write_large", "sqlite_write", 1.2),
    (f"peak memory, {MEMORY_GROWTH} times the rows", "postgres_write_large", "postgres_write", 1.2),
)


def run_case(name: str, place: str, cases: Cases = CASES) -> dict[str, Any]:
    """Run a case in this process."""
    work = Path(tempfile.mkdtemp(prefix="bench-sql-"))
    for module in cases[name][2]:
        importlib.import_module(module)
    try:
        started = time.perf_counter()
        rows = cases[name][1](place, work)
        seconds = time.perf_counter() - started
    finally:
        shutil.rmtree(work)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rows": rows, "seconds": round(seconds, 4), "peak_mb": round(peak_kb / 1024, 1)}


def run_apart(name: str, place: str, environment: dict[str, str], script: str) -> dict[str, Any]:
    """Run a case in a process of its own."""
    done = subprocess.run(
        [sys.executable, script, "--case", name, "--place", place],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else "no reason"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_sqlite(path: Path, rows: int) -> str:
    """Make the table in a SQLite file."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(SQLITE_TABLE)
        connection.execute(SQLITE_ROWS.format(rows=rows))
    return str(path)


def measure(
    rows: int, rounds: int, names: list[str], cases: Cases = CASES, *, script: str = __file__
) -> dict[str, list[dict[str, Any]]]:
    """Run all cases in interleaved rounds; those of the large tables once."""
    kinds = {cases[name][0] for name in names}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sql-")))
        places, environment = {}, {}
        for kind in sorted(kinds):
            size = rows * MEMORY_GROWTH if kind.endswith("large") else rows
            if kind.startswith("sqlite"):
                places[kind] = make_sqlite(folder / f"{kind}.db", size)
                continue
            from tests.databases.postgres import PASSWORD, postgres_server

            server = stack.enter_context(postgres_server())
            server.run(POSTGRES_TABLE, POSTGRES_ROWS.format(rows=size), "VACUUM ANALYZE trips")
            places[kind], environment = server.url, {PASSWORD_VARIABLE: PASSWORD}
        for number in range(rounds):
            for name in names:
                if number == 0 or not name.endswith("large"):
                    run = run_apart(name, places[cases[name][0]], environment, script)
                    print(f"{number + 1}/{rounds} {name}: {run}", file=sys.stderr)
                    runs[name].append(run)
    return runs


def report(runs: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table of medians, and the ratios beside their bars."""
    good = {name: [run for run in of if "error" not in run] for name, of in runs.items()}
    lines = ["| case | krows/s | peak MB |", "|---|---|---|"]
    for name, of in good.items():
        if of:
            speed = statistics.median(run["rows"] / run["seconds"] / 1000 for run in of)
            peak = statistics.median(run["peak_mb"] for run in of)
            lines.append(f"| {name} | {speed:,.0f} | {peak:,.0f} |")
    lines += ["", "| what | measured | bar |", "|---|---|---|"]
    for bars, key in ((BARS, "seconds"), (MEMORY_BARS, "peak_mb")):
        for what, ours, other, bar in bars:
            if good.get(ours) and good.get(other):
                first, second = (
                    statistics.median(run[key] for run in good[name]) for name in (ours, other)
                )
                is_time = key == "seconds"
                ratio = second / first if is_time else first / second
                lines.append(f"| {what} | {ratio:.2f}x | {'>=' if is_time else '<='} {bar}x |")
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
        print(json.dumps(run_case(arguments.case, arguments.place)))
        return
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    print(report(measure(rows, rounds, arguments.cases.split(","))))


if __name__ == "__main__":
    main()
