"""Transforms of batches, in the order of the data; the logic is in pure modules."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.extras import require
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.job_batch import as_job_batch
from beam_tfrecord.jobs.faults import recorded
from beam_tfrecord.layout import SPLIT_TWICE, Layout, make_splits
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.rows import to_rows
from beam_tfrecord.sources import Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.arrays import Numpy
from beam_tfrecord.sources.numpy.memory import named_arrays, spill_arrays
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.assigned import assigned_splits, mark_splits
from beam_tfrecord.transforms.gather_rows import BatchRows as BatchRows
from beam_tfrecord.transforms.gather_rows import batch_of_rows
from beam_tfrecord.transforms.map_rows import MapBatches as MapBatches
from beam_tfrecord.transforms.map_rows import MapRows as MapRows
from beam_tfrecord.transforms.map_rows import remember_reader
from beam_tfrecord.transforms.reading import ReadBatches
from beam_tfrecord.transforms.step import flat_map
from beam_tfrecord.transforms.ways import Noting, mark_step, step_label


class _ReadFrom(ReadBatches):
    """A `ReadBatches` whose arguments are those of its source."""

    source_class: Callable[..., Source]

    def __init__(self, paths: Any, *, batch_rows: int = DEFAULT_BATCH_ROWS, **options: Any) -> None:
        super().__init__(self.source_class(paths=paths, **options), batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate the input here, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)


class ReadFromCsv(_ReadFrom):
    """Read CSV files as `Batch`es; arguments as `beam_tfrecord.sources.csv.source.Csv`."""

    source_class = Csv


class ReadFromImages(_ReadFrom):
    """Read pictures as `Batch`es; arguments as `beam_tfrecord.sources.images.source.Images`."""

    source_class = Images


class ReadFromNumpy(_ReadFrom):
    """Read NumPy arrays, of files or in memory, as `Batch`es.

    Arrays in memory are written once, when the pipeline is built, to a temporary file that lasts
    as long as this process.

    Args:
        paths: Files, or an array, or arrays by name: ``{"data": array, "label": labels}``.
        temp_dir: Where that file is written; every worker must see it. None: on this machine.
        batch_rows: Rows of a batch; has no influence on the dataset.
        **options: Those of `beam_tfrecord.sources.numpy.arrays.Numpy`.

    Raises:
        UsageError: An option makes no sense; arrays in memory take no `types`, they have dtypes.
    """

    source_class = Numpy

    def __init__(
        self,
        paths: Any,
        *,
        temp_dir: str | None = None,
        batch_rows: int = DEFAULT_BATCH_ROWS,
        **options: Any,
    ) -> None:
        is_in_memory = isinstance(paths, Mapping | np.ndarray)
        if is_in_memory and options.get("types"):
            raise UsageError("arrays in memory have dtypes of their own: leave out types")
        super().__init__("" if is_in_memory else paths, batch_rows=batch_rows, **options)
        self._arrays = named_arrays(paths) if is_in_memory else None
        self._temp_dir = temp_dir

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return super().display_data() | display.shown(arrays=self._arrays and list(self._arrays))

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Build the chain."""
        self._spill()
        return super().expand(begin)

    def batches(self) -> Iterator[Batch]:
        """Iterate the arrays here, without a pipeline."""
        self._spill()
        return super().batches()

    def _spill(self) -> None:
        if self._arrays is None:
            return
        path, types = spill_arrays(self._arrays, self._temp_dir)
        self.source = dataclasses.replace(cast(Numpy, self.source), paths=path, types=types or None)
        self._arrays = None


class ReadFromParquet(_ReadFrom):
    """Read Parquet as `Batch`es; arguments as `beam_tfrecord.sources.parquet.source.Parquet`."""

    source_class = Parquet


class ReadFromSql(_ReadFrom):
    """Read a database as `Batch`es; arguments as `beam_tfrecord.sources.sql.source.Sql`."""

    source_class = Sql


class ToRows(beam.PTransform):
    """Give the rows of batches as dicts, for any Beam code.

    Rejects cannot travel on with plain dicts, so a batch that has any is an error. Nor can splits:
    `WriteToTFRecord` refuses rows that had one.
    """

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[dict[str, Any]]:
        """Give every row."""
        return batches | "ToRows" >> flat_map(_rows_of).with_output_types(dict[str, Any])


def _rows_of(batch: Batch) -> list[dict[str, Any]]:
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    return to_rows(batch.data)


class AssignSplits(beam.PTransform):
    """Put every row in its split, as it stands here.

    Takes the arguments of `WriteToTFRecord` that decide splits, in place of it; every batch that
    follows has its rows in one split, which `WriteToTFRecord` then keeps. Splits are said once:
    rows that have one are refused by another `AssignSplits`, and by a sink with `splits`,
    `split_column` or `group`, be they equal.

    Args:
        splits: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names the split.
        group: Columns whose equal values share a split.
        seed: Of the hash.

    Raises:
        UsageError: The arguments do not fit together, or the rows have a split.
    """

    def __init__(
        self,
        splits: Mapping[str, float] | str | None = None,
        *,
        split_column: str | None = None,
        group: Sequence[str] | str = (),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._layout = Layout(make_splits(splits, column=split_column, group=group), seed=seed)
        self._schema: Schema | None = None
        self._faults: str | None = None

    @classmethod
    def of_layout(
        cls, layout: Layout, *, schema: Schema | None = None, faults: str | None = None
    ) -> AssignSplits:
        """Return the step that puts rows where a job with this layout and schema would."""
        step = cls()
        step._layout, step._schema, step._faults = layout, schema, faults
        return step

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return {
            name: value
            for name, value in display.of_layout(self._layout).items()
            if name in ("splits", "split_column", "group", "seed")
        }

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Divide every batch."""
        if assigned_splits(batches).kept:
            raise UsageError(SPLIT_TWICE)
        step = step_label(batches.pipeline)
        split = Noting(
            functools.partial(split_batch, layout=self._layout, schema=self._schema), step
        )
        assigned = batches | "AssignSplits" >> beam.ParDo(
            recorded(split, self._faults)
        ).with_output_types(Batch)
        mark_step(assigned, step)
        mark_splits(assigned, self._layout.splits)
        remember_reader(batches, assigned, self)
        return assigned


def split_batch(batch: Batch, layout: Layout, schema: Schema | None = None) -> Iterator[Batch]:
    """Yield the rows of a batch by split, in order of the splits' numbers."""
    block = Block(layout, schema)
    batch = as_job_batch(batch)
    written = block.add(batch)
    numbers = block.splits
    if numbers is None:
        numbers = np.zeros(len(written), np.uint16)
    rejects, read, refused = tuple(block.rejects), batch.rows_counted, batch.refused
    for number in np.unique(numbers):
        part = batch.take(written[numbers == number])
        yield part.replace(
            split=block.split_names[number], rejects=rejects, rows_read=read, refused=refused
        )
        rejects, read, refused = (), 0, None
    if rejects:
        yield batch.slice(0, 0).replace(rejects=rejects, rows_read=read)


@dataclasses.dataclass(eq=False)
class EncodeExamples(beam.PTransform):
    """Encode batches as serialized `tf.train.Example`s in canonical form, one a row.

    Bytes carry no split: `WriteToTFRecord` refuses those of rows that had one.

    Attributes:
        schema: Given schema; None: that of the batches.
    """

    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return display.shown(schema=display.schema_text(self.schema))

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[bytes]:
        """Encode every batch."""
        return batches | "EncodeExamples" >> flat_map(examples_of, self.schema).with_output_types(
            bytes
        )


def examples_of(batch: Batch, schema: Schema | None = None) -> Iterator[bytes]:
    """Yield the serialized example of every row.

    Raises:
        DataError: A row cannot be encoded.
    """
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    if batch.encoded:
        yield from batch.data.column(0).to_pylist()
        return
    arena = Arena()
    encoded = Encoder(schema or Schema.from_arrow(batch.data.schema)).encode(batch, arena)
    if encoded.rejects:
        raise DataError(encoded.rejects[0][3])
    starts = arena.starts[: arena.records]
    # A unit without rows gives a batch without rows.
    ends = np.append(starts[1:], arena.size) if len(starts) else starts
    for start, end in zip(starts, ends, strict=True):
        yield arena.data[start + 12 : end - 4].tobytes()


class ToExample(beam.DoFn):
    """Turn row dicts into `tf.train.Example`s; needs TensorFlow on the workers.

    Args:
        schema: Types of the rows.
    """

    def __init__(self, schema: Schema | pa.Schema) -> None:
        self._schema = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return display.shown(schema=display.schema_text(self._schema))

    def setup(self) -> None:
        """Make sure that TensorFlow is there."""
        require("tensorflow", "ToExample")

    def process(self, row: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the example of a row."""
        import tensorflow as tf

        batch = batch_of_rows([row], self._schema.to_arrow())
        for example in examples_of(batch, self._schema):
            yield tf.train.Example.FromString(example)
