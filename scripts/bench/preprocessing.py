"""Cases of preprocessing: by `write`, by tensorflow-transform alone, and by stock Beam.

Five z-scores, two vocabularies and two imputed columns on a table of ten. As in `baselines`, each
function prepares a case and returns what is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from ours import write_dataset
from tables import ROW_GROUP_ROWS
from work import Bench, Measured, Work, bytes_below

STEPS = ["impute=f0,f1", "zscore=f0,f1,f2,f3,i0", "vocabulary=s0", "vocabulary=s1:top_k=10000"]
STOCK_SHARDS = 8
FLOATS = ("f0", "f1", "f2", "f3")


def _with_gaps(source: str, folder: Path) -> str:
    """Write a table again without every tenth value of two columns."""
    table = pq.read_table(source)
    for index, name in enumerate(("f0", "f1")):
        missing = (np.arange(table.num_rows) + index) % 10 == 0
        column = pa.array(table[name].to_numpy(), mask=missing)
        table = table.set_column(table.schema.get_field_index(name), name, column)
    path = str(folder / "gaps.parquet")
    pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS)
    return path


def _tft_mappers(inputs: dict[str, Any]) -> dict[str, Any]:
    """Do with TFT's own mappers what the steps do."""
    import tensorflow as tf
    import tensorflow_transform as tft

    outputs = dict(inputs)
    for name in ("f0", "f1"):
        rows = tf.SparseTensor(
            inputs[name].indices, inputs[name].values, [inputs[name].dense_shape[0], 1]
        )
        filled = tf.squeeze(tf.sparse.to_dense(rows, tft.mean(inputs[name])), 1)
        outputs[name] = tft.scale_to_z_score(filled)
    for name in ("f2", "f3", "i0"):
        outputs[name] = tft.scale_to_z_score(inputs[name])
    for name, top_k in (("s0", None), ("s1", 10_000)):
        outputs[name] = tft.compute_and_apply_vocabulary(
            inputs[name], top_k=top_k, num_oov_buckets=1, vocab_filename=name
        )
    return outputs


def preprocess(bench: Bench) -> Measured:
    """The first table preprocessed and shuffled, with the fitted function beside the shards."""
    source = _with_gaps(bench.inputs.parquet[0], bench.scratch)
    return write_dataset(bench, source, rows=bench.inputs.table_rows, step=STEPS)


def _list_batches(path: str, batch_rows: int) -> Iterator[pa.RecordBatch]:
    for batch in pq.ParquetFile(path).iter_batches(batch_rows):
        columns = []
        for column in batch.columns:
            if pa.types.is_string(column.type):
                column = column.cast(pa.binary())
            counts = column.is_valid().cast(pa.int32()).to_numpy(zero_copy_only=False)
            offsets = pa.array([0, *counts.cumsum().tolist()], pa.int32())
            columns.append(pa.ListArray.from_arrays(offsets, column.drop_null()))
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def preprocess_tft_alone(bench: Bench) -> Measured:
    """TFT analyses and transforms Arrow batches of the same table; the result is thrown away."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    import beam_tfrecord as bt

    path = _with_gaps(bench.inputs.parquet[0], bench.scratch)
    schema = next(_list_batches(path, bench.batch_rows)).schema
    representations = {}
    for name in schema.names:
        representations[name] = schema_pb2.TensorRepresentation()
        representations[name].varlen_sparse_tensor.column_name = name
    config = TensorAdapterConfig(schema, representations)

    def run() -> Work:
        context = tft_beam.Context(temp_dir=str(bench.out), use_deep_copy_optimization=True)
        with bt.pipeline() as p, context:
            batches = p | beam.Create([path]) | beam.FlatMap(_list_batches, bench.batch_rows)
            transform_fn = (batches, config) | tft_beam.AnalyzeDataset(_tft_mappers)
            transform = tft_beam.TransformDataset(output_record_batches=True)
            (transformed, _) = ((batches, config), transform_fn) | transform
            _ = transformed | beam.Map(lambda pair: pair[0].num_rows) | beam.CombineGlobally(sum)
        return Work(rows=bench.inputs.table_rows, output_bytes=0)

    return run


def _example(row: dict[str, Any]) -> Any:
    import tensorflow as tf

    features = {}
    for name, values in row.items():
        listed = values if hasattr(values, "__len__") else [values]
        kind = "float_list" if name in FLOATS or name == "i0" else "int64_list"
        of = {"float_list": tf.train.FloatList, "int64_list": tf.train.Int64List}[kind]
        features[name] = tf.train.Feature(**{kind: of(value=listed)})
    return tf.train.Example(features=tf.train.Features(feature=features))


def preprocess_stock(bench: Bench) -> Measured:
    """The usual way, of fewer rows: dicts through TFT, an Example each, Beam's own sink."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    path = _with_gaps(bench.inputs.stock_parquet, bench.scratch)
    kinds = {pa.float32(): tf.float32, pa.int64(): tf.int64, pa.string(): tf.string}
    spec = {field.name: tf.io.VarLenFeature(kinds[field.type]) for field in pq.read_schema(path)}
    metadata = tft.DatasetMetadata.from_feature_spec(spec)

    def run() -> Work:
        context = tft_beam.Context(temp_dir=str(bench.scratch / "tmp"))
        with beam.Pipeline(runner="FnApiRunner") as p, context:
            rows = (
                p
                | beam.io.ReadFromParquet(path)
                | beam.Map(lambda row: {k: [] if v is None else [v] for k, v in row.items()})
            )
            analyze = tft_beam.AnalyzeAndTransformDataset(_tft_mappers)
            (transformed, _), _ = (rows, metadata) | analyze
            _ = (
                transformed
                | beam.Map(_example)
                | beam.Map(lambda example: example.SerializeToString())
                | beam.io.WriteToTFRecord(str(bench.out / "part"), num_shards=STOCK_SHARDS)
            )
        return Work(rows=bench.inputs.stock_rows, output_bytes=bytes_below(bench.out))

    return run
