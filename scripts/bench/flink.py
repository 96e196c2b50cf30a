"""Measures a job on Flink beside one process, and beside stock Beam on the same cluster.

    .venv/bin/python scripts/bench/flink.py --rows 20000000 --stock-rows 400000

Starts a cluster by `pipelines/flink/up` and ends it. Times on Flink are those of Flink itself, from
the start of the job to its end: what a launcher, or the submission, takes is told apart. Writes one
JSON file to `scripts/bench/results/`.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from saving import save
from tables import ROW_GROUP_ROWS, make_table

import beam_tfrecord as bt

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "pipelines" / "flink"
TABLE_ROWS = 1_000_000
SAMPLE_S = 0.2
STOCK_SHARDS = 8


@contextlib.contextmanager
def cluster(state: Path) -> Iterator[dict[str, str]]:
    """Run a cluster; give its addresses by the name of Beam's option."""
    try:
        started = subprocess.run(
            [sys.executable, str(SCRIPTS / "up"), str(state)], check=True, stdout=subprocess.PIPE
        )
        words = shlex.split(started.stdout.decode().splitlines()[-1])
        yield {"flink_master": words[3], "job_endpoint": words[5]}
    finally:
        subprocess.run([sys.executable, str(SCRIPTS / "down"), str(state)], check=True)


class Sampler:
    """Watches the Python workers and the heaps of the TaskManagers while a job runs.

    Args:
        master: ``host:port`` of Flink.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._over = threading.Event()
        self.worker_rss = 0
        self.heap_bytes = 0

    def __enter__(self) -> Sampler:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.worker_rss = max([self.worker_rss, *_worker_rss()])
            with contextlib.suppress(OSError, ValueError, KeyError):
                self.heap_bytes = max([self.heap_bytes, *_heaps(self._master)])


def _worker_rss() -> Iterator[int]:
    """Yield the resident bytes of every Python worker on this machine."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if b"beam_tfrecord.runners.boot_worker" in (entry / "cmdline").read_bytes():
                text = (entry / "status").read_text().partition("VmRSS:")[2]
                yield int(text.split()[0]) * 1024


def _heaps(master: str) -> Iterator[int]:
    for manager in ask(master, "/v1/taskmanagers")["taskmanagers"]:
        path = f"/v1/taskmanagers/{manager['id']}/metrics?get=Status.JVM.Memory.Heap.Used"
        for one in ask(master, path):
            yield int(float(one["value"]))


def ask(master: str, path: str) -> Any:
    """Return what Flink answers."""
    with urllib.request.urlopen(f"http://{master}{path}", timeout=5) as answer:
        return json.load(answer)


def job_seconds(master: str) -> float:
    """Return how long the newest job took on Flink."""
    jobs = ask(master, "/v1/jobs/overview")["jobs"]
    return float(max(jobs, key=lambda job: job["start-time"])["duration"]) / 1000


def make_input(directory: Path, rows: int) -> str:
    """Write tables of `TABLE_ROWS` rows each; return the pattern of their names."""
    directory.mkdir(parents=True)
    for index in range(-(-rows // TABLE_ROWS)):
        table = make_table(min(TABLE_ROWS, rows - index * TABLE_ROWS), seed=index)
        pq.write_table(
            table, directory / f"rows-{index:03d}.parquet", row_group_size=ROW_GROUP_ROWS
        )
    return str(directory / "*.parquet")


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds that work takes."""
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


def ours(source: str, output: Path, addresses: dict[str, str] | None) -> bt.Manifest:
    """Write a shuffled dataset, here or on Flink."""
    if addresses is None:
        return bt.write(source, output)
    options = [f"--{name}={value}" for name, value in addresses.items()]
    return bt.write(source, output, runner="flink", pipeline_options=options)


def stock(source: str, output: Path, addresses: dict[str, str]) -> None:
    """Run the chain that users of stock Beam write, with our presets for the cluster."""
    import apache_beam as beam
    from stock_example import to_example

    from beam_tfrecord.runners.launch_settings import Launch, launching

    options = [f"--{name}={value}" for name, value in addresses.items()]
    # Our wheels bring the function to the workers, which stock Beam would have to be taught.
    launch = Launch(modules=("stock_example",))
    with launching(launch), bt.pipeline("flink", options=options) as root:
        (
            root
            | beam.io.ReadFromParquet(source)
            | beam.Map(to_example)
            | beam.io.WriteToTFRecord(str(output), num_shards=STOCK_SHARDS)
        )


def measure(work: Path, rows: int, stock_rows: int) -> dict[str, Any]:
    """Run all cases; return their figures."""
    told: dict[str, Any] = {"rows": rows, "stock_rows": stock_rows}
    small, large = make_input(work / "small", max(1, rows // 10)), make_input(work / "large", rows)
    few = make_input(work / "few", stock_rows)
    told["local_seconds"] = timed(lambda: ours(large, work / "local", None))
    began_s = time.monotonic()
    with cluster(work / "state") as addresses:
        master = addresses["flink_master"]
        told["up_seconds"] = time.monotonic() - began_s
        told["first_job_seconds"] = timed(lambda: ours(few, work / "first", addresses))
        told["second_job_seconds"] = timed(lambda: ours(few, work / "second", addresses))
        for name, source in (("small", small), ("large", large)):
            with Sampler(master) as sampler:
                output = work / f"flink-{name}"
                told[f"{name}_wall_seconds"] = timed(
                    functools.partial(ours, source, output, addresses)
                )
            told[f"{name}_flink_seconds"] = job_seconds(master)
            told[f"{name}_worker_rss"] = sampler.worker_rss
            told[f"{name}_heap_bytes"] = sampler.heap_bytes
        told["stock_wall_seconds"] = timed(lambda: stock(few, work / "stock", addresses))
        told["stock_flink_seconds"] = job_seconds(master)
    manifests = [(work / name / "manifest.json").read_bytes() for name in ("local", "flink-large")]
    told["is_equal"] = manifests[0] == manifests[1]
    return told | ratios(told)


def ratios(told: dict[str, Any]) -> dict[str, float]:
    """Return what is compared, from what was measured."""
    flink = told["rows"] / told["large_flink_seconds"]
    return {
        "rows_per_second": flink,
        "of_local": flink / (told["rows"] / told["local_seconds"]),
        "times_stock": flink / (told["stock_rows"] / told["stock_flink_seconds"]),
        "memory_growth": told["large_worker_rss"] / told["small_worker_rss"],
        "heap_growth": told["large_heap_bytes"] / told["small_heap_bytes"],
    }


def main() -> None:
    """Read the command line, measure, write and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--stock-rows", type=int, default=400_000)
    parser.add_argument("--work", type=Path, help="where to put the data; by default a new place")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.work) as directory:
        told = measure(Path(directory), arguments.rows, arguments.stock_rows)
    save(f"flink-{arguments.rows}", told)
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
