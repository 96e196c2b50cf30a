"""What this package does with the rows: whole writes, and the kernel alone.

As in `baselines`, each function prepares a case and returns what is measured.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from work import Bench, Measured, Work, bytes_below

MEMORY_TABLES = 2
KERNEL_PASSES = 5


def _write(bench: Bench, inputs: tuple[str, ...], **keywords: Any) -> Measured:
    # Imported here, as the write imports them, so that the imports are not measured.
    import apache_beam  # noqa: F401

    import beam_tfrecord as bt

    write = bt.write
    workers = [f"--direct_num_workers={bench.workers}"]

    def run() -> Work:
        write(list(inputs), f"{bench.out}/", runner="direct", pipeline_options=workers, **keywords)
        return Work(rows=len(inputs) * bench.inputs.table_rows, output_bytes=bytes_below(bench.out))

    return run


def source_order(bench: Bench) -> Measured:
    """All tables in source order: one pass."""
    return _write(bench, bench.inputs.parquet, shuffle=False)


def source_order_few(bench: Bench) -> Measured:
    """Two tables in source order: the memory this takes is compared with that of all."""
    return _write(bench, bench.inputs.parquet[:MEMORY_TABLES], shuffle=False)


def shuffle(bench: Bench) -> Measured:
    """All tables, every record to its random place."""
    return _write(bench, bench.inputs.parquet)


def shuffle_few(bench: Bench) -> Measured:
    """Two tables shuffled: the memory this takes is compared with that of all."""
    return _write(bench, bench.inputs.parquet[:MEMORY_TABLES])


def shuffle_csv(bench: Bench) -> Measured:
    """CSV files, their types inferred from all rows, shuffled."""
    return _write(bench, bench.inputs.csv)


def gzip_write(bench: Bench) -> Measured:
    """All tables in source order as gzip shards."""
    return _write(bench, bench.inputs.parquet, shuffle=False, compression="gzip")


def map_rows(bench: Bench) -> Measured:
    """The first table shuffled, with a Python function per row before the encoding."""
    from user_map import rescale

    return _write(bench, bench.inputs.parquet[:1], map=rescale)


def kernel_encode(bench: Bench) -> Measured:
    """The kernel alone: batches in memory to framed records in one reused buffer."""
    import numpy as np
    import pyarrow.parquet as pq

    from beam_tfrecord import native

    if not native.IS_NATIVE:
        raise RuntimeError("the native kernel is not built")
    batches = pq.read_table(bench.inputs.parquet[0]).to_batches(max_chunksize=bench.batch_rows)
    buffer = np.zeros(max(native.encode_bound(batch) for batch in batches), np.uint8)
    starts = np.zeros(bench.batch_rows, np.int64)
    rows = np.zeros(bench.batch_rows, np.int64)

    def run() -> Work:
        encoded = [
            native.encode(batch, buffer, 0, starts, rows)
            for _ in range(KERNEL_PASSES)
            for batch in batches
        ]
        return Work(
            rows=sum(it.records for it in encoded), output_bytes=sum(it.size for it in encoded)
        )

    return run


def command_help(bench: Bench) -> Measured:
    """`beam-tfrecord --help` as a process of its own."""

    def run() -> Work:
        command = [sys.executable, "-m", "beam_tfrecord", "--help"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return Work(rows=0, output_bytes=0)

    return run
