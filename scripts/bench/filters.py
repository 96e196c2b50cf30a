"""Measures what a filter costs, and what it saves if it excludes row groups of Parquet.

    .venv/bin/python scripts/bench/filters.py --rows 5000000 --repeat 3

Every way writes a dataset from one file that is sorted by `id`. The same condition on `unsorted`,
which has the same values in a random order, prunes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from saving import describe_machine, save

import beam_tfrecord as bt

GROUP_ROWS = 100_000


def write_rows(path: Path, rows: int) -> None:
    """Write the input: numbers in order and in a random order, floats, texts."""
    draw = np.random.default_rng(0)
    number = np.arange(rows)
    cities = pa.array(np.array(["NYC", "LA", "SF", "Berlin"])[number % 4])
    columns = {"id": number, "unsorted": draw.permutation(rows), "fare": draw.random(rows)}
    pq.write_table(pa.table({**columns, "city": cities}), path, row_group_size=GROUP_ROWS)


def ways(rows: int) -> dict[str, dict[str, Any]]:
    """Return the arguments of `write` by the name of the way."""
    first, last = rows // 2, rows // 2 + rows // 100 - 1
    return {
        "all rows": {},
        "always true": {"filter": "fare >= 0 and city is not null and id >= 0"},
        "1 %, pruned": {"filter": f"id between {first} and {last}"},
        "1 %, not pruned": {"filter": f"unsorted between {first} and {last}"},
        "sample of 1 %": {"sample": "1%"},
    }


def measure(path: Path, work: Path, repeat: int, rows: int) -> dict[str, float]:
    """Return the median seconds of each way, which take turns."""
    found: dict[str, list[float]] = {name: [] for name in ways(rows)}
    for turn in range(repeat + 1):
        for name, arguments in ways(rows).items():
            began_s = time.perf_counter()
            bt.write(path, work / "out", overwrite=True, **arguments)
            # The first turn loads modules and fills the page cache.
            if turn:
                found[name].append(time.perf_counter() - began_s)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def main() -> None:
    """Measure, print, and save the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="save the figures among the results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        write_rows(work / "x.parquet", options.rows)
        found = measure(work / "x.parquet", work, options.repeat, options.rows)
        machine = describe_machine(work, None)
    ratios = {
        "always true to all rows": found["always true"] / found["all rows"],
        "not pruned to pruned": found["1 %, not pruned"] / found["1 %, pruned"],
    }
    for name, value in {**found, **ratios}.items():
        print(f"{name:26} {value:6.2f}")
    if options.keep:
        print(
            save("filters", {"rows": options.rows, "seconds": found, **ratios, "machine": machine})
        )


if __name__ == "__main__":
    main()
