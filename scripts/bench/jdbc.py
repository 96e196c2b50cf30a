"""The ``jdbc:`` way into TFRecord, beside its own driver alone and what people write by hand.

    python scripts/bench/jdbc.py            # 1 M rows of 12 columns, five rounds: some minutes
    python scripts/bench/jdbc.py --quick    # 20,000 rows, one round: does everything run?

The table, the way by hand and the server are those of ``sql.py``. Every case runs in a process of
its own, the start of Java included; rounds are interleaved, and told are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sql

POSTGRES = "org.postgresql:postgresql:42.7.8"
GROWTH = 20


def jdbc_drain(place: str, work: Path) -> int:
    """Read all rows into Arrow over one connection, and do nothing with them."""
    from beam_tfrecord.sources.sql_engine import Relation, SqlOptions
    from beam_tfrecord.sources.sql_jdbc import Jdbc

    options = SqlOptions(jars=(POSTGRES,), password_env=sql.PASSWORD_VARIABLE)
    rows = 0
    with Jdbc(place, options).connect() as connection:
        relation = Relation("trips")
        columns = connection.describe(relation)
        values = ", ".join(column.select for column in columns)
        for found in connection.read(relation.select(values), columns, batch_rows=16_384):
            rows += found.data.num_rows
    return rows


def jdbc_write(place: str, work: Path) -> int:
    """Write the table as a dataset, cut as it is by default."""
    return sql.write(place, work, jars=[POSTGRES])


def jdbc_write_one(place: str, work: Path) -> int:
    """Write the table as a dataset, over one connection."""
    return sql.write(place, work, jars=[POSTGRES], partitions=1)


CASES: dict[str, Callable[[str, Path], int]] = {
    "jdbc_drain": jdbc_drain,
    "jdbc_write": jdbc_write,
    "jdbc_write_1": jdbc_write_one,
    "by_hand": sql.by_hand,
    "jdbc_write_large": jdbc_write,
}

# What, which two cases, what of them, and the bar.
BARS = (
    ("end to end, of the driver alone", "jdbc_drain", "jdbc_write", "seconds", ">= 0.6x"),
    ("end to end, of what is written by hand", "by_hand", "jdbc_write", "seconds", ">= 10x"),
    (
        f"peak memory, {GROWTH} times the rows",
        "jdbc_write_large",
        "jdbc_write",
        "peak_mb",
        "<= 1.2x",
    ),
)

_OURS = ("apache_beam", "beam_tfrecord.composing", "beam_tfrecord.sources.sql_jdbc")
_HAND = ("apache_beam", "psycopg", "tensorflow")


def run_case(name: str, place: str) -> dict[str, Any]:
    """Run a case in this process."""
    import importlib
    import resource

    # Imported before the clock starts.
    for module in _HAND if name == "by_hand" else _OURS:
        importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="bench-jdbc-") as work:
        started = time.perf_counter()
        rows = CASES[name](place, Path(work))
        seconds = time.perf_counter() - started
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"rows": rows, "seconds": round(seconds, 3), "peak_mb": round(peak_kb / 1024, 1)}


def run_apart(name: str, place: str, password: str) -> dict[str, Any]:
    """Run a case in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--case", name, "--place", place],
        env={**os.environ, sql.PASSWORD_VARIABLE: password},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr else "no reason"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rows: int, rounds: int, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Run all cases in interleaved rounds; that of the large table once, on a table of its own."""
    from tests.databases.postgres import PASSWORD, postgres_server

    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for is_large in (False, True):
        chosen = [name for name in names if name.endswith("large") == is_large]
        if not chosen:
            continue
        with postgres_server() as server:
            size = rows * GROWTH if is_large else rows
            filled = sql.POSTGRES_ROWS.format(rows=size)
            server.run(sql.POSTGRES_TABLE, filled, "VACUUM ANALYZE trips")
            for number in range(1 if is_large else rounds):
                for name in chosen:
                    place = server.url
                    if name != "by_hand":
                        user, _, rest = server.url.removeprefix("postgresql://").partition("@")
                        place = f"jdbc:postgresql://{rest}?user={user}"
                    run = run_apart(name, place, PASSWORD)
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
    for what, one, other, key, bar in BARS:
        if good.get(one) and good.get(other):
            first, second = (
                statistics.median(run[key] for run in good[name]) for name in (one, other)
            )
            lines.append(f"| {what} | {first / second:.2f}x | {bar} |")
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
