"""The columns of what a reader gives, where they are known before it runs."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from beam_tfrecord.records.infer_row_types import returned_schema
from beam_tfrecord.transforms.assign_splits import AssignSplits
from beam_tfrecord.transforms.map_rows import Chain, MapRows
from beam_tfrecord.transforms.reading import ReadBatches, Together
from beam_tfrecord.transforms.rows import as_arrow_schema


def read_schema(reader: beam.PTransform | None) -> pa.Schema | None:
    """Return the schema of what a reader gives, where that is known before it runs."""
    if isinstance(reader, Together):
        schemas = [read_schema(one) for one in reader.readers]
        return schemas[0] if all(schema == schemas[0] for schema in schemas) else None
    if isinstance(reader, ReadBatches):
        return reader.schema if reader.schema is not None else reader.source.schema()
    if not isinstance(reader, Chain):
        return None
    if isinstance(reader.step, AssignSplits):
        return read_schema(reader.reader)
    if not isinstance(reader.step, MapRows):
        return None
    function = reader.step.function
    given = as_arrow_schema(reader.step.schema)
    return given if given is not None else returned_schema(getattr(function, "function", function))
