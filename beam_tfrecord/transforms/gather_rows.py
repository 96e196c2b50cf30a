"""`BatchRows`: rows of any other Beam code, gathered into batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.rows import Mapped, mapped_batch
from beam_tfrecord.runner_traits import check_lossless
from beam_tfrecord.transforms import display
from beam_tfrecord.transforms.map_rows import as_arrow_schema
from beam_tfrecord.transforms.step import Step
from beam_tfrecord.transforms.windows import in_global_window, in_one_window


@dataclasses.dataclass(eq=False)
class BatchRows(beam.PTransform):
    """Gather rows of any other Beam code into batches.

    Takes dicts, NamedTuples and `beam.Row`s. Such rows have no stable number: their place in the
    dataset follows from their bytes, unless a key is given.

    Attributes:
        schema: Types of the rows.
        batch_rows: Rows of a batch.
    """

    schema: Schema | pa.Schema
    batch_rows: int = DEFAULT_BATCH_ROWS

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.schema, Schema | pa.Schema | beam.pvalue.AsSingleton):
            raise UsageError("BatchRows needs a schema: a beam_tfrecord.Schema or a pyarrow.Schema")

    def display_data(self) -> dict[str, Any]:
        """Return what a runner's page shows."""
        return display.shown(schema=display.schema_text(self.schema), batch_rows=self.batch_rows)

    def expand(self, rows: beam.PCollection) -> beam.PCollection[Batch]:
        """Gather rows."""
        check_lossless(rows.pipeline)
        schema = as_arrow_schema(self.schema)
        return in_one_window(rows) | "GatherRows" >> beam.ParDo(
            _BatchRows(self.batch_rows), schema
        ).with_output_types(Batch)


class _BatchRows(Step):
    def __init__(self, batch_rows: int) -> None:
        self._batch_rows = batch_rows
        self._schema: pa.Schema | None = None
        self._rows: list[dict[str, Any]] = []

    def start_bundle(self) -> None:
        self._rows = []

    def process(self, row: Any, schema: pa.Schema) -> Iterator[Batch]:
        self._schema = schema
        self._rows.append(as_dict(row))
        if len(self._rows) >= self._batch_rows:
            yield self._take()

    def finish_bundle(self) -> Iterator[Any]:
        if self._rows:
            yield in_global_window(self._take())

    def _take(self) -> Batch:
        rows, self._rows = self._rows, []
        assert self._schema is not None
        return batch_of_rows(rows, self._schema)


def as_dict(row: Any) -> dict[str, Any]:
    """Return a dict, NamedTuple or `beam.Row` as a dict.

    Raises:
        DataError: It is something else.
    """
    if isinstance(row, dict):
        return row
    if isinstance(row, beam.Row):
        return dict(row.as_dict())
    if hasattr(row, "_asdict"):
        return dict(row._asdict())
    raise DataError(
        f"cannot write {type(row).__name__} elements: give Batch, dict, NamedTuple, beam.Row, "
        "tf.train.Example or bytes"
    )


def batch_of_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Batch:
    """Build a batch without origin; rows that do not fit the schema are rejects."""
    nothing = pa.RecordBatch.from_pylist([], schema=schema)
    zeros = np.zeros(len(rows), np.int64)
    mapped = Mapped(list(rows), zeros, zeros, ())
    return mapped_batch(Batch(nothing), mapped, schema)
