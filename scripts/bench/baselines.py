"""Cases of others with the same rows: tfx_bsl and TensorFlow alone; `peers.py` has writers.

Each function prepares a case and returns what is measured: a function without arguments that
does the work and returns how much that was. Imports belong to the preparation.
"""

from __future__ import annotations

from ours import BATCH_ROWS, of_dataset
from work import Bench, Measured, Work, shards_of


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
