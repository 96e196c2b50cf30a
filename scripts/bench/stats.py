"""Measures `Dataset.stats` beside `arrow()`: its speed, and its peak memory at several sizes.

    .venv/bin/python scripts/bench/stats.py --rows 1000000 10000000

Every run is a process of its own, and runs of `arrow` and `stats` take turns. Bars: `stats` takes
at most twice the time of `arrow`, and its memory does not grow with the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from saving import describe_machine, save
from tables import make_table
from take import memory_bytes

import beam_tfrecord as bt

BATCH_VALUES = 1_000_000


def make_floats(rows: int, *, seed: int) -> pa.Table:
    """Return 100 columns of float32."""
    values = np.random.default_rng(seed).normal(size=(100, rows)).astype(np.float32)
    return pa.table(list(values), [f"x{number}" for number in range(100)])


def make_texts(rows: int, *, seed: int) -> pa.Table:
    """Return a column of texts that all differ but for chance."""
    numbers = np.random.default_rng(seed).integers(0, 2**62, rows)
    return pa.table([pa.array(numbers).cast(pa.string())], ["text"])


# Each with the number of its columns, by which its rows are divided.
TABLES = {"mixed": (make_table, 10), "floats": (make_floats, 100), "texts": (make_texts, 1)}


def run_here(name: str, path: str) -> None:
    """Read a dataset twice, and print the seconds of the second time and the peak memory in MB."""
    rows = bt.load(path)
    for _ in range(2):  # the first one imports modules
        start = time.perf_counter()
        _ = rows.arrow() if name == "arrow" else rows.stats()
    print(json.dumps([time.perf_counter() - start, memory_bytes("VmHWM") / 1e6]))


def measure(name: str, rows: int, repeat: int, place: Path) -> dict[str, float]:
    """Write a dataset from a file that is made in batches, and return the medians of runs."""
    maker, columns = TABLES[name]
    at_once = BATCH_VALUES // columns
    with pq.ParquetWriter(place / "in.parquet", maker(0, seed=0).schema) as file:
        for seed, start in enumerate(range(0, rows, at_once)):
            file.write_table(maker(min(at_once, rows - start), seed=seed))
    bt.write(place / "in.parquet", place / "out", seed=1, shards=8)
    runs: dict[str, list[list[float]]] = {"arrow": [], "stats": []}
    for _ in range(repeat):
        for what, found in runs.items():
            words = [sys.executable, "-W", "ignore", __file__, "--run-here", what, f"{place}/out"]
            found.append(json.loads(subprocess.run(words, check=True, capture_output=True).stdout))
    arrow, stats = (median(run[0] for run in found) for found in runs.values())
    peak = median(run[1] for run in runs["stats"])
    return {"arrow_s": arrow, "stats_s": stats, "speed": arrow / stats, "stats_peak_mb": peak}


def main() -> None:
    """Measure each table at each size, and print and keep what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--run-here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_here:
        run_here(*options.run_here)
        return
    found = {}
    for name, (_, columns) in TABLES.items():
        for rows in [size * 10 // max(columns, 10) for size in options.rows]:
            with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
                one = measure(name, rows, options.repeat, Path(place))
            found[f"{name}, {rows} rows"] = one
            print(name, rows, json.dumps(one), f"load {os.getloadavg()[0]:.1f}", flush=True)
    save("stats", {"machine": describe_machine(Path("/var/tmp"), None), "tables": found})


if __name__ == "__main__":
    main()
