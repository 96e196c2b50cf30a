"""How fast `verify` is, beside reading the same files and doing nothing.

Both run with as many threads, in turn, on files that the page cache holds (warm) and on files that
it was told to forget (cold). The result is a JSON file among the results.
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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from saving import describe_machine, save
from tables import load_inputs, make_inputs

READ_BYTES = 2**20

WRITE = """
import json, sys, beam_tfrecord as bt
inputs, out = json.loads(sys.argv[1])
bt.write(inputs, out, splits={"train": .9, "test": .1})
"""


def forget(files: Sequence[Path]) -> None:
    """Ask the page cache to let go of the files."""
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(files: Sequence[Path], threads: int) -> int:
    """Read all bytes; return how many."""

    def one(path: Path) -> int:
        buffer, total = bytearray(READ_BYTES), 0
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
        return total

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(one, files))


def verify(dataset: Path, threads: int) -> int:
    """Verify; return the bytes read.

    Raises:
        SystemExit: The dataset has a fault.
    """
    from beam_tfrecord.check.verify import verify as verify_dataset

    found = verify_dataset(dataset, threads=threads)
    if not found.ok:
        raise SystemExit(f"bench: {found.faults[0]}")
    return found.bytes


def measure(dataset: Path, *, repeat: int, threads: int) -> dict[str, dict[str, list[float]]]:
    """Return GB/s by wall time, and by processor time of one core, of every run."""
    files = sorted(dataset.glob("*.tfrecord"))
    work: dict[str, Callable[[], int]] = {
        "read": lambda: read(files, threads),
        "verify": lambda: verify(dataset, threads),
    }
    rates: dict[str, dict[str, list[float]]] = {}
    for _ in range(repeat):
        for state in ("cold", "warm"):
            for name, run in work.items():
                if state == "cold":
                    forget(files)
                wall, processor = time.perf_counter(), time.process_time()
                nbytes = run()
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                of_case = rates.setdefault(f"{name} {state}", {"wall": [], "processor": []})
                of_case["wall"].append(nbytes / wall / 1e9)
                of_case["processor"].append(nbytes / processor / 1e9)
    return rates


def main() -> None:
    """Make a dataset, measure, print a table and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=8, help="tables of a million rows")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as work:
        sizes = {"rows": 1_000_000, "tables": options.tables, "stock_rows": 1000, "seed": 0}
        inputs, dataset = load_inputs(make_inputs(Path(work), **sizes)), Path(work) / "out"
        arguments = json.dumps([inputs.parquet, str(dataset)])
        subprocess.run([sys.executable, "-c", WRITE, arguments], check=True)
        os.sync()
        rates = measure(dataset, repeat=options.repeat, threads=options.threads)
        machine = describe_machine(Path(work), None)
        nbytes = sum(path.stat().st_size for path in dataset.glob("*.tfrecord"))
    medians = {case: statistics.median(of_case["wall"]) for case, of_case in rates.items()}
    ratios = {
        state: medians[f"verify {state}"] / medians[f"read {state}"] for state in ("cold", "warm")
    }
    for case, rate in medians.items():
        print(f"{case:12} {rate:6.2f} GB/s")
    print(f"verify takes {ratios['cold']:.2f} of the speed of reading cold files")
    found = {
        "bytes": nbytes,
        "threads": options.threads,
        "median_gb_per_s": medians,
        "verify_to_read": ratios,
        "gb_per_s": rates,
        "machine": machine,
        "load_average": os.getloadavg(),
    }
    save("verify", found)


if __name__ == "__main__":
    main()
