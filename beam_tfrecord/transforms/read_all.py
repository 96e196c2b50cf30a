"""The public transforms that read the files at paths in a PCollection, such as `ReadAllFromCsv`."""

import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Annotated, Any

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.options import Option, sources
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.rows.beam import count
from beam_tfrecord.runners import check_lossless
from beam_tfrecord.sources.base import Source, altered
from beam_tfrecord.sources.read_tasks import ReadTask, pack_units
from beam_tfrecord.transforms.read import ReadOptions, SourceTransform
from beam_tfrecord.transforms.read_batches import read_task
from beam_tfrecord.transforms.rows import as_arrow_schema
from beam_tfrecord.transforms.steps import step_label


@dataclasses.dataclass(frozen=True)
class _Typed(ReadOptions, sources.TypedOptions, sources.ColumnsOption):
    """The arguments of the readers of files that state their types."""


@dataclasses.dataclass(frozen=True)
class _TFRecord(ReadOptions, sources.UnionOption, sources.ColumnsOption):
    """The arguments of `ReadAllFromTFRecord`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Untyped(ReadOptions, sources.TypesOption, sources.ColumnsOption):
    """The arguments of the readers of files that do not state their types."""

    schema: Annotated[
        Schema | pa.Schema | None,
        Option("Names and types of the columns, as of `beam_tfrecord.schema`."),
    ] = None


@dataclasses.dataclass(frozen=True)
class _Csv(_Untyped, sources.CsvOptions):
    """The arguments of `ReadAllFromCsv`."""


@dataclasses.dataclass(frozen=True)
class _Json(_Untyped, sources.JsonOptions):
    """The arguments of `ReadAllFromJson`."""


class _ReadAll(SourceTransform):
    """Base class: reads the files, directories and globs in a PCollection of str as `Batch`es.

    The files of each element have types of their own. The bytes of a row decide its position in the
    dataset, because elements have no order.
    """

    def _source(self, options: dict[str, Any]) -> Source:
        if isinstance(self, _Untyped):
            options = _with_types(type(self).__name__, options)
        # Wrong options are refused here; each element has paths of its own.
        return super()._source(options | {"paths": ""})

    def expand(self, paths: beam.PCollection[str]) -> beam.PCollection[Batch]:
        """Add the steps that plan and read the files of each element."""
        name = type(self).__name__
        if not isinstance(paths, beam.PCollection):
            raise UsageError(f"{name} needs paths: p | beam.Create(['in/*']) | {name}(…)")
        check_lossless(paths.pipeline)
        step = step_label(paths.pipeline)
        read = functools.partial(_read, self.batch_rows, step)
        batches = (
            paths
            | "SpreadPaths" >> beam.Reshuffle()
            | "PlanPath" >> beam.FlatMap(functools.partial(_tasks, self.source))
            | "SpreadTasks" >> beam.Reshuffle()
            | "ReadTask" >> beam.FlatMap(read).with_output_types(Batch)
        )
        batches.beam_tfrecord_step = step
        return batches


def _with_types(reader: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a source with the types of a schema."""
    arrow = as_arrow_schema(options.pop("schema"))
    if not isinstance(arrow, pa.Schema):
        raise UsageError(
            f"{reader} needs the types: {reader}(schema=bt.schema('one-of-the-files'))"
        )
    types = dict(zip(arrow.names, arrow.types, strict=True))
    columns = options["columns"] or arrow.names
    return options | {"types": options["types"] or types, "columns": columns}


def _tasks(source: Source, path: str | os.PathLike[str]) -> Iterator[Any]:
    source = altered(source, paths=(os.fspath(path),))
    scans = source.all_scans()
    schema = source.schema(scans)
    for task in pack_units(source.all_units(scans)):
        yield source, schema, task


def _read(batch_rows: int, step: str, typed: tuple[Source, pa.Schema, ReadTask]) -> Iterator[Batch]:
    source, schema, task = typed
    for batch in read_task(source, task, schema, batch_rows, (step,)):
        count(_ReadAll, "read-rows", batch.num_rows)
        # Paths have no order, and one may occur twice.
        yield dataclasses.replace(batch, origin=None, task=None)


class ReadAllFromArrow(_ReadAll, _Typed):
    """Read the Arrow files at the paths of a PCollection: see `ReadFromArrow`.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.arrow"]) | bt.ReadAllFromArrow()
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadAllFromAvro(_ReadAll, _Typed):
    """Read the Avro files at the paths of a PCollection: see `ReadFromAvro`.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.avro"]) | bt.ReadAllFromAvro()
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadAllFromCsv(_ReadAll, _Csv):
    """Read the CSV files at the paths of a PCollection, by `schema`: see `ReadFromCsv`.

    Example:
        >>> schema = bt.schema("trips.csv")
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.csv"]) | bt.ReadAllFromCsv(schema=schema)
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadAllFromJson(_ReadAll, _Json):
    """Read the JSON files at the paths of a PCollection, by `schema`: see `ReadFromJson`.

    Example:
        >>> schema = bt.schema("trips.jsonl")
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.jsonl"]) | bt.ReadAllFromJson(schema=schema)
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadAllFromOrc(_ReadAll, _Typed):
    """Read the ORC files at the paths of a PCollection: see `ReadFromOrc`.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.orc"]) | bt.ReadAllFromOrc()
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadAllFromParquet(_ReadAll, _Typed):
    """Read the Parquet files at the paths of a PCollection: see `ReadFromParquet`.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.parquet"]) | bt.ReadAllFromParquet()
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadAllFromTFRecord(_ReadAll, _TFRecord):
    """Read the datasets or TFRecord files at paths of a PCollection: see `ReadFromTFRecord`.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.tfrecord"]) | bt.ReadAllFromTFRecord()
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'fare': 2.5, 'id': 1}
    """


class ReadAllFromWebDataset(_ReadAll, _Typed):
    """Read the WebDataset shards at the paths of a PCollection: see `ReadFromWebDataset`.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | beam.Create(["trips.tar"]) | bt.ReadAllFromWebDataset()
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'__key__': '00000', 'id': 1, 'fare': b'2.5'}
    """
