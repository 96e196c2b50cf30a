"""A user's own Python function in a pipeline of ours, in plain processes, and in stock Beam.

As in `ours`, each function of `WAYS` prepares a case and returns what is measured. Plain processes
are the limit: as many as there are cores, each of which reads its share of the input, calls the
function, and writes the records to one file, in the order of the input and without anything else.
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from work import Measured, Work, bytes_below

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 16_384
BATCH_IMAGES = 64
SHARDS = 4
READY_SECONDS = 120
CASES = {
    "examples_dofn": "a DoFn that builds a tf.train.Example of six features",
    "map_rows": "MapRows, a function without types in its return hint",
    "map_rows_hint": "MapRows, the same function with a TypedDict as its return hint",
    "map_batches": "MapBatches, the same in PyArrow's functions of columns",
    "images_resize": "ReadFromImages with resize",
}


@dataclasses.dataclass(frozen=True)
class Job:
    """What one process measures.

    Attributes:
        case: One of `CASES`.
        way: One of `WAYS`.
        inputs: Glob of Parquet files, or a directory of pictures.
        rows: How many rows or pictures that is.
        resize: Size of the pictures that come out, as the option of the source.
        processes: How many plain processes are the limit.
        workers: Passed to our pipeline if it is not None.
    """

    case: str
    way: str
    inputs: str
    rows: int
    resize: str
    processes: int
    workers: int | None = None


def _ours(job: Job, out: Path) -> Callable[[], object]:
    """Our pipeline as a user writes it, with its defaults."""
    import apache_beam as beam
    import user_map

    import beam_tfrecord as bt

    target, sink = f"{out}/", dict[str, Any]()
    if job.case == "examples_dofn":
        from example_dofn import SixFeatures

        # The first page's pipeline gives the sink arguments of Beam's.
        target, sink = f"{out}/part", {"num_shards": SHARDS}
    function: dict[str, Callable[[], Any]] = {
        "examples_dofn": lambda: bt.ToRows() | beam.ParDo(SixFeatures()),
        "map_rows": lambda: bt.MapRows(user_map.enrich),
        "map_rows_hint": lambda: bt.MapRows(user_map.enrich_hinted),
        "map_batches": lambda: bt.MapBatches(user_map.enrich_batch),
    }
    workers: dict[str, Any] = {} if job.workers is None else {"workers": job.workers}
    if not workers.keys() <= inspect.signature(bt.pipeline).parameters.keys():
        raise RuntimeError("bt.pipeline has no argument workers")

    def run() -> None:
        with bt.pipeline("direct", **workers) as pipeline:
            if job.case == "images_resize":
                batches = pipeline | bt.ReadFromImages(job.inputs, resize=job.resize)
            else:
                batches = pipeline | bt.ReadFromParquet(job.inputs) | function[job.case]()
            batches | bt.WriteToTFRecord(target, **sink)

    return run


def image_row(path: str, resize: str) -> dict[str, Any]:
    """Return an image resized by the functions that our source calls, and most of its columns."""
    from beam_tfrecord.images.decode import Transform, transformed
    from beam_tfrecord.images.headers import MAX_PIXELS, describe

    data = Path(path).read_bytes()
    header = describe(data)
    sha256 = hashlib.sha256(data).hexdigest()
    stored, header, (width, height) = transformed(
        data, header, Transform(resize=resize), max_pixels=MAX_PIXELS
    )
    return {
        "image": stored,
        "label": int(os.path.basename(os.path.dirname(path)).removeprefix("class")),
        "width": header.width,
        "height": header.height,
        "channels": header.channels,
        "format": header.format,
        "original_width": width,
        "original_height": height,
        "path": path,
        "sha256": sha256,
    }


def image_paths(inputs: str) -> list[str]:
    """Return the paths of all pictures of a directory."""
    return sorted(glob.glob(f"{inputs}/*/*.jpg"))


def _batches(job: Job, part: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of every so many-th row group, beginning with number `part`."""
    import pyarrow.parquet as pq

    files = [pq.ParquetFile(path) for path in sorted(glob.glob(job.inputs))]
    units = [(file, group) for file in files for group in range(file.num_row_groups)]
    for file, group in units[part :: job.processes]:
        yield from file.iter_batches(BATCH_ROWS, row_groups=[group], use_threads=False)


def _results(job: Job, part: int) -> Callable[[], Iterator[pa.RecordBatch | pa.Array]]:
    """Return what yields the results of the function: columns, or the bytes of examples."""
    import pyarrow as pa

    if job.case == "images_resize":
        paths = image_paths(job.inputs)[part :: job.processes]
        return lambda: (
            pa.RecordBatch.from_pylist([image_row(path, job.resize) for path in some])
            for some in (
                paths[start : start + BATCH_IMAGES] for start in range(0, len(paths), BATCH_IMAGES)
            )
        )
    if job.case == "examples_dofn":
        from stock_example import six_features

        return lambda: (
            pa.array([six_features(row).SerializeToString() for row in batch.to_pylist()])
            for batch in _batches(job, part)
        )
    from user_map import enrich, enrich_batch

    if job.case == "map_batches":
        return lambda: map(enrich_batch, _batches(job, part))
    return lambda: (
        pa.RecordBatch.from_pylist(list(map(enrich, batch.to_pylist())))
        for batch in _batches(job, part)
    )


def _write_framed(results: Iterator[pa.RecordBatch | pa.Array], file: BinaryIO) -> int:
    """Write results by the kernel, which frames faster than TensorFlow's writer; count them."""
    import numpy as np
    import pyarrow as pa

    from beam_tfrecord import native

    buffer, rows = np.empty(0, np.uint8), 0
    for result in results:
        is_bytes = isinstance(result, pa.Array)
        bound = native.frame_bound(result) if is_bytes else 16 * result.nbytes
        if bound > len(buffer):
            buffer = np.empty(2 * bound, np.uint8)
        starts, numbers = np.empty((2, len(result)), np.int64)
        if is_bytes:
            size = native.frame(result, buffer, 0, starts)
        else:
            size = native.encode(result, buffer, 0, starts, numbers).size
        file.write(buffer[:size].data)
        rows += len(result)
    return rows


def _share(job: Job, part: int, out: Path, ready: Any, rows: Any) -> None:
    """Do the work of one plain process."""
    results = _results(job, part)
    ready.wait()
    with (out / f"part-{part}").open("wb", buffering=0) as file:
        rows.put(_write_framed(results(), file))


def _limit(job: Job, out: Path) -> Callable[[], object]:
    """As many plain processes as cores, whose imports are not measured."""
    # A fork of this process would depend on what is imported here.
    context = multiprocessing.get_context("spawn")
    ready, rows = context.Barrier(job.processes + 1), context.SimpleQueue()
    processes = [
        context.Process(target=_share, args=(job, part, out, ready, rows), daemon=True)
        for part in range(job.processes)
    ]
    for process in processes:
        process.start()

    def run() -> None:
        for process in processes:
            process.join()
            if process.exitcode:
                raise RuntimeError(f"a plain process ended with {process.exitcode}")
        if (written := sum(rows.get() for _ in processes)) != job.rows:
            raise RuntimeError(f"the plain processes wrote {written} of {job.rows} rows")

    ready.wait(READY_SECONDS)
    return run


def _stock(job: Job, out: Path) -> Callable[[], object]:
    """Stock Beam as it comes, in one process."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from example_dofn import SixFeatures
    from stock_example import to_example
    from user_map import enrich, enrich_batch

    def run() -> None:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            if job.case == "images_resize":
                paths = pipeline | beam.Create(image_paths(job.inputs)) | beam.Reshuffle()
                rows = paths | "Function" >> beam.Map(image_row, job.resize)
            elif job.case == "map_batches":
                tables = pipeline | beam.io.ReadFromParquetBatched(job.inputs)
                batches = tables | beam.FlatMap(lambda table: table.to_batches())
                rows = batches | beam.Map(enrich_batch) | beam.FlatMap(lambda it: it.to_pylist())
            else:
                rows = pipeline | beam.io.ReadFromParquet(job.inputs)
                if job.case != "examples_dofn":
                    rows = rows | "Function" >> beam.Map(enrich)
            if job.case == "examples_dofn":
                examples = rows | beam.ParDo(SixFeatures())
                records = examples | beam.Map(lambda example: example.SerializeToString())
            else:
                records = rows | beam.Map(to_example)
            records | beam.io.WriteToTFRecord(f"{out}/part", num_shards=SHARDS)

    return run


WAYS: dict[str, Callable[[Job, Path], Callable[[], object]]] = {
    "ours": _ours,
    "limit": _limit,
    "stock": _stock,
    "one_worker": _ours,
}


def prepare(job: Job, out: Path) -> Measured:
    """Return what is measured of a job, which writes to an empty directory."""
    run = WAYS[job.way](job, out)

    def measured() -> Work:
        run()
        return Work(rows=job.rows, output_bytes=bytes_below(out))

    return measured
