"""Cases of this package: whole writes, reading back, and the kernel alone.

As in `baselines`, each function prepares a case and returns what is measured.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tables import write_arrays
from work import Bench, Measured, Work, bytes_below, forget, shards_of

MEMORY_TABLES = 2
BATCH_ROWS = 1024
KERNEL_PASSES = 5
ARRAYS = 4_000
PICTURES = 10_000
SQLITE_ROWS = 500_000
SMALL_ROWS = 1_000


def write_dataset(
    bench: Bench, inputs: Any, *, rows: int | None = None, **keywords: Any
) -> Measured:
    """Measure a write of the inputs; without `rows` they are tables of the benchmark."""
    # Imported here, as the write imports them, so that the imports are not measured.
    import apache_beam  # noqa: F401

    import beam_tfrecord as bt

    write = bt.write
    workers = [f"--direct_num_workers={bench.workers}"]
    if rows is None:
        rows = len(inputs) * bench.inputs.table_rows

    def run() -> Work:
        write(inputs, f"{bench.out}/", runner="direct", pipeline_options=workers, **keywords)
        return Work(rows=rows, output_bytes=bytes_below(bench.out))

    return run


def source_order(bench: Bench) -> Measured:
    """All tables in source order: one pass."""
    return write_dataset(bench, bench.inputs.parquet, shuffle=False)


def source_order_few(bench: Bench) -> Measured:
    """Two tables in source order: the memory this takes is compared with that of all."""
    return write_dataset(bench, bench.inputs.parquet[:MEMORY_TABLES], shuffle=False)


def shuffle(bench: Bench) -> Measured:
    """All tables, every record to its random place."""
    return write_dataset(bench, bench.inputs.parquet)


def shuffle_few(bench: Bench) -> Measured:
    """Two tables shuffled: the memory this takes is compared with that of all."""
    return write_dataset(bench, bench.inputs.parquet[:MEMORY_TABLES])


def shuffle_csv(bench: Bench) -> Measured:
    """CSV files, their types inferred from all rows, shuffled."""
    return write_dataset(bench, bench.inputs.csv)


def _reshard(bench: Bench, tables: tuple[str, ...]) -> Measured:
    import beam_tfrecord as bt

    dataset = str(bench.scratch / "dataset")
    bt.write(list(tables), dataset, shuffle=False)
    return write_dataset(bench, (dataset,), rows=len(tables) * bench.inputs.table_rows)


def tfrecord_shuffle(bench: Bench) -> Measured:
    """The dataset of all tables, its records copied and shuffled."""
    return _reshard(bench, bench.inputs.parquet)


def tfrecord_shuffle_few(bench: Bench) -> Measured:
    """The dataset of two tables: the memory this takes is compared with that of all."""
    return _reshard(bench, bench.inputs.parquet[:MEMORY_TABLES])


def shuffle_files(kind: str, tables: int | None = None) -> Callable[[Bench], Measured]:
    """Return the case that shuffles tables of another kind of file."""

    def prepare(bench: Bench) -> Measured:
        from other_files import make_files

        return write_dataset(bench, make_files(kind, bench.scratch, bench.inputs.parquet[:tables]))

    prepare.__doc__ = f"Tables as {kind} files, shuffled."
    return prepare


def gzip_write(bench: Bench) -> Measured:
    """All tables in source order as gzip shards."""
    return write_dataset(bench, bench.inputs.parquet, shuffle=False, compression="gzip")


def map_rows(bench: Bench) -> Measured:
    """The first table shuffled, with a Python function per row before the encoding."""
    from user_map import rescale

    return write_dataset(bench, bench.inputs.parquet[:1], map=rescale)


def dataframe(bench: Bench) -> Measured:
    """All tables as one DataFrame of pandas in memory, shuffled."""
    import pyarrow.parquet as pq

    tables = list(bench.inputs.parquet)
    rows = len(tables) * bench.inputs.table_rows
    return write_dataset(bench, pq.read_table(tables).to_pandas(), rows=rows)


def _dicts(bench: Bench) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(bench.inputs.parquet[0]) as table:
        for batch in table.iter_batches(bench.batch_rows):
            names, columns = batch.schema.names, [column.to_pylist() for column in batch.columns]
            for values in zip(*columns, strict=True):
                yield dict(zip(names, values, strict=True))


def dicts(bench: Bench) -> Measured:
    """A generator of dicts of the rows of the first table, shuffled."""
    return write_dataset(bench, _dicts(bench), rows=bench.inputs.table_rows)


def dicts_by_hand(bench: Bench) -> Measured:
    """The same dicts by `RecordBatch.from_pylist` into an Arrow file, which is then shuffled."""
    import pyarrow as pa

    path = bench.scratch / "rows.arrow"
    write = write_dataset(bench, str(path), rows=bench.inputs.table_rows)

    def run() -> Work:
        rows = _dicts(bench)
        batch = pa.RecordBatch.from_pylist(list(itertools.islice(rows, bench.batch_rows)))
        with pa.ipc.new_file(path, batch.schema) as file:
            while batch.num_rows:
                file.write(batch)
                held = list(itertools.islice(rows, bench.batch_rows))
                batch = pa.RecordBatch.from_pylist(held, schema=batch.schema)
        return write()

    return run


def _write_numpy(bench: Bench, *, shuffle: bool) -> Measured:
    source = bench.scratch / "arrays.npy"
    write_arrays(source, ARRAYS)
    return write_dataset(bench, (str(source),), rows=ARRAYS, shuffle=shuffle)


def numpy_source_order(bench: Bench) -> Measured:
    """600 MB of arrays in source order."""
    return _write_numpy(bench, shuffle=False)


def numpy_shuffle(bench: Bench) -> Measured:
    """600 MB of arrays, shuffled."""
    return _write_numpy(bench, shuffle=True)


def sqlite(bench: Bench) -> Measured:
    """A table of a SQLite file, read in partitions and shuffled."""
    from databases import make_sqlite

    place = make_sqlite(bench.scratch / "trips.db", SQLITE_ROWS)
    return write_dataset(
        bench, (f"sqlite:///{place}",), rows=SQLITE_ROWS, source_options={"table": "trips"}
    )


def images(bench: Bench) -> Measured:
    """Pictures of 20 kB in class folders, shuffled, their headers checked."""
    from images import SIZES, make_pictures

    make_pictures(bench.scratch, PICTURES, SIZES[20])
    return write_dataset(bench, (str(bench.scratch),), rows=PICTURES)


def small_job(bench: Bench) -> Measured:
    """A CSV file of a thousand rows: the time is that of starting and publishing."""
    source = bench.scratch / "small.csv"
    with open(bench.inputs.csv[0], encoding="utf-8") as table:
        source.write_text("".join(itertools.islice(table, 1 + SMALL_ROWS)), encoding="utf-8")
    return write_dataset(bench, (str(source),), rows=SMALL_ROWS)


def of_dataset(
    bench: Bench, work: Callable[[str], int], *, tables: int | None = None, cold: bool = False
) -> Measured:
    """Write tables in source order as the preparation, and measure what gives the rows.

    The bytes are those of the shards. What is cold is on the disk, and not in the page cache.
    """
    import beam_tfrecord as bt

    dataset = str(bench.out / "dataset")
    bt.write(list(bench.inputs.parquet[:tables]), dataset, shuffle=False)
    shards = shards_of(dataset)
    if cold:
        forget(shards)
    size = sum(path.stat().st_size for path in shards)
    return lambda: Work(rows=work(dataset), output_bytes=size)


def _verify(bench: Bench, *, cold: bool = False) -> Measured:
    import beam_tfrecord as bt

    def run(dataset: str) -> int:
        found = bt.verify(dataset)
        if found.faults:
            raise RuntimeError(str(found.faults[0]))
        return len(bench.inputs.parquet) * bench.inputs.table_rows

    return of_dataset(bench, run, cold=cold)


def verify(bench: Bench) -> Measured:
    """Verify the dataset of all tables, which the page cache holds in part."""
    return _verify(bench)


def verify_cold(bench: Bench) -> Measured:
    """Verify the dataset of all tables, which the page cache was told to forget."""
    return _verify(bench, cold=True)


def load(bench: Bench) -> Measured:
    """Load the dataset of all tables into Arrow."""
    import beam_tfrecord as bt

    return of_dataset(bench, lambda dataset: int(bt.load(dataset).arrow().num_rows))


def load_tf(bench: Bench) -> Measured:
    """Read batches of the dataset of the first table as a `tf.data.Dataset`."""
    import tensorflow  # noqa: F401  (its import is not what is measured)

    import beam_tfrecord as bt

    def run(dataset: str) -> int:
        return sum(len(batch["i0"]) for batch in bt.load(dataset).tf(BATCH_ROWS))

    return of_dataset(bench, run, tables=1)


def load_torch(bench: Bench) -> Measured:
    """Read batches of the dataset of the first table as a PyTorch dataset."""
    import torch.utils.data  # noqa: F401

    import beam_tfrecord as bt

    def run(dataset: str) -> int:
        return sum(len(batch["i0"]) for batch in bt.load(dataset).torch(BATCH_ROWS))

    return of_dataset(bench, run, tables=1)


def kernel_encode(bench: Bench) -> Measured:
    """The kernel alone: batches in memory to framed records in one reused buffer."""
    import numpy as np
    import pyarrow.parquet as pq

    from beam_tfrecord import native

    batches = pq.read_table(bench.inputs.parquet[0]).to_batches(max_chunksize=bench.batch_rows)
    buffer = np.zeros(16 * max(batch.nbytes for batch in batches), np.uint8)
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
