"""The public transforms that read the files at paths in a PCollection, such as `ReadAllFromCsv`."""

import dataclasses
import functools
import os
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.batch import Batch
from beam_tfrecord.beam_steps import count
from beam_tfrecord.calls import takes_too
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.options.option import Option
from beam_tfrecord.options.sources import ColumnsOption, CsvOptions, TypedOptions
from beam_tfrecord.runner_traits import check_lossless
from beam_tfrecord.sources.groups import Group, group_units
from beam_tfrecord.transforms import read
from beam_tfrecord.transforms.graph import mark_step, step_label
from beam_tfrecord.transforms.reading import read_group
from beam_tfrecord.transforms.rows import as_arrow_schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadAllOptions(CsvOptions, TypedOptions, ColumnsOption, read.ReadOptions):
    """Options of any reader; each takes those of its own kind of file."""

    schema: Annotated[
        Schema | pa.Schema | None,
        Option("Names and types of the columns of CSV and JSON, as of `beam_tfrecord.schema`."),
    ] = None


Task = tuple[read.ReadFromSource, pa.Schema, Group]


class _ReadAll(beam.PTransform):
    """Base class: reads the files, directories and globs in a PCollection of str as `Batch`es.

    The types of the rows are those of the files of one element. The bytes of a row decide its
    position in the dataset, because elements have no order.

    Raises:
        UsageError: The options do not fit together.
    """

    _reader: ClassVar[Any]

    @takes_too(ReadAllOptions)
    def __init__(self, options: ReadAllOptions) -> None:
        super().__init__()
        of_reader = {
            field.name: value
            for field in dataclasses.fields(options)
            if (value := getattr(options, field.name)) is not field.default
        }
        if self._reader in (read.ReadFromCsv, read.ReadFromJson):
            # The files do not state their types.
            arrow = as_arrow_schema(of_reader.pop("schema", None))
            if not isinstance(arrow, pa.Schema):
                call = f"{type(self).__name__}(schema=bt.schema('one-of-the-files'))"
                raise UsageError(f"{type(self).__name__} needs the types: {call}")
            types = dict(zip(arrow.names, arrow.types, strict=True))
            of_reader = {"types": types, "columns": arrow.names, **of_reader}
        self._reader_of = functools.partial(self._reader, **of_reader)
        # Wrong options are refused here, not on a worker.
        self._reader_of("")

    def expand(self, paths: beam.PCollection[str]) -> beam.PCollection[Batch]:
        """Add the steps that plan and read the files of each element."""
        name = type(self).__name__
        if not isinstance(paths, beam.PCollection):
            raise UsageError(f"{name} needs paths: p | beam.Create(['in/*']) | {name}(…)")
        check_lossless(paths.pipeline)
        step = step_label(paths.pipeline)
        batches = (
            paths
            | "SpreadPaths" >> beam.Reshuffle()
            | "PlanPath" >> beam.FlatMap(functools.partial(_tasks, self._reader_of, name))
            | "SpreadGroups" >> beam.Reshuffle()
            | "ReadGroup" >> beam.FlatMap(functools.partial(_read, step)).with_output_types(Batch)
        )
        mark_step(batches, step, is_reader=True)
        return batches


def _tasks(reader_of: Any, name: str, path: Any) -> Iterator[Task]:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{name} needs paths, not {type(path).__name__}: make them str before")
    reader = reader_of(path)
    scans = reader.source.all_scans()
    schema = reader.source.schema(scans)
    for group in group_units(reader.source.all_units(scans)):
        yield reader, schema, group


def _read(step: str, task: Task) -> Iterator[Batch]:
    reader, schema, group = task
    for batch in read_group(reader.source, group, schema, reader.batch_rows, (step,)):
        count(_ReadAll, "read-rows", batch.num_rows)
        # Nobody knows the position of the path among all, and it may occur twice.
        yield dataclasses.replace(batch, origin=None, group=None)


class ReadAllFromArrow(_ReadAll):
    """Read the Arrow files at the paths of a PCollection: see `ReadFromArrow`."""

    _reader = read.ReadFromArrow


class ReadAllFromAvro(_ReadAll):
    """Read the Avro files at the paths of a PCollection: see `ReadFromAvro`."""

    _reader = read.ReadFromAvro


class ReadAllFromCsv(_ReadAll):
    """Read the CSV files at the paths of a PCollection, by `schema`: see `ReadFromCsv`."""

    _reader = read.ReadFromCsv


class ReadAllFromJson(_ReadAll):
    """Read the JSON files at the paths of a PCollection, by `schema`: see `ReadFromJson`."""

    _reader = read.ReadFromJson


class ReadAllFromOrc(_ReadAll):
    """Read the ORC files at the paths of a PCollection: see `ReadFromOrc`."""

    _reader = read.ReadFromOrc


class ReadAllFromParquet(_ReadAll):
    """Read the Parquet files at the paths of a PCollection: see `ReadFromParquet`."""

    _reader = read.ReadFromParquet


class ReadAllFromTFRecord(_ReadAll):
    """Read the datasets or TFRecord files at paths of a PCollection: see `ReadFromTFRecord`."""

    _reader = read.ReadFromTFRecord


class ReadAllFromWebDataset(_ReadAll):
    """Read the WebDataset shards at the paths of a PCollection: see `ReadFromWebDataset`."""

    _reader = read.ReadFromWebDataset
