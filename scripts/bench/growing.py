"""Measures appending, splits that count rows, unions and mixtures, each beside what they extend.

    python scripts/bench/growing.py [--rows 1000000] [--present 1000000,20000000] [--repeats 5]

Each measurement runs in a process of its own; those of one repeat follow each other. A ratio is the
median of those to the first of their kind: `write`, or the reading of `one` dataset.
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
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from saving import describe_machine, save
from tables import ROW_GROUP_ROWS, make_table

import beam_tfrecord as bt

READ_ROWS = 8_192
SPLITS = "train=0.8,test=0.2"


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


def read(opened: Callable[[], Any], *, is_mixture: bool = False) -> None:
    """Read an epoch in random order; that of a mixture is so already."""
    dataset = opened()
    for first in range(0, len(dataset), READ_ROWS):
        last = min(len(dataset), first + READ_ROWS)
        indices = np.arange(first, last)
        dataset.take(indices if is_mixture else dataset.order(1).indices(first, last))


def make_inputs(work: Path, rows: int, sizes: list[int]) -> None:
    """Write the files to append, and the datasets to append to and to read."""
    pq.write_table(make_table(rows, seed=0), work / "new.parquet", row_group_size=ROW_GROUP_ROWS)
    for size in sizes:
        old = work / f"old{size}"
        old.mkdir()
        for number, first in enumerate(range(0, size, 10**6)):
            table = make_table(min(10**6, size - first), seed=number + 1)
            pq.write_table(table, old / f"{number}.parquet", row_group_size=ROW_GROUP_ROWS)
        measured(functools.partial(bt.write, old, work / f"present{size}"))
    measured(functools.partial(bt.write, work / "new.parquet", work / "one", shards=4))
    for seed, name in enumerate(("a", "b"), 1000):
        file = work / f"{name}.parquet"
        pq.write_table(make_table(rows // 2, seed=seed), file, row_group_size=ROW_GROUP_ROWS)
        measured(functools.partial(bt.write, file, work / name, shards=2))


def cases(work: Path, sizes: list[int]) -> dict[str, Callable[[], object]]:
    """Return what to measure, by name."""
    new, out = work / "new.parquet", work / "out"
    write = functools.partial(bt.write, new, out)
    one, a, b = (str(work / name) for name in ("one", "a", "b"))
    return {
        "write": write,
        **{f"append to {size}": functools.partial(bt.append, new, out) for size in sizes},
        "write splits": functools.partial(write, splits=SPLITS),
        "write stratified": functools.partial(write, splits=SPLITS, stratify="s0"),
        "write counts": functools.partial(write, splits="train=1000,test=rest"),
        "read one": functools.partial(read, lambda: bt.load(one)),
        "read union": functools.partial(read, lambda: bt.load([a, b])),
        "read mixture": functools.partial(read, lambda: bt.mix({a: 1, b: 1}), is_mixture=True),
    }


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
        make_inputs(work, options.rows, sizes)
        runs: dict[str, list[tuple[float, int]]] = {}
        for _ in range(options.repeats):
            for name, case in cases(work, sizes).items():
                shutil.rmtree(work / "out", ignore_errors=True)
                if name.startswith("append"):
                    # No shard is ever written to, so links to them are a copy.
                    present = work / f"present{name.split()[-1]}"
                    shutil.copytree(present, work / "out", copy_function=os.link)
                runs.setdefault(name, []).append(measured(case))
        found = {}
        for name, times in runs.items():
            kind = "read one" if name.startswith("read") else "write"
            kind = "write splits" if name in ("write stratified", "write counts") else kind
            ratios = [one[0] / other[0] for one, other in zip(times, runs[kind], strict=True)]
            found[name] = {
                "cpu_seconds": round(statistics.median(cpu for cpu, _ in times), 2),
                "ratio": round(statistics.median(ratios), 3),
                "peak_bytes": max(peak for _, peak in times),
            }
            print(name, found[name])
        machine = describe_machine(work, None)
        save("growing", {"rows": options.rows, "cases": found, "machine": machine})


if __name__ == "__main__":
    main()
