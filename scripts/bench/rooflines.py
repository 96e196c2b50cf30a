"""Cases of what the machine can do at best: reading and writing alone, without encoding.

Input is read as Arrow batches by one thread a task (`use_threads=False`, as inside a worker) and
as many bytes as our records take are written raw. The shuffle reads and writes them once more.
Each comes in two ways: as files are usually written, through the page cache, and past it, which
is the better of the two where fresh memory is slow and the disk is fast.
"""

from __future__ import annotations

import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ours import ARRAYS, of_dataset
from tables import ROW_GROUP_ROWS, write_arrays
from work import Bench, Measured, Work, bytes_below, shards_of

Group = tuple[tuple[str, int], ...]

GROUP_ROW_GROUPS = 3
SAMPLE_ROWS = 5_000
STEP_BYTES = 8 * 2**20
SECTOR_BYTES = 4096
READ_BYTES = 2**20


def _record_bytes(path: str) -> float:
    """Return the mean size of a framed record, from the first rows of a table."""
    import numpy as np
    import pyarrow.parquet as pq

    from beam_tfrecord import native

    batch = next(pq.ParquetFile(path).iter_batches(batch_size=SAMPLE_ROWS))
    buffer = np.zeros(16 * batch.nbytes, np.uint8)
    starts, rows = np.zeros((2, batch.num_rows), np.int64)
    return float(native.encode(batch, buffer, 0, starts, rows).size / batch.num_rows)


def _groups(paths: tuple[str, ...]) -> list[Group]:
    import pyarrow.parquet as pq

    units = [
        (path, index) for path in paths for index in range(pq.ParquetFile(path).num_row_groups)
    ]
    return [
        tuple(units[start : start + GROUP_ROW_GROUPS])
        for start in range(0, len(units), GROUP_ROW_GROUPS)
    ]


def _read(group: Group, batch_rows: int) -> int:
    import pyarrow.parquet as pq

    return sum(
        batch.num_rows
        for path, index in group
        for batch in pq.ParquetFile(path).iter_batches(
            batch_size=batch_rows, row_groups=[index], use_threads=False
        )
    )


def _write(path: Path, data: memoryview, flag: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o666)
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written : written + STEP_BYTES])
    os.close(descriptor)


def _copy(source: Path, target: Path, flag: int) -> None:
    # Anonymous maps begin with a page, as access past the page cache wants it.
    with mmap.mmap(-1, source.stat().st_size) as buffer, memoryview(buffer) as data:
        descriptor = os.open(source, os.O_RDONLY | flag)
        filled = 0
        while filled < len(data):
            filled += os.readv(descriptor, [data[filled : filled + STEP_BYTES]])
        os.close(descriptor)
        _write(target, data, flag)


def _roofline(bench: Bench, *, again: bool, flag: int = 0) -> Measured:
    import pyarrow.parquet as pq  # noqa: F401  (its import is not what is measured)

    groups = _groups(bench.inputs.parquet)
    runs_folder = bench.scratch if again else bench.out
    record_bytes = _record_bytes(bench.inputs.parquet[0])
    zeros = memoryview(mmap.mmap(-1, int(GROUP_ROW_GROUPS * ROW_GROUP_ROWS * record_bytes) + 1))

    def spill(numbered: tuple[int, Group]) -> int:
        number, group = numbered
        rows = _read(group, bench.batch_rows)
        size = int(rows * record_bytes) // SECTOR_BYTES * SECTOR_BYTES
        _write(runs_folder / f"run-{number}", zeros[:size], flag)
        return rows

    def run() -> Work:
        with ThreadPoolExecutor(bench.workers) as threads:
            rows = sum(threads.map(spill, enumerate(groups)))
            if again:
                runs = [runs_folder / f"run-{number}" for number in range(len(groups))]
                list(threads.map(lambda path: _copy(path, bench.out / path.name, flag), runs))
        return Work(rows=rows, output_bytes=bytes_below(bench.out))

    return run


def roofline_source_order(bench: Bench) -> Measured:
    """Read the input, write as many bytes as the records take."""
    return _roofline(bench, again=False)


def roofline_shuffle(bench: Bench) -> Measured:
    """Read the input, write the bytes, read them, write them."""
    return _roofline(bench, again=True)


def roofline_source_order_direct(bench: Bench) -> Measured:
    """Read the input, write as many bytes as the records take, past the page cache."""
    return _roofline(bench, again=False, flag=os.O_DIRECT)


def roofline_shuffle_direct(bench: Bench) -> Measured:
    """Read the input, write the bytes, read them, write them, past the page cache."""
    return _roofline(bench, again=True, flag=os.O_DIRECT)


def roofline_tfrecord_shuffle(bench: Bench) -> Measured:
    """Read the shards of a dataset, write the bytes, read them, write them."""
    import beam_tfrecord as bt

    dataset = bench.scratch / "dataset"
    bt.write(list(bench.inputs.parquet), dataset, shuffle=False)
    shards = sorted(dataset.glob("*.tfrecord"))

    def copy(shard: Path) -> None:
        run = bench.scratch / shard.name
        _copy(shard, run, 0)
        _copy(run, bench.out / shard.name, 0)

    def run() -> Work:
        with ThreadPoolExecutor(bench.workers) as threads:
            list(threads.map(copy, shards))
        rows = len(bench.inputs.parquet) * bench.inputs.table_rows
        return Work(rows=rows, output_bytes=bytes_below(bench.out))

    return run


def _read_shards(bench: Bench, *, cold: bool = False) -> Measured:
    def read(path: Path) -> None:
        buffer = bytearray(READ_BYTES)
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def run(dataset: str) -> int:
        with ThreadPoolExecutor(bench.workers) as threads:
            list(threads.map(read, shards_of(dataset)))
        return len(bench.inputs.parquet) * bench.inputs.table_rows

    return of_dataset(bench, run, cold=cold)


def read_shards(bench: Bench) -> Measured:
    """Read the shards of all tables, which the page cache holds in part."""
    return _read_shards(bench)


def read_shards_cold(bench: Bench) -> Measured:
    """Read the shards of all tables, which the page cache was told to forget."""
    return _read_shards(bench, cold=True)


def copy_arrays(bench: Bench) -> Measured:
    """Copy the file of 600 MB of arrays to the disk."""
    source, target = bench.scratch / "arrays.npy", bench.out / "copy.npy"
    write_arrays(source, ARRAYS)

    def run() -> Work:
        buffer = memoryview(bytearray(STEP_BYTES))
        with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
            while count := read.readinto(buffer):
                write.write(buffer[:count])
            os.fsync(write.fileno())
        return Work(rows=ARRAYS, output_bytes=bytes_below(bench.out))

    return run
