"""Preprocessing by `write` beside what tensorflow-transform takes alone, and beside stock Beam.

    .venv/bin/python scripts/bench/tft.py --rows 1000000

Five z-scores, two vocabularies and two imputed columns on a table of ten. Every run is a process
of its own, the cases take turns, and the medians are held against the bars: at least 5 times the
rows a second of the stock way, at most 1.4 times the time of TFT's own analyse and transform.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from saving import describe_machine, save
from tables import make_table

STEPS = [
    "impute=f0,f1",
    "zscore=f0,f1,f2,f3,i0",
    "vocabulary=s0",
    "vocabulary=s1:top_k=10000",
]
STOCK_SHARE = 20
BATCH_ROWS = 16_384
FLOATS, WORDS = ("f0", "f1", "f2", "f3"), ("s0", "s1")


def make_input(place: Path, rows: int) -> None:
    """Write the table, with every tenth value of two columns missing."""
    table = make_table(rows, seed=0)
    for index, name in enumerate(("f0", "f1")):
        missing = [(row + index) % 10 == 0 for row in range(rows)]
        column = pa.array(table[name].to_numpy(), mask=pa.array(missing).to_numpy(False))
        table = table.set_column(table.schema.get_field_index(name), name, column)
    pq.write_table(table, place / "in.parquet", row_group_size=100_000)
    pq.write_table(table.slice(0, rows // STOCK_SHARE), place / "few.parquet")


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
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


def ours(place: Path, out: Path) -> int:
    """Write the dataset: shuffled, sharded, with the fitted function beside it."""
    import beam_tfrecord as bt

    return bt.write(place / "in.parquet", out / "data", step=STEPS).examples


def _list_batches(path: str) -> Iterator[pa.RecordBatch]:
    for batch in pq.ParquetFile(path).iter_batches(BATCH_ROWS):
        columns = []
        for column in batch.columns:
            if pa.types.is_string(column.type):
                column = column.cast(pa.binary())
            counts = column.is_valid().cast(pa.int32()).to_numpy(zero_copy_only=False)
            offsets = pa.array([0, *counts.cumsum().tolist()], pa.int32())
            columns.append(pa.ListArray.from_arrays(offsets, column.drop_null()))
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def tft_alone(place: Path, out: Path) -> int:
    """Let TFT analyse and transform Arrow batches, and throw the result away."""
    import apache_beam as beam
    import tensorflow_transform.beam as tft_beam
    from tensorflow_metadata.proto.v0 import schema_pb2
    from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

    import beam_tfrecord as bt

    path = str(place / "in.parquet")
    first = next(_list_batches(path))
    representations = {}
    for name in first.schema.names:
        representations[name] = schema_pb2.TensorRepresentation()
        representations[name].varlen_sparse_tensor.column_name = name
    config = TensorAdapterConfig(first.schema, representations)
    with bt.pipeline() as p, tft_beam.Context(temp_dir=str(out), use_deep_copy_optimization=True):
        batches = p | beam.Create([path]) | beam.FlatMap(_list_batches)
        transform_fn = (batches, config) | tft_beam.AnalyzeDataset(preprocess)
        transform = tft_beam.TransformDataset(output_record_batches=True)
        (transformed, _) = ((batches, config), transform_fn) | transform
        _ = transformed | beam.Map(lambda pair: pair[0].num_rows) | beam.CombineGlobally(sum)
    return int(pq.read_metadata(path).num_rows)


def _example(row: dict[str, Any]) -> Any:
    import tensorflow as tf

    features = {}
    for name, values in row.items():
        listed = values if hasattr(values, "__len__") else [values]
        kind = "float_list" if name in FLOATS or name == "i0" else "int64_list"
        of = {"float_list": tf.train.FloatList, "int64_list": tf.train.Int64List}[kind]
        features[name] = tf.train.Feature(**{kind: of(value=listed)})
    return tf.train.Example(features=tf.train.Features(feature=features))


def stock(place: Path, out: Path) -> int:
    """Do it the usual way: dicts through TFT, an Example each, Beam's own sink; fewer rows."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform as tft
    import tensorflow_transform.beam as tft_beam

    path = str(place / "few.parquet")
    schema = pq.read_schema(path)
    kinds = {pa.float32(): tf.float32, pa.int64(): tf.int64, pa.string(): tf.string}
    spec = {field.name: tf.io.VarLenFeature(kinds[field.type]) for field in schema}
    metadata = tft.DatasetMetadata.from_feature_spec(spec)
    with beam.Pipeline(runner="FnApiRunner") as p, tft_beam.Context(temp_dir=str(out / "tmp")):
        rows = (
            p
            | beam.io.ReadFromParquet(path)
            | beam.Map(lambda row: {k: [] if v is None else [v] for k, v in row.items()})
        )
        (transformed, _), _ = (rows, metadata) | tft_beam.AnalyzeAndTransformDataset(preprocess)
        _ = (
            transformed
            | beam.Map(_example)
            | beam.Map(lambda example: example.SerializeToString())
            | beam.io.WriteToTFRecord(str(out / "part"), num_shards=8)
        )
    return int(pq.read_metadata(path).num_rows)


CASES: dict[str, Callable[[Path, Path], int]] = {
    "ours": ours,
    "tft_alone": tft_alone,
    "stock": stock,
}


def _run_here(name: str, place: Path) -> None:
    # Its import is no part of any of the ways.
    import tensorflow_transform.beam  # noqa: F401

    with tempfile.TemporaryDirectory(dir=place) as out:
        began_s = time.perf_counter()
        rows = CASES[name](place, Path(out))
        seconds = time.perf_counter() - began_s
    print(json.dumps({"rows": rows, "seconds": seconds}))


def _measured(place: Path, repeat: int) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds, and rows a second, of every run of every case."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for _ in range(repeat):
        for name in CASES:
            words = [sys.executable, "-W", "ignore", __file__, "--run-here", name, str(place)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{name}: {done.stderr[-2000:]}")
            found = json.loads(done.stdout.splitlines()[-1])
            runs[name].append((found["seconds"], found["rows"] / found["seconds"]))
            print(f"{name}: {found['seconds']:.1f} s", file=sys.stderr)
    return runs


def main() -> None:
    """Run the cases in turn, and print what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--run-here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run_here:
        name, place = options.run_here
        _run_here(name, Path(place))
        return
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-bench-", dir="/var/tmp") as place:
        make_input(Path(place), options.rows)
        runs = _measured(Path(place), options.repeat)
    machine = describe_machine(Path(tempfile.gettempdir()), None)
    save("tft", {"rows": options.rows, "machine": machine, "seconds_and_rows_per_s": runs})
    found = {
        name: (statistics.median(s for s, _ in of), statistics.median(r for _, r in of))
        for name, of in runs.items()
    }
    for name, (seconds, rate) in found.items():
        print(f"{name:10} {seconds:8.1f} s {rate:12,.0f} rows/s")
    print(f"rows/s of ours to stock: {found['ours'][1] / found['stock'][1]:.1f} (at least 5)")
    print(f"time of ours to TFT's: {found['ours'][0] / found['tft_alone'][0]:.2f} (at most 1.4)")


if __name__ == "__main__":
    main()
