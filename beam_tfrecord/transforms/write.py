"""`WriteToTFRecord` writes the elements of a pipeline as TFRecords, `ExtractToParquet` as Parquet.

The Parquet files of `ExtractToParquet` and their manifest are a *stage*: a copy of the rows, with
their Arrow types, that later jobs read in place of the source.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange.write_steps import EXCHANGES, write_files
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import (
    SPLIT_TWICE,
    Layout,
    ShardNames,
    as_columns,
    make_shard_spec,
    parse_compression,
    refuse_counted,
    shard_suffix,
)
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.rejects import parse_budget
from beam_tfrecord.format.sort_keys import Lineage
from beam_tfrecord.job_state.checkpoints import Done
from beam_tfrecord.job_state.job import Job, Target, check_free, directory_target, sink_target
from beam_tfrecord.publish.last_step import publish_once
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.rows.beam import in_one_window
from beam_tfrecord.runners import traits_of
from beam_tfrecord.selection.select import make_splits
from beam_tfrecord.transforms.kept_rows import keep_rows_in
from beam_tfrecord.transforms.rows import batches_of
from beam_tfrecord.transforms.steps import Sink, has_splits, step_paths_to


class WriteToTFRecord(Sink):
    """Write elements to a sharded TFRecord dataset, and return the paths of its files.

    The input is a bounded PCollection of `Batch`, dict, NamedTuple, dataclass, `beam.Row`,
    `tf.train.Example` or bytes (serialized examples, written unchanged).

    A Flatten may join rows of several readers, or of several row functions after one reader. Each
    of these is an input of its own: its rows are shuffled independently of the others, and in
    source order the inputs follow each other as in the Flatten. Rows that pass through your own
    code as `Batch`es belong to the input that they come from. Elements that are not a `Batch` of a
    reader have no order in Beam: with ``shuffle=False`` they are sorted by the hashes of their
    bytes, so every execution of the pipeline writes the same order.

    Windows have no influence: all rows of bounded input form one dataset, and an element of several
    sliding windows is written once for each, as by Beam's own sink.

    If `AssignSplits` assigned rows to splits, they are written to these. Rows that lost their
    split, such as those of `ToRows`, are refused. Rows with a split are also refused together with
    `splits`, `split_column` or `group`, even if the split is equal, and together with rows that
    have no split.

    Until the last step, the dataset lies in a hidden directory ``.tmp-…`` at the target. The last
    step takes the lease of the directory to publish it; if another job publishes there, it waits up
    to a minute. A pipeline that dies leaves its hidden directory. Other pipelines do not remove it,
    because they cannot know that it died; the next `beam_tfrecord.write` to the directory does.

    Args:
        file_path_prefix: Directory of the dataset, if it ends in ``/`` or is a directory. Other
            paths are file prefixes as in Beam; the manifest is then ``<prefix>-manifest.json``.
        coder: Coder that encodes each element as the bytes of a record, as in Beam; None means that
            this class encodes elements as examples.
        file_name_suffix: End of each file name; by default ``.tfrecord`` (``.tfrecord.gz`` with
            gzip) in a directory, and nothing after a file prefix.
        num_shards: Number of shards; 0 means that `shard_size` decides.
        shard_name_template: Pattern of the shard's number in file names, as in Beam; by default
            ``-SSSSS-of-NNNNN``.
        compression_type: ``none``, ``gzip``, or Beam's `CompressionTypes` AUTO (by suffix),
            UNCOMPRESSED or GZIP.
        schema: Schema to enforce; None means that of the data.
        splits: Shares by name, such as ``{"train": .9, "test": .1}``, or conditions in SQL and
            ``rest`` for the last split; needs a directory.
        split_column: Column that names each row's split.
        group: Columns whose equal values share a split; without it, equal examples do.
        key: Columns whose values decide the order.
        shards: Number of shards of all splits, or of each: ``{"train": 64, "test": 8}``.
        shard_size: Bytes of a shard before compression, such as ``"128MB"``.
        shuffle: False keeps the order of the source, if it has one.
        dedup: Leave out rows that are exact copies of another one of their split.
        seed: Seed of the order and of the splits.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace a dataset at the target.
        append: Add the rows to the dataset at the target, as one more generation. Schema, splits,
            order, seed and compression have to be those of the dataset. Each run adds its rows: the
            function `beam_tfrecord.append` knows which files it has appended.
        exchange: How records travel to their shards: through ``files``, or through the shuffle of
            the ``runner``; None means the usual one of the pipeline's runner.

    Raises:
        UsageError: The arguments do not fit together, or the elements cannot be written.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromCsv("penguins.csv") | bt.WriteToTFRecord("out/", num_shards=4)
    """

    def __init__(
        self,
        file_path_prefix: str | os.PathLike[str],
        coder: beam.coders.Coder | None = None,
        file_name_suffix: str | None = None,
        num_shards: int = 0,
        shard_name_template: str | None = None,
        compression_type: str = "auto",
        *,
        schema: Schema | pa.Schema | None = None,
        splits: Mapping[str, float | str] | str | None = None,
        split_column: str | None = None,
        group: Sequence[str] | str = (),
        key: Sequence[str] | str = (),
        shards: int | str | Mapping[str, int] | None = None,
        shard_size: int | str | None = None,
        shuffle: bool = True,
        dedup: bool = False,
        seed: int | None = 0,
        max_rejects: int | str = 0,
        overwrite: bool = False,
        append: bool = False,
        exchange: str | None = None,
    ) -> None:
        super().__init__()
        self.target = target = sink_target(file_path_prefix)
        appends_to = ""
        if append:
            if overwrite or dedup:
                raise UsageError("append keeps all rows: leave out overwrite and dedup")
            appends_to = Manifest.load(target.manifest).origin
        else:
            check_free(target, overwrite=overwrite)
        if target.prefix is not None and (splits or split_column):
            raise _needs_directory(target)
        if exchange is not None and exchange not in EXCHANGES:
            raise UsageError(f"exchange {exchange!r} is not files or runner")
        compression, suffix = _compression_and_suffix(target, compression_type, file_name_suffix)
        names = ShardNames(
            suffix,
            target.prefix,
            "-SSSSS-of-NNNNN" if shard_name_template is None else shard_name_template,
        )
        if "S" not in names.template and num_shards != 1:
            raise UsageError(
                f"shard name template {names.template!r} has no S for the shard's number: "
                "add one, or pass num_shards=1"
            )
        if num_shards and shards:
            raise UsageError("num_shards and shards exclude each other: give one")
        layout = Layout(
            splits=refuse_counted(make_splits(splits, column=split_column, group=group)),
            shards=make_shard_spec(num_shards or shards, shard_size),
            shuffle=shuffle,
            key=as_columns(key),
            seed=check_seed(seed),
            compression=compression,
            names=names,
            dedup=dedup,
        )
        if splits:
            layout.shards.check(layout.splits.filled_names)
        self._coder = coder
        self._job = Job(
            target=target,
            layout=layout,
            directory=target.temporary(uuid.uuid4().hex[:12]),
            schema=Schema.from_arrow(schema) if isinstance(schema, pa.Schema) else schema,
            budget=parse_budget(max_rejects),
            overwrite=overwrite,
            appends_to=appends_to,
            info={"runner": "beam"},
        )
        self._exchange = exchange

    def expand(self, elements: beam.PCollection) -> beam.PCollection[str]:
        """Add the steps that write and publish the dataset to the pipeline."""
        self.check_elements(elements)
        splits, have_splits = self._job.layout.splits, has_splits(elements)
        if have_splits and self.target.prefix is not None:
            raise _needs_directory(self.target)
        if have_splits and splits.are_given:
            # Rows that were taken out of batches may name their split in a column.
            if splits.column is None:
                raise UsageError(SPLIT_TWICE)
            have_splits = False
        examples: Literal["own", "any"] = "own" if self._coder is None else "any"
        inputs = Lineage(step_paths_to(elements), have_splits, examples)
        fitted = getattr(elements, "beam_tfrecord_fitted", None)
        exchange = self._exchange or traits_of(type(elements.pipeline.runner).__name__).exchange
        job = dataclasses.replace(self._job, fitted=fitted, inputs=inputs, exchange=exchange)
        keep_rows_in(elements, job.directory)
        batches = batches_of(in_one_window(elements), self._coder, job.schema, job.directory)
        return write_batches(batches, job)


def _needs_directory(target: Target) -> UsageError:
    return UsageError(f"splits need a directory: write to '{target.output}/' instead")


def _compression_and_suffix(
    target: Target, compression_type: str | None, suffix: str | None
) -> tuple[str, str]:
    auto = (compression_type or "auto").lower() == "auto"
    if auto:
        compression = "GZIP" if (suffix or "").endswith(".gz") else ""
    else:
        compression = parse_compression(compression_type)
    if suffix is None:
        suffix = shard_suffix(compression) if target.prefix is None else ""
    return compression, suffix


def write_batches(
    batches: Sequence[beam.PCollection[Batch]], job: Job, done: beam.PCollection[Done] | None = None
) -> beam.PCollection[str]:
    """Write batches as one dataset or stage; return the paths of its files."""
    return publish_once(batches[0].pipeline, job, write_files(batches, job, done))


def stage_job(target: Target, directory: str, **fields: Any) -> Job:
    """Return a job that writes a stage; `fields` are further fields of `Job`."""
    layout = Layout(shuffle=False)
    return Job(target, directory, "stage", layout, is_one_pass=True, **fields)


class ExtractToParquet(Sink):
    """Write rows as a stage, and return the paths of its files.

    A stage is a directory of Parquet files with a manifest; it keeps the Arrow types of the rows.
    `ReadFromParquet`, `load` and `write` read it. The input is a bounded PCollection of `Batch`,
    dict, NamedTuple or `beam.Row`.

    Args:
        output: Directory of the stage.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace an earlier output in the directory.

    Raises:
        UsageError: The arguments do not fit together, or the elements cannot be written.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromCsv("penguins.csv") | bt.ExtractToParquet("copy/")
    """

    def __init__(
        self, output: str | os.PathLike[str], *, max_rejects: int | str = 0, overwrite: bool = False
    ) -> None:
        super().__init__()
        self.target = target = directory_target(output)
        check_free(target, overwrite=overwrite)
        self._job = stage_job(
            target,
            target.temporary(uuid.uuid4().hex[:12]),
            budget=parse_budget(max_rejects),
            overwrite=overwrite,
            info={"runner": "beam"},
        )

    def expand(self, elements: beam.PCollection) -> beam.PCollection[str]:
        """Add the steps that write the stage to the pipeline."""
        self.check_elements(elements)
        keep_rows_in(elements, self._job.directory)
        found = batches_of(in_one_window(elements), None, None, self._job.directory)
        batches = found[0] if len(found) == 1 else found | "AllBatches" >> beam.Flatten()
        job = dataclasses.replace(self._job, inputs=Lineage(step_paths_to(elements)))
        return write_batches((batches,), job)
