"""Writes rows or images by one tool, as its documentation shows: `peer_jobs.py TOOL KIND FROM TO`.

Run by the Python of the tool's own environment. KIND is rows (FROM is a directory of Parquet files)
or images (one of JPEG files in directories of classes); TO is an empty directory. `peers.py`
measures it.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CORES = os.cpu_count() or 1
Row = dict[str, Any]


def _files(kind: str, source: str) -> list[str]:
    return sorted(glob.glob(f"{source}/*.parquet" if kind == "rows" else f"{source}/*/*.jpg"))


def _image(path: str) -> Row:
    return {"image": Path(path).read_bytes(), "label": os.path.basename(os.path.dirname(path))}


def _rows(kind: str, files: list[str]) -> Iterator[Row]:
    """Yield what a tool without a reader of its own is given."""
    if kind == "images":
        yield from map(_image, files)
        return
    import pyarrow.parquet as pq

    for path in files:
        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()


def _to_example() -> Any:
    import apache_beam as beam
    from stock_example import to_example

    class ToExample(beam.DoFn):
        def process(self, row: Row) -> Iterator[bytes]:
            yield to_example(row)

    return beam.ParDo(ToExample())


def _images_in_beam(files: list[str]) -> Any:
    import apache_beam as beam

    return beam.Create(files) | beam.Reshuffle() | beam.Map(_image)


def ours_dofn(kind: str, source: str, out: str) -> None:
    """Ours with a DoFn of the user that builds examples."""
    import beam_tfrecord as bt

    read = _images_in_beam(_files(kind, source)) if kind == "images" else None
    with bt.pipeline() as pipeline:
        rows = pipeline | (read or bt.ReadFromParquet(source) | bt.ToRows())
        rows | _to_example() | bt.WriteToTFRecord(f"{out}/")


def stock(kind: str, source: str, out: str) -> None:
    """Stock Beam with the same DoFn, by the runner that it takes of itself."""
    import apache_beam as beam

    read = _images_in_beam(_files(kind, source)) if kind == "images" else None
    with beam.Pipeline() as pipeline:
        rows = pipeline | (read or beam.io.ReadFromParquet(f"{source}/*.parquet"))
        rows | _to_example() | beam.io.WriteToTFRecord(f"{out}/part")


def tfds(kind: str, source: str, out: str) -> None:
    """A builder of TFDS whose generator is a Beam pipeline."""
    import apache_beam as beam
    import numpy as np
    import tensorflow_datasets as tf_datasets
    from tensorflow_datasets.core import features as types

    files = _files(kind, source)
    found = {
        "image": types.Image(encoding_format="jpeg"),
        "label": types.ClassLabel(names=sorted({Path(path).parent.name for path in files})),
        "path": types.Text(),
    }
    if kind == "rows":
        known = {int: np.int64, float: np.float32, str: np.str_}
        first = next(_rows(kind, files))
        found = {k: types.Scalar(known[type(v)], optional=k == "f3") for k, v in first.items()}

    class Peer(tf_datasets.core.GeneratorBasedBuilder):
        VERSION = tf_datasets.core.Version("1.0.0")

        def _info(self) -> Any:
            return tf_datasets.core.DatasetInfo(
                builder=self, features=types.FeaturesDict(found), supervised_keys=None
            )

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples()}

        def _generate_examples(self) -> Any:
            if kind == "rows":
                read = beam.io.ReadFromParquet(f"{source}/*.parquet")
                return read | beam.Map(lambda row: (row["i0"], row))

            def example(path: str) -> Any:
                return path, {"image": path, "label": Path(path).parent.name, "path": path}

            return beam.Create(files) | beam.Map(example)

    config = tf_datasets.core.download.DownloadConfig(beam_runner="DirectRunner")
    Peer(data_dir=out).download_and_prepare(download_config=config)


def ray(kind: str, source: str, out: str) -> None:
    """Ray Data."""
    import ray.data

    if kind == "rows":
        data = ray.data.read_parquet(source)
    else:
        data = ray.data.read_binary_files(_files(kind, source), include_paths=True)
    data.write_tfrecords(out)


def _session() -> Any:
    from pyspark.sql import SparkSession

    jars = ",".join(glob.glob(f"{sys.prefix}/jars/*.jar"))
    return SparkSession.builder.config("spark.jars", jars).getOrCreate()


def spark(kind: str, source: str, out: str) -> None:
    """Spark with LinkedIn's writer; no Python per row."""
    session = _session()
    if kind == "rows":
        rows = session.read.parquet(source)
    else:
        files = session.read.format("binaryFile").load(f"{source}/*/*.jpg")
        label = "regexp_extract(path, '([^/]+)/[^/]+$', 1) as label"
        rows = files.selectExpr("content as image", label)
    rows.write.format("tfrecord").save(f"{out}/data")
    session.stop()


def spark_python(kind: str, source: str, out: str) -> None:
    """Spark with TensorFlow's output format for Hadoop; Python builds the examples."""
    from stock_example import to_example

    session = _session()
    if kind == "rows":
        rows = session.read.parquet(source).rdd.map(lambda row: row.asDict())
    else:
        rows = session.sparkContext.parallelize(_files(kind, source), 4 * CORES).map(_image)
    rows.map(lambda row: (bytearray(to_example(row)), None)).saveAsNewAPIHadoopFile(
        f"{out}/data",
        "org.tensorflow.hadoop.io.TFRecordFileOutputFormat",
        keyClass="org.apache.hadoop.io.BytesWritable",
        valueClass="org.apache.hadoop.io.NullWritable",
    )
    session.stop()


def tf_loop(kind: str, source: str, out: str) -> None:
    """A loop over `tf.io.TFRecordWriter`, as tutorials show it."""
    import tensorflow as tf
    from stock_example import to_example

    with tf.io.TFRecordWriter(f"{out}/all.tfrecord") as writer:
        for row in _rows(kind, _files(kind, source)):
            writer.write(to_example(row))


def hf(kind: str, source: str, out: str) -> None:
    """Datasets of Hugging Face, to Parquet."""
    from datasets import load_dataset
    from datasets.table import embed_table_storage

    builder = "parquet" if kind == "rows" else "imagefolder"
    data = load_dataset(builder, data_dir=source, split="train")
    if kind == "images":  # of which there are only the paths yet
        data = data.with_format("arrow").map(embed_table_storage, batched=True)
    data.to_parquet(f"{out}/all.parquet")


def mds(kind: str, source: str, out: str) -> None:
    """MosaicML's writer of MDS shards; it knows no nulls, so NaN stands for them."""
    from streaming import MDSWriter

    rows = _rows(kind, _files(kind, source))
    types = {int: "int64", float: "float32", str: "str", bytes: "bytes"}
    first = next(rows)
    columns = {name: types[type(value)] for name, value in first.items()}
    with MDSWriter(out=out, columns=columns, hashes=["xxh64"]) as writer:
        writer.write(first)
        for row in rows:
            writer.write({k: float("nan") if v is None else v for k, v in row.items()})


def _litdata_rows(task: tuple[str, list[str]]) -> Iterator[Row]:
    for row in _rows(*task):
        yield {k: float("nan") if v is None else v for k, v in row.items()}


def litdata(kind: str, source: str, out: str) -> None:
    """`optimize` of litdata; NaN stands for nulls."""
    from litdata import optimize

    files = _files(kind, source)
    tasks = [(kind, files[start : start + 500]) for start in range(0, len(files), 500)]
    if kind == "rows":
        tasks = [(kind, [path]) for path in files]
    optimize(_litdata_rows, tasks, output_dir=out, chunk_bytes="64MB", num_workers=CORES)


def img2dataset(kind: str, source: str, out: str) -> None:
    """The same of local files, whose bytes are kept, to WebDataset."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from img2dataset import download

    files = _files(kind, source)
    labels = [Path(path).parent.name for path in files]
    urls = {"url": [f"file://{path}" for path in files], "label": labels}
    pq.write_table(pa.table(urls), f"{out}/urls.parquet")
    download(
        url_list=f"{out}/urls.parquet",
        input_format="parquet",
        save_additional_columns=["label"],
        output_folder=f"{out}/data",
        output_format="webdataset",
        resize_mode="no",
        skip_reencode=True,
        processes_count=CORES,
    )


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
