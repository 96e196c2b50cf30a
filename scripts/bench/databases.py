"""What `sql.py` measures with: the table, its databases, rounds and reports.

Every case runs in a process of its own, with its imports before the clock; rounds are interleaved,
and told are medians.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from saving import describe_machine, save

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

PASSWORD_VARIABLE = "BENCH_PASSWORD"
MEMORY_GROWTH = 20

# By name: the kind of table it reads, what it does, and what it imports first.
Cases = dict[str, tuple[str, Callable[[str, Path], int], tuple[str, ...]]]
# What is promised, the two cases whose ratio it is, the figure of them, and the bar.
Bars = Sequence[tuple[str, str, str, str, str]]
Runs = dict[str, list[dict[str, Any]]]

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


def run_case(name: str, place: str, cases: Cases) -> dict[str, Any]:
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
        [sys.executable, "-W", "ignore", script, "--case", name, "--place", place],
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


def measure(rows: int, rounds: int, names: list[str], cases: Cases, *, script: str) -> Runs:
    """Run all cases in interleaved rounds; those of the large tables once."""
    kinds = {cases[name][0] for name in names}
    runs: Runs = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-sql-")))
        places, environment = {}, {}
        for kind in sorted(kinds):
            size = rows * MEMORY_GROWTH if kind.endswith("large") else rows
            if kind.startswith("sqlite"):
                places[kind] = make_sqlite(folder / f"{kind}.db", size)
                continue
            from tests.helpers.databases.postgres import PASSWORD, postgres_server

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


def report(runs: Runs, bars: Bars) -> str:
    """Return the table of medians, and the ratios beside their bars."""
    good = {name: [run for run in of if "error" not in run] for name, of in runs.items()}
    medians = {
        name: {key: statistics.median(run[key] for run in of) for key in ("seconds", "peak_mb")}
        for name, of in good.items()
        if of
    }
    lines = ["| case | krows/s | peak MB |", "|---|---|---|"]
    for name, median in medians.items():
        speed = good[name][0]["rows"] / median["seconds"] / 1000
        lines.append(f"| {name} | {speed:,.0f} | {median['peak_mb']:,.0f} |")
    lines += ["", "| what | measured | bar |", "|---|---|---|"]
    for what, one, other, key, bar in bars:
        if one in medians and other in medians:
            ratio = medians[one][key] / medians[other][key]
            lines.append(f"| {what} | {ratio:.2f}x | {bar} |")
    return "\n".join(lines)


def main(about: str, cases: Cases, bars: Bars, script: str) -> None:
    """Read the command line, measure, and print the tables."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tiny table, one round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default=",".join(cases), help="names with commas between")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(run_case(arguments.case, arguments.place, cases)))
        return
    rows, rounds = (20_000, 1) if arguments.quick else (arguments.rows, arguments.rounds)
    runs = measure(rows, rounds, arguments.cases.split(","), cases, script=script)
    print(report(runs, bars))
    if not arguments.quick:
        machine = describe_machine(Path(tempfile.gettempdir()), None)
        save(Path(script).stem, {"rows": rows, "machine": machine, "runs": runs})
