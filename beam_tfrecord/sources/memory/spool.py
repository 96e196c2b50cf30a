"""Writes record batches to an Arrow IPC file whose bytes follow from the rows alone.

The file has the same bytes for equal rows, however they were cut into batches. So its hash
identifies the rows, and the units of the file, which are ranges of its batches, do not depend on
the batches that came in.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from beam_tfrecord.sources.memory.rows import FIRST_ROWS, NO_ROW, check_distinct, next_rows

from beam_tfrecord.errors import DataError, StorageError, UsageError
from beam_tfrecord.features.arrow_arrays import bare_array, take_values
from beam_tfrecord.features.arrow_types import decoded_type
from beam_tfrecord.features.common_types import cast_exactly
from beam_tfrecord.features.feature import labels_of, with_labels
from beam_tfrecord.features.python_values import Misfit, join
from beam_tfrecord.features.tensors import TensorType, tensor_column
from beam_tfrecord.format.hashes import file_hash

FILE_NAME = "rows.arrow"
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


def spool(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema | None, directory: str
) -> tuple[str, str]:
    """Write batches to a file."""
    path, pieces = os.path.join(directory, FILE_NAME), os.path.join(directory, "pieces.arrows")
    try:
        if schema is None:
            schema = _write_pieces(batches, pieces)
            batches = _read_pieces(pieces)
        schema = _checked(schema)
        with pa.ipc.new_file(path, schema) as writer:
            for batch in recut(batches, schema):
                writer.write_batch(batch)
    except OSError as error:
        if error.errno not in _DISK_IS_FULL:
            raise
        raise StorageError(
            f"cannot write the rows in memory to the temporary directory {directory!r} "
            f"({error.strerror or error}): set TMPDIR to a directory with more space"
        ) from error
    with contextlib.suppress(FileNotFoundError):
        os.remove(pieces)
    return path, file_hash(path)


def _checked(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the file: plain types, and of the metadata only class names."""
    if not schema.names:
        raise UsageError("no row of the input has a column: give rows with at least one value")
    check_distinct(schema.names)
    return pa.schema(
        [
            with_labels(pa.field(field.name, decoded_type(field.type)), labels_of(field))
            for field in schema
        ]
    )


def recut(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches whose sizes and bytes depend on the rows alone."""
    held: list[pa.RecordBatch] = []
    missing = size = FIRST_ROWS
    rows = 0
    for batch in batches:
        while batch.num_rows:
            head = batch.slice(0, missing)
            batch = batch.slice(head.num_rows)
            held.append(_plain_batch(head, schema, rows))
            rows += head.num_rows
            missing -= head.num_rows
            if not missing:
                whole = _canonical(held)
                yield whole
                held = []
                missing = size = next_rows(size, pa.ipc.get_record_batch_size(whole))
    if held:
        yield _canonical(held)


def _canonical(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches, and set the bytes below nulls, which Arrow leaves undefined, to zero."""
    whole = pa.concat_batches(held)
    every = pa.array(np.arange(whole.num_rows))
    columns = [
        take_values(column, every) if column.null_count or column.type.num_fields else column
        for column in whole.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=whole.schema)


def _plain_batch(batch: pa.RecordBatch, schema: pa.Schema, first_row: int) -> pa.RecordBatch:
    columns = [
        _cast(batch.column(field.name), field, first_row)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field, first_row: int) -> pa.Array:
    if isinstance(field.type, TensorType) and not column.type.equals(field.type):
        return tensor_column(column.to_pylist(), field.type)
    try:
        # A slice of an array with views is stored with the text of the complete array.
        cast, misfits = cast_exactly(bare_array(column), field.type)
    except pa.ArrowNotImplementedError as error:
        raise DataError(
            f"column {field.name!r} of the input is {column.type}, which Arrow cannot convert "
            f"to {field.type}: cast it before"
        ) from error
    if len(misfits):
        row = int(misfits[0])
        raise DataError(
            f"column {field.name!r} in row {first_row + row:,}: {column[row]} is not exactly a "
            f"{field.type}, which other rows need: convert them first"
        )
    return cast


def _write_pieces(batches: Iterable[pa.RecordBatch], path: str) -> pa.Schema:
    """Write each batch as a stream of its own; return the schema of all rows."""
    fields: dict[str, pa.Field] = {}
    rows = 0
    with pa.OSFile(path, "wb") as sink:
        for batch in batches:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                field = fields.setdefault(name, batch.schema.field(name))
                fields[name] = field.with_type(_joined(field, column, rows)).with_nullable(True)
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            rows += batch.num_rows
    if not rows:
        raise UsageError(NO_ROW)
    return pa.schema(list(fields.values()))


def _joined(field: pa.Field, column: pa.Array, first_row: int) -> pa.DataType:
    try:
        return join(field.type, column.type)
    except Misfit as error:
        row = int(np.argmax(column.is_valid().to_numpy(zero_copy_only=False)))
        raise DataError(f"column {field.name!r} in row {first_row + row:,}: {error}") from error


def _read_pieces(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches that `_write_pieces` wrote, each with its own schema."""
    with pa.OSFile(path) as source:
        while source.tell() < source.size():
            with pa.ipc.open_stream(source) as reader:
                yield from reader
