"""How fast a NumPy file becomes a dataset, beside reading the file and writing the same bytes.

    python scripts/bench/numpy_arrays.py --rows 20000 --repeat 3

Every run is a process of its own, in turn, on files that the page cache holds. Peak memory is the
kernel's figure for that process, pages of the mapped file included. The result is a JSON file
among the results.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from saving import describe_machine, save

# Float32 pictures of 112 x 112 x 3: 150,528 bytes a row.
ROW_SHAPE = (112, 112, 3)

COPY = """
import os, sys, time
source, out = sys.argv[1:]
buffer = memoryview(bytearray(2**23))
started = time.perf_counter()
with open(source, "rb", buffering=0) as read, open(out, "wb", buffering=0) as write:
    while count := read.readinto(buffer):
        write.write(buffer[:count])
    os.fsync(write.fileno())
seconds = time.perf_counter() - started
"""
WRITE = """
import sys, time
import apache_beam
import beam_tfrecord as bt
source, out = sys.argv[1:]
started = time.perf_counter()
bt.write(source, out + "/", shuffle={shuffle})
seconds = time.perf_counter() - started
"""
TELL = """
import json, resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": seconds, "peak_bytes": peak}))
"""
CASES = {
    "copy": COPY,
    "source-order": WRITE.format(shuffle=False),
    "shuffle": WRITE.format(shuffle=True),
}


MAKE = f"""
import numpy, sys
path, rows = sys.argv[1], int(sys.argv[2])
random = numpy.random.default_rng(0)
array = numpy.lib.format.open_memmap(path, "w+", numpy.dtype("<f4"), (rows, *{ROW_SHAPE}))
for start in range(0, rows, 256):
    array[start : start + 256] = random.random(array[start : start + 256].shape, numpy.float32)
array.flush()
"""


def write_arrays(path: Path, rows: int) -> int:
    """Write an .npy file of random rows; return its size in bytes.

    A process of its own does it: the kernel's figure for peak memory is handed down from the
    process that starts another one.
    """
    subprocess.run([sys.executable, "-c", MAKE, str(path), str(rows)], check=True)
    return path.stat().st_size


def measure(case: str, source: Path, directory: Path) -> dict[str, Any]:
    """Run one case in a process of its own."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        done = subprocess.run(
            [sys.executable, "-c", CASES[case] + TELL, str(source), os.path.join(scratch, "out")],
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure, print the medians, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of 150,528 bytes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where to work; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as work:
        source = Path(work, "arrays.npy")
        input_bytes = write_arrays(source, arguments.rows)
        runs: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
        for _ in range(arguments.repeat):
            for case, found in runs.items():
                found.append(measure(case, source, Path(work)))
        machine = describe_machine(Path(work), None)
    seconds = {
        case: statistics.median(run["seconds"] for run in found) for case, found in runs.items()
    }
    for case, found in runs.items():
        peak = max(run["peak_bytes"] for run in found) / 1e6
        rate = input_bytes / seconds[case] / 1e6
        ratio = seconds["copy"] / seconds[case]
        print(f"{case:14} {rate:7,.0f} MB/s  {ratio:5.2f} of the copy  {peak:7,.0f} MB at most")
    result = {
        "machine": machine,
        "rows": arguments.rows,
        "input_bytes": input_bytes,
        "runs": runs,
    }
    print(save("numpy", result))


if __name__ == "__main__":
    main()
