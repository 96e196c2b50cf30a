"""`WriteToTFRecord`: from elements of any kind to a published dataset, inside a pipeline."""

from __future__ import annotations

import dataclasses
import datetime
import os
import platform
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord._version import __version__
from beam_tfrecord.batch import Batch
from beam_tfrecord.elements import batches_of
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.direct import DirectWriter
from beam_tfrecord.exchange.merge import Piece
from beam_tfrecord.exchange.pipeline import EXCHANGES, TALLIES, Exchange, Spilled, merge, spill
from beam_tfrecord.exchange.tally import Tally, merge_tallies
from beam_tfrecord.faults import recorded
from beam_tfrecord.layout import Layout, parse_compression
from beam_tfrecord.publish import Identity, publish
from beam_tfrecord.rejects import RejectBudget, parse_budget, rejected
from beam_tfrecord.schema import Schema
from beam_tfrecord.shards import (
    DEFAULT_SHARD_BYTES,
    ShardNames,
    make_shard_spec,
    shard_suffix,
)
from beam_tfrecord.splits import make_splits
from beam_tfrecord.storage import remove_tree
from beam_tfrecord.target import Target, check_free, sink_target
from beam_tfrecord.windows import in_global_window


@dataclasses.dataclass(frozen=True)
class WriteJob:
    """A write as values: what `WriteToTFRecord` and `beam_tfrecord.write` have in common.

    Attributes:
        target: Where to.
        layout: How.
        directory: Temporary directory, made by the first step.
        schema: Given schema; None: that of the data.
        budget: Rows that may be rejected.
        identity: What the dataset is made from.
        overwrite: Replace a dataset at the target.
        exchange: ``files`` or ``runner``.
        direct: Write shards in one pass, in source order, each from a group of units.
        job: What ``job.json`` tells besides.
    """

    target: Target
    layout: Layout
    directory: str
    schema: Schema | None = None
    budget: RejectBudget = RejectBudget()
    identity: Identity = Identity()
    overwrite: bool = False
    exchange: str = "files"
    direct: bool = False
    job: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class WriteToTFRecord(beam.PTransform):
    """Write elements to a sharded TFRecord dataset, and give the names of its files.

    Takes a bounded PCollection of `Batch`, dict, NamedTuple, `beam.Row`, `tf.train.Example` or
    bytes (serialized examples, written untouched).

    Args:
        file_path_prefix: A directory (ends in ``/``, or is one): the dataset's own. Anything else
            is a file prefix as in Beam, with the manifest beside it as
            ``<prefix>-manifest.json``.
        coder: Turns each element into bytes, as in Beam; None: this class encodes.
        file_name_suffix: After the number in each file name; by default ``.tfrecord`` in a
            directory, nothing after a prefix.
        num_shards: Number of shards; 0: as many as `shard_size` asks for.
        shard_name_template: As in Beam; by default ``-SSSSS-of-NNNNN``.
        compression_type: ``none``, ``gzip``, or Beam's `CompressionTypes` AUTO (by suffix),
            UNCOMPRESSED or GZIP.
        schema: Schema to enforce; None: that of the data.
        splits: Shares by name, such as ``{"train": .9, "test": .1}``; needs a directory.
        split_column: Column that names each row's split.
        group: Columns whose equal values share a split; without it, equal examples do.
        key: Columns that decide the order.
        shards: As `num_shards`, or by split: ``{"train": 64, "test": 8}``.
        shard_size: Bytes of a shard before compression, such as ``"128MB"``.
        shuffle: False keeps the order of the source.
        seed: Of the order and of the splits.
        max_rejects: Rows that may be rejected: a number, ``"1%"`` or ``"any"``.
        overwrite: Replace a dataset at the target.
        exchange: ``files`` or ``runner``: how records travel to their shards.

    Raises:
        UsageError: The arguments do not fit together, or the elements cannot be written.
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
        schema: Schema | None = None,
        splits: Mapping[str, float] | str | None = None,
        split_column: str | None = None,
        group: Sequence[str] = (),
        key: Sequence[str] = (),
        shards: int | str | Mapping[str, int] | None = None,
        shard_size: int | str | None = None,
        shuffle: bool = True,
        seed: int = 0,
        max_rejects: int | str = 0,
        overwrite: bool = False,
        exchange: str = "files",
    ) -> None:
        super().__init__()
        target = sink_target(file_path_prefix)
        if target.prefix is not None and (splits or split_column):
            raise UsageError(
                f"splits need a directory: write to '{os.fspath(file_path_prefix)}/' instead"
            )
        if exchange not in EXCHANGES:
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
        self._coder = coder
        self._job = WriteJob(
            target=target,
            layout=Layout(
                splits=make_splits(splits, column=split_column, group=group),
                shards=make_shard_spec(num_shards or shards, shard_size),
                shuffle=shuffle,
                key=tuple(key),
                seed=seed,
                compression=compression,
                names=names,
            ),
            directory=target.temporary(uuid.uuid4().hex[:12]),
            schema=schema,
            budget=parse_budget(max_rejects),
            overwrite=overwrite,
            exchange=exchange,
            job={"runner": "beam"},
        )

    def expand(self, elements: beam.PCollection) -> beam.PCollection[str]:
        """Build the chain."""
        check_free(self._job.target, overwrite=self._job.overwrite)
        if not elements.is_bounded:
            raise UsageError("WriteToTFRecord needs a bounded PCollection: a dataset has an end")
        return write_batches(batches_of(elements, self._coder, self._job.schema), self._job)


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
    batches: Sequence[beam.PCollection[Batch]], job: WriteJob
) -> beam.PCollection[str]:
    """Write batches as one dataset; give the names of its shards."""
    if job.direct:
        pieces, tally = _write_directly(batches[0], job)
    else:
        kind = job.exchange if job.layout.shuffle else "files"
        exchange = Exchange(job.layout, job.directory, job.schema, kind)
        spilled = [spill(one, exchange, str(i)) for i, one in enumerate(batches)]
        together = spilled[0] if len(spilled) == 1 else _flatten(spilled)
        pieces, tally = merge(together, exchange, job.budget)
    return (
        batches[0].pipeline
        | "Once" >> beam.Create([job])
        | "Publish"
        >> beam.FlatMap(
            _publish, beam.pvalue.AsSingleton(tally), beam.pvalue.AsList(pieces)
        ).with_output_types(str)
    )


def _flatten(spilled: Sequence[Spilled]) -> Spilled:
    return Spilled(
        [one.runs for one in spilled] | "AllRuns" >> beam.Flatten(),
        [one.tally for one in spilled] | "AllTallies" >> beam.Flatten(),
    )


def _publish(job: WriteJob, tally: Tally, pieces: Sequence[Piece]) -> Iterator[str]:
    check_free(job.target, overwrite=job.overwrite)
    if not job.budget.allows(tally.rejects, tally.rows):
        raise rejected(job.budget, tally.rejects, tally.rows, tally.sample)
    written = sum(piece.examples for piece in pieces)
    if written != tally.records:
        raise DataError(
            f"shards hold {written:,} records where {tally.records:,} were encoded: "
            "run the job again"
        )
    os.makedirs(job.target.directory, exist_ok=True)
    manifest = publish(
        job.target,
        job.layout,
        job.identity,
        tally,
        pieces,
        job={
            **job.job,
            "finished": datetime.datetime.now(datetime.timezone.utc).isoformat(),
            "rows_read": tally.rows,
            "left_out_columns": sorted(tally.left_out),
            "beam_tfrecord": __version__,
            "beam": beam.version.__version__,
            "python": platform.python_version(),
        },
    )
    # With the dataset in place, nothing that a failed job left here is of use any more.
    for directory in {job.directory, *job.target.leftovers()}:
        remove_tree(directory)
    for shard in manifest.shards:
        yield os.path.join(job.target.directory, shard.path)


def _write_directly(batches: beam.PCollection[Batch], job: WriteJob) -> tuple[Any, Any]:
    written = batches | "WriteShards" >> beam.ParDo(_WriteShards(job)).with_outputs(
        TALLIES, main="pieces"
    )
    tally = written[TALLIES] | "GatherTallies" >> beam.CombineGlobally(merge_tallies)
    return written.pieces, tally


class _WriteShards(beam.DoFn):
    """Write each group of units straight to shards of its own."""

    def __init__(self, job: WriteJob) -> None:
        self._job = job
        self._writer: DirectWriter | None = None

    def start_bundle(self) -> None:
        job = self._job
        os.makedirs(job.directory, exist_ok=True)
        self._writer = DirectWriter(
            job.layout,
            job.directory,
            shard_bytes=job.layout.shards.shard_bytes or DEFAULT_SHARD_BYTES,
            schema=job.schema,
        )

    def process(self, batch: Batch) -> Iterator[Piece]:
        assert self._writer is not None
        yield from recorded(self._writer.add, self._job.directory)(batch)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._writer is not None
        writer, self._writer = self._writer, None
        for piece in writer.end_group():
            yield in_global_window(piece)
        yield in_global_window(beam.pvalue.TaggedOutput(TALLIES, writer.take_tally()))
