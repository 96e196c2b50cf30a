"""Transforms of batches, in the order of the data; the logic is in pure modules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.arena import Arena
from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.encoding import Encoder
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.gather_rows import BatchRows as BatchRows
from beam_tfrecord.gather_rows import batch_of_rows
from beam_tfrecord.layout import Layout
from beam_tfrecord.map_rows import MapBatches as MapBatches
from beam_tfrecord.map_rows import MapRows as MapRows
from beam_tfrecord.map_rows import remember_reader
from beam_tfrecord.reading import ReadBatches
from beam_tfrecord.rows import to_rows
from beam_tfrecord.schema import Schema
from beam_tfrecord.sources import Source
from beam_tfrecord.sources.csv import Csv
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.splits import make_splits


class _ReadFrom(ReadBatches):
    """A `ReadBatches` whose arguments are those of its source."""

    source_class: Callable[..., Source]

    def __init__(self, paths: Any, *, batch_rows: int = DEFAULT_BATCH_ROWS, **options: Any) -> None:
        super().__init__(self.source_class(paths=paths, **options), batch_rows=batch_rows)

    def batches(self) -> Iterator[Batch]:
        """Iterate the input here, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)


class ReadFromCsv(_ReadFrom):
    """Read CSV files as `Batch`es; the arguments are those of `beam_tfrecord.sources.csv.Csv`."""

    source_class = Csv


class ReadFromParquet(_ReadFrom):
    """Read Parquet files as `Batch`es; arguments as `beam_tfrecord.sources.parquet.Parquet`."""

    source_class = Parquet


class ToRows(beam.PTransform):
    """Give the rows of batches as dicts, for any Beam code.

    Rejects cannot travel on with plain dicts, so a batch that has any is an error.
    """

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[dict[str, Any]]:
        """Give every row."""
        return batches | "ToRows" >> beam.FlatMap(_rows_of).with_output_types(dict[str, Any])


def _rows_of(batch: Batch) -> list[dict[str, Any]]:
    if batch.rejects:
        raise DataError(batch.rejects[0].message)
    return to_rows(batch.data)


class AssignSplits(beam.PTransform):
    """Put every row in its split, as it stands here.

    Takes the arguments of `WriteToTFRecord` that decide splits; every batch that follows has its
    rows in one split, which `WriteToTFRecord` then keeps.

    Args:
        splits: ``{"train": .9, "test": .1}`` or ``"train=0.9,test=0.1"``.
        split_column: Column that names the split.
        group: Columns whose equal values share a split.
        seed: Of the hash.
    """

    def __init__(
        self,
        splits: Mapping[str, float] | str | None = None,
        *,
        split_column: str | None = None,
        group: Sequence[str] = (),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._layout = Layout(make_splits(splits, column=split_column, group=group), seed=seed)

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[Batch]:
        """Divide every batch."""
        assigned = batches | "AssignSplits" >> beam.FlatMap(
            split_batch, self._layout
        ).with_output_types(Batch)
        remember_reader(batches, assigned, self)
        return assigned


def split_batch(batch: Batch, layout: Layout) -> Iterator[Batch]:
    """Yield the rows of a batch by split, in order of the splits' numbers."""
    block = Block(layout)
    written = block.add(batch)
    numbers = block.splits
    if numbers is None:
        numbers = np.zeros(len(written), np.uint16)
    rejects = tuple(block.rejects)
    for number in np.unique(numbers):
        part = batch.take(written[numbers == number])
        yield part.replace(split=block.split_names[number], rejects=rejects)
        rejects = ()
    if rejects:
        yield batch.slice(0, 0).replace(rejects=rejects)


@dataclasses.dataclass(eq=False)
class EncodeExamples(beam.PTransform):
    """Encode batches as serialized `tf.train.Example`s in canonical form, one a row.

    Attributes:
        schema: Given schema; None: that of the batches.
    """

    schema: Schema | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, batches: beam.PCollection[Batch]) -> beam.PCollection[bytes]:
        """Encode every batch."""
        return batches | "EncodeExamples" >> beam.FlatMap(
            examples_of, self.schema
        ).with_output_types(bytes)


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
    ends = np.append(arena.starts[1 : arena.records], arena.size)
    for start, end in zip(arena.starts[: arena.records], ends, strict=True):
        yield arena.data[start + 12 : end - 4].tobytes()


class ToExample(beam.DoFn):
    """Turn row dicts into `tf.train.Example`s; needs TensorFlow on the workers.

    Args:
        schema: Types of the rows.
    """

    def __init__(self, schema: Schema | pa.Schema) -> None:
        self._schema = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)

    def process(self, row: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the example of a row."""
        import tensorflow as tf

        batch = batch_of_rows([row], self._schema.to_arrow())
        for example in examples_of(batch, self._schema):
            yield tf.train.Example.FromString(example)
