"""Cases of JSON Lines: our write, and at best PyArrow's parser and the writing alone.

As in `baselines`, each function prepares a case and returns what is measured.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ours import MEMORY_TABLES, write_dataset
from rooflines import _copy, _record_bytes
from rooflines import _write as _write_raw
from work import Bench, Measured, Work, bytes_below

BLOCK_BYTES = 2**20
SECTOR_BYTES = 4096


def _json_of(paths: Sequence[str]) -> list[Path]:
    """Return tables as JSON Lines; files that an earlier case made are used again."""
    import pyarrow.parquet as pq

    made = [Path(path).with_suffix(".jsonl") for path in paths]
    for source, target in zip(paths, made, strict=True):
        if not target.exists():
            partial = target.with_suffix(".part")
            with partial.open("w") as file:
                for batch in pq.ParquetFile(source).iter_batches():
                    file.writelines(f"{json.dumps(row)}\n" for row in batch.to_pylist())
            partial.rename(target)
    return made


def _shuffled(bench: Bench, paths: Sequence[str]) -> Measured:
    return write_dataset(bench, tuple(map(str, _json_of(paths))))


def shuffle_json(bench: Bench) -> Measured:
    """JSON Lines, their types inferred from all rows, shuffled."""
    return _shuffled(bench, bench.inputs.parquet)


def shuffle_json_few(bench: Bench) -> Measured:
    """Two tables of JSON Lines: the memory this takes is compared with that of all."""
    return _shuffled(bench, bench.inputs.parquet[:MEMORY_TABLES])


def roofline_json(bench: Bench) -> Measured:
    """Parse the JSON twice by PyArrow, write the bytes of the records, read them, write them."""
    import pyarrow.json as pj

    sources = _json_of(bench.inputs.parquet)
    record_bytes = _record_bytes(bench.inputs.parquet[0])
    size = int(bench.inputs.table_rows * record_bytes) // SECTOR_BYTES * SECTOR_BYTES
    zeros = memoryview(mmap.mmap(-1, size))
    options = pj.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)

    def parse(source: Path) -> int:
        with pj.open_json(os.fspath(source), options) as batches:
            return sum(batch.num_rows for batch in batches)

    def convert(source: Path) -> int:
        parse(source)
        rows = parse(source)
        run = bench.scratch / source.name
        _write_raw(run, zeros, 0)
        _copy(run, bench.out / source.name, 0)
        return rows

    def run() -> Work:
        with ThreadPoolExecutor(bench.workers) as threads:
            rows = sum(threads.map(convert, sources))
        return Work(rows=rows, output_bytes=bytes_below(bench.out))

    return run
