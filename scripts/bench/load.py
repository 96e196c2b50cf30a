"""Reading a dataset back: `load` beside TensorFlow's own reader, tuned by hand.

    .venv/bin/python scripts/bench/load.py --rows 1000000

The ways take turns in processes of their own, over the same uncompressed shards in batches of
1,024. Bars: ``tf()`` at least 0.9 of the rows a second read by hand; ``arrow()`` and what
``torch()`` is made of at least 5 times its rows for a second of one core.
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

import pyarrow.parquet as pq
from saving import describe_machine, save
from tables import make_table

import beam_tfrecord as bt

BATCH_ROWS = 1024
SHARDS = 8


def by_hand(out: Path) -> int:
    """Read by TensorFlow alone: interleaved, batched, parsed in parallel, prefetched."""
    import tensorflow as tf

    spec = bt.load(out).schema.feature_spec()
    files = tf.data.Dataset.from_tensor_slices(sorted(map(str, out.glob("*.tfrecord"))))
    dataset = (
        files.interleave(
            lambda path: tf.data.TFRecordDataset(path, buffer_size=8 * 2**20),
            cycle_length=SHARDS,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=False,
        )
        .batch(BATCH_ROWS)
        .map(lambda batch: tf.io.parse_example(batch, spec), tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    return sum(len(batch["i0"]) for batch in dataset)


def load_tf(out: Path) -> int:
    """Read by `load`, as it comes."""
    return sum(len(batch["i0"]) for batch in bt.load(out).tf(BATCH_ROWS))


def load_arrow(out: Path) -> int:
    """Read by `load` into one table."""
    return int(bt.load(out).arrow().num_rows)


def load_torch(out: Path) -> int:
    """Read the batches of ``torch()``."""
    return sum(len(batch["i0"]) for batch in bt.load(out).torch(BATCH_ROWS))


CASES: dict[str, Callable[[Path], int]] = {
    "by_hand": by_hand,
    "load_tf": load_tf,
    "load_arrow": load_arrow,
    "load_torch": load_torch,
}


def _run_here(name: str, out: Path) -> None:
    if name in ("by_hand", "load_tf"):
        import tensorflow  # noqa: F401
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    rows = CASES[name](out)
    seconds = time.perf_counter() - began_s
    told = {"rows": rows, "seconds": seconds, "cpu": time.process_time() - began_cpu_s}
    print(json.dumps(told))


def main() -> None:
    """Write a dataset, read it in every way in turn, and print what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run-here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_here:
        _run_here(options.run_here[0], Path(options.run_here[1]))
        return
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as place:
        pq.write_table(make_table(options.rows, seed=0), f"{place}/in.parquet")
        bt.write(f"{place}/in.parquet", f"{place}/out", shards=SHARDS)
        for _ in range(options.repeat):
            for name in CASES:
                words = [sys.executable, "-W", "ignore", __file__, "--run-here", name]
                done = subprocess.run(
                    [*words, f"{place}/out"],
                    capture_output=True,
                    text=True,
                    check=False,
                    env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
                )
                if done.returncode:
                    raise SystemExit(f"{name}: {done.stderr[-2000:]}")
                found = json.loads(done.stdout.splitlines()[-1])
                runs[name].append((found["rows"] / found["seconds"], found["rows"] / found["cpu"]))
    rates = {name: statistics.median(rate for rate, _ in of) for name, of in runs.items()}
    cores = {name: statistics.median(rate for _, rate in of) for name, of in runs.items()}
    machine = describe_machine(Path(tempfile.gettempdir()), None)
    save("load", {"rows": options.rows, "machine": machine, "rows_per_s_and_core": runs})
    for name in CASES:
        print(f"{name:11} {rates[name]:12,.0f} rows/s {cores[name]:12,.0f} rows/s of a core")
    print(f"tf() to by hand: {rates['load_tf'] / rates['by_hand']:.2f} (at least 0.9)")
    for name in ("load_arrow", "load_torch"):
        print(f"{name} to by hand, a core: {cores[name] / cores['by_hand']:.1f} (at least 5)")


if __name__ == "__main__":
    main()
