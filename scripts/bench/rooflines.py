"""What the machine could do at best: the reading and writing alone, without any encoding.

Input is read as Arrow batches by one thread a task (`use_threads=False`, as inside a worker) and
as many bytes as our records take are written raw. The shuffle reads and writes them once more.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tables import ROW_GROUP_ROWS
from work import Bench, Measured, Work, bytes_below

Group = tuple[tuple[str, int], ...]

GROUP_ROW_GROUPS = 3
SAMPLE_ROWS = 5_000


def _record_bytes(path: str) -> float:
    """Return the mean size of a framed record, from the first rows of a table."""
    import numpy as np
    import pyarrow.parquet as pq

    from beam_tfrecord import native

    batch = next(pq.ParquetFile(path).iter_batches(batch_size=SAMPLE_ROWS))
    buffer = np.zeros(native.encode_bound(batch), np.uint8)
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


def _write(path: Path, data: memoryview) -> None:
    with path.open("wb", buffering=0) as file:
        written = 0
        while written < len(data):
            written += file.write(data[written:])


def _copy(source: Path, target: Path) -> None:
    data = memoryview(bytearray(source.stat().st_size))
    with source.open("rb", buffering=0) as file:
        filled = 0
        while filled < len(data):
            filled += file.readinto(data[filled:]) or 0
    _write(target, data)


def _roofline(bench: Bench, *, again: bool) -> Measured:
    import pyarrow.parquet as pq  # noqa: F401  (its import is not what is measured)

    groups = _groups(bench.inputs.parquet)
    runs_folder = bench.scratch if again else bench.out
    record_bytes = _record_bytes(bench.inputs.parquet[0])
    zeros = memoryview(bytearray(int(GROUP_ROW_GROUPS * ROW_GROUP_ROWS * record_bytes)))

    def spill(numbered: tuple[int, Group]) -> int:
        number, group = numbered
        rows = _read(group, bench.batch_rows)
        size = int(rows * record_bytes)
        _write(runs_folder / f"run-{number}", zeros[:size])
        return rows

    def run() -> Work:
        with ThreadPoolExecutor(bench.workers) as threads:
            rows = sum(threads.map(spill, enumerate(groups)))
            if again:
                runs = [runs_folder / f"run-{number}" for number in range(len(groups))]
                list(threads.map(lambda path: _copy(path, bench.out / path.name), runs))
        return Work(rows=rows, output_bytes=bytes_below(bench.out))

    return run


def roofline_source_order(bench: Bench) -> Measured:
    """Read the input, write as many bytes as the records take."""
    return _roofline(bench, again=False)


def roofline_shuffle(bench: Bench) -> Measured:
    """Read the input, write the bytes, read them, write them."""
    return _roofline(bench, again=True)
