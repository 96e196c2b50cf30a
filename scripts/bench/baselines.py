"""Cases of others with the same rows: stock Beam, tfx_bsl, TensorFlow alone.

Each function prepares a case and returns what is measured: a function without arguments that
does the work and returns how much that was. Imports belong to the preparation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ours import BATCH_ROWS, of_dataset
from work import Bench, Measured, Work, bytes_below, shards_of

STOCK_SHARDS = 8


def _stock(
    bench: Bench, *, options: list[str], function: Callable[..., Any] | None = None
) -> Measured:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from stock_example import to_example

    def run() -> Work:
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(options)) as pipeline:
            rows = pipeline | beam.io.ReadFromParquet(bench.inputs.stock_parquet)
            if function is not None:
                rows = rows | "Function" >> beam.Map(function)
            (
                rows
                | beam.Map(to_example)
                | beam.io.WriteToTFRecord(str(bench.out / "stock"), num_shards=STOCK_SHARDS)
            )
        return Work(rows=bench.inputs.stock_rows, output_bytes=bytes_below(bench.out))

    return run


def stock_beam(bench: Bench) -> Measured:
    """Stock Beam as it comes: Parquet to examples to eight shards, in one process."""
    return _stock(bench, options=[])


def stock_beam_processes(bench: Bench) -> Measured:
    """The same in as many worker processes as there are workers."""
    workers = f"--direct_num_workers={bench.workers}"
    return _stock(bench, options=[workers, "--direct_running_mode=multi_processing"])


def stock_beam_map(bench: Bench) -> Measured:
    """Stock Beam with a Python function per row before the encoding."""
    from user_map import rescale

    return _stock(bench, options=[], function=rescale)


def stock_beam_tfrecord(bench: Bench) -> Measured:
    """Stock Beam from TFRecord to TFRecord, with a Reshuffle between them."""
    import apache_beam as beam
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    import beam_tfrecord as bt

    dataset = bench.scratch / "dataset"
    bt.write(bench.inputs.stock_parquet, dataset)

    def run() -> Work:
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            (
                pipeline
                | beam.io.ReadFromTFRecord(f"{dataset}/*.tfrecord")
                | beam.Reshuffle()
                | beam.io.WriteToTFRecord(str(bench.out / "stock"), num_shards=STOCK_SHARDS)
            )
        return Work(rows=bench.inputs.stock_rows, output_bytes=bytes_below(bench.out))

    return run


def tfx_bsl_encode(bench: Bench) -> Measured:
    """The C++ encoder of tfx_bsl on batches in memory; nothing is framed or written."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    def as_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets = pa.array(range(batch.num_rows + 1), pa.int32())
        values = [
            column.cast(pa.binary()) if pa.types.is_string(column.type) else column
            for column in batch.columns
        ]
        lists = [pa.ListArray.from_arrays(offsets, column) for column in values]
        return pa.RecordBatch.from_arrays(lists, names=batch.schema.names)

    table = pq.read_table(bench.inputs.stock_parquet)
    batches = [as_lists(batch) for batch in table.to_batches(max_chunksize=bench.batch_rows)]

    def run() -> Work:
        encoder = RecordBatchToExamplesEncoder()
        size = sum(len(example) for batch in batches for example in encoder.encode(batch))
        return Work(rows=table.num_rows, output_bytes=size)

    return run


def load_by_hand(bench: Bench) -> Measured:
    """Read the dataset of the first table by TensorFlow alone, interleaved, batched, prefetched."""
    import tensorflow as tf

    import beam_tfrecord as bt

    def run(dataset: str) -> int:
        spec = bt.load(dataset).schema.feature_spec()
        files = tf.data.Dataset.from_tensor_slices([str(path) for path in shards_of(dataset)])
        batches = (
            files.interleave(
                lambda path: tf.data.TFRecordDataset(path, buffer_size=8 * 2**20),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=False,
            )
            .batch(BATCH_ROWS)
            .map(lambda batch: tf.io.parse_example(batch, spec), tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE)
        )
        return sum(len(batch["i0"]) for batch in batches)

    return of_dataset(bench, run, tables=1)


def tf_writer_loop(bench: Bench) -> Measured:
    """A plain loop over `tf.io.TFRecordWriter`, as tutorials show it."""
    import pyarrow.parquet as pq
    import tensorflow as tf
    from stock_example import to_example

    def run() -> Work:
        count = 0
        with tf.io.TFRecordWriter(str(bench.out / "loop.tfrecord")) as writer:
            for batch in pq.ParquetFile(bench.inputs.stock_parquet).iter_batches():
                for row in batch.to_pylist():
                    writer.write(to_example(row))
                    count += 1
        return Work(rows=count, output_bytes=bytes_below(bench.out))

    return run
