"""Measures what it costs to append rows to datasets of two sizes, beside a fresh write of them.

    python scripts/bench/growing.py [--rows 1000000] [--present 1000000,20000000] [--repeats 5]

Each measurement runs in a process of its own; those of one repeat follow each other.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from saving import describe_machine, save
from tables import ROW_GROUP_ROWS, make_table

import beam_tfrecord as bt


def measured(work: Callable[[], object]) -> tuple[float, int]:
    """Return CPU seconds and peak resident bytes of work in a process of its own."""
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError("the job failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    """Print and save the medians of all repeats."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--present", default="1000000,20000000")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    sizes = list(map(int, options.present.split(",")))
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        new = work / "new.parquet"
        pq.write_table(make_table(options.rows, seed=0), new, row_group_size=ROW_GROUP_ROWS)
        for size in sizes:
            old = work / f"old{size}"
            old.mkdir()
            for number, first in enumerate(range(0, size, 10**6)):
                table = make_table(min(10**6, size - first), seed=number + 1)
                pq.write_table(table, old / f"{number}.parquet", row_group_size=ROW_GROUP_ROWS)
            measured(functools.partial(bt.write, old, work / f"present{size}"))
        runs: dict[str, list[tuple[float, int]]] = {}
        for _ in range(options.repeats):
            fresh = measured(functools.partial(bt.write, new, work / "fresh"))
            runs.setdefault("fresh", []).append(fresh)
            shutil.rmtree(work / "fresh")
            for size in sizes:
                # The shards are never written to, so links to them are a copy.
                out, present = work / "out", work / f"present{size}"
                shutil.copytree(present, out, copy_function=os.link)
                of_append = measured(functools.partial(bt.append, new, out))
                runs.setdefault(f"append_to_{size}", []).append(of_append)
                shutil.rmtree(out)
        found = {
            name: {
                "cpu_seconds": round(statistics.median(cpu for cpu, _ in of), 2),
                "cpu_of_fresh": round(
                    statistics.median(
                        cpu / fresh for (cpu, _), (fresh, _) in zip(of, runs["fresh"], strict=True)
                    ),
                    3,
                ),
                "peak_bytes": max(peak for _, peak in of),
            }
            for name, of in runs.items()
        }
        print(found)
        save("growing", {"rows": options.rows, **found, "machine": describe_machine(work, None)})


if __name__ == "__main__":
    main()
