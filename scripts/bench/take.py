"""Measures reading rows by their numbers, and the size and time of the indexes for it.

    .venv/bin/python scripts/bench/take.py --rows 1000000

Every measurement is a process of its own. Rates are per second of CPU time, so of one core. Bars:
`take` of 1,024 random rows of 10 columns into Arrow at least 300,000 rows/s; indexes at most 5 %
of the bytes of the shards, and at most 2 % of the CPU time of writing.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from saving import describe_machine, save

import beam_tfrecord as bt
from beam_tfrecord.records.index import IndexWriter

SHARDS = (1, 64)
TAKEN = (1, 256, 1024, 8192)
# Bytes of a value, and how many of them.
SIZES = {4: 2_000_000, 180: 1_000_000, 2_000: 200_000, 200_000: 2_000}
SECONDS_IN_A_RUN = 1.0


def make_table(rows: int) -> pa.Table:
    """Return a table of 10 columns: 4 floats, 4 integers and 2 of text."""
    draw = np.random.default_rng(0)
    floats = {f"f{i}": draw.random(rows, np.float32) for i in range(4)}
    integers = {f"i{i}": draw.integers(0, 1000, rows) for i in range(4)}
    names = [f"user{number}" for number in draw.integers(0, 10**6, rows)]
    kinds = [f"c{number}" for number in draw.integers(0, 99, rows)]
    return pa.table({**floats, **integers, "name": names, "kind": kinds})


def memory_bytes(name: str) -> int:
    """Return a figure of Linux about this process: ``VmRSS``, or ``VmHWM``, the most of it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def take(out: str, count: int) -> dict[str, float]:
    """Measure `take` of random rows: the rate of the median call, and the most memory it adds."""
    ds = bt.load(out)
    draw = np.random.default_rng(1)
    ds.take([0])
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins again
    before = memory_bytes("VmRSS")
    seconds = []
    end = time.process_time() + SECONDS_IN_A_RUN
    while time.process_time() < end:
        indices = draw.integers(0, len(ds), count)
        begun = time.process_time()
        ds.take(indices)
        seconds.append(time.process_time() - begun)
    warm = seconds[len(seconds) // 2 :]
    return {"rows_per_s": count / statistics.median(warm), "memory": memory_bytes("VmHWM") - before}


@contextmanager
def measured(seconds: list[float]) -> Iterator[None]:
    """Add the CPU time of the writers of indexes in this process to a list."""
    saved = {name: getattr(IndexWriter, name) for name in ("__init__", "add", "close")}

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            begun = time.thread_time()
            try:
                return work(*arguments)
            finally:
                seconds.append(time.thread_time() - begun)

        return run

    for name, work in saved.items():
        setattr(IndexWriter, name, timed(work))
    try:
        yield
    finally:
        for name, work in saved.items():
            setattr(IndexWriter, name, work)


def write(source: str, out: str) -> dict[str, float]:
    """Measure the share of the indexes in the bytes and in the CPU time of writing."""
    seconds: list[float] = []
    begun = time.process_time()
    with measured(seconds):
        bt.write(source, out, shards=4, seed=1)
    used = time.process_time() - begun + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    if not seconds:
        raise SystemExit("no index was written in this process")
    shards = sum(path.stat().st_size for path in Path(out).glob("*.tfrecord"))
    indexes = sum(path.stat().st_size for path in Path(out, "_index").iterdir())
    return {"bytes": indexes / shards, "time": sum(seconds) / used}


def in_a_process(name: str, *arguments: Any) -> dict[str, float]:
    """Return what a function of this file returns in a process of its own."""
    words = [sys.executable, "-W", "ignore", __file__, "--run-here", name, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} {arguments}: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of each figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure_takes(place: Path, rows: int, repeat: int) -> dict[str, dict[str, float]]:
    """Measure `take` by rows of the dataset, shards and rows taken at once."""
    runs: dict[str, list[dict[str, float]]] = {}
    for size in (rows // 4, rows):
        pq.write_table(make_table(size), place / "in.parquet")
        for shards in SHARDS:
            bt.write(place / "in.parquet", place / f"{size}-{shards}", shards=shards, seed=1)
    for _ in range(repeat):
        for size in (rows // 4, rows):
            for shards in SHARDS:
                for count in TAKEN:
                    found = in_a_process("take", place / f"{size}-{shards}", count)
                    runs.setdefault(f"{size} rows, {shards} shards, {count}", []).append(found)
    return {name: median(of) for name, of in runs.items()}


def measure_indexes(place: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Measure the share of the indexes by the size of a value."""
    shares = {}
    for size, count in SIZES.items():
        values = np.random.default_rng(0).bytes(size * count)
        offsets = np.arange(0, size * count + 1, size).astype(np.int32)
        array = pa.BinaryArray.from_buffers(
            pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        )
        pq.write_table(pa.table({"b": array}), place / "in.parquet")
        found = [
            in_a_process("write", place / "in.parquet", place / f"of-{size}-{run}")
            for run in range(repeat)
        ]
        shares[f"{size} bytes"] = median(found)
    return shares


def main() -> None:
    """Measure, and print and keep what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run-here", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_here:
        name, path, other = options.run_here
        print(json.dumps(take(path, int(other)) if name == "take" else write(path, other)))
        return
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as place:
        takes = measure_takes(Path(place), options.rows, options.repeat)
        indexes = measure_indexes(Path(place), options.repeat)
    machine = describe_machine(Path(tempfile.gettempdir()), None)
    save("take", {"rows": options.rows, "machine": machine, "take": takes, "indexes": indexes})
    for name, found in takes.items():
        rate, memory = found["rows_per_s"], found["memory"] / 1e6
        print(f"{name:32} at once {rate:12,.0f} rows/s of a core, {memory:6.1f} MB more memory")
    for name, found in indexes.items():
        share, time_share = found["bytes"], found["time"]
        print(f"values of {name:14} {share:6.2%} of the bytes, {time_share:6.2%} of the time")


if __name__ == "__main__":
    main()
