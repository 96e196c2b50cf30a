"""Reads tables, arrays and rows in memory, which it writes to a temporary file first.

Workers read only the rows of the file that they need, and memory stays flat. The file has the same
bytes for equal rows, however they were cut into batches. So its hash identifies the rows, and its
units do not depend on the batches that came in.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import errno
import itertools
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError, StorageError, UsageError
from beam_tfrecord.features.arrow_arrays import bare_array, take_values
from beam_tfrecord.features.arrow_types import decoded_type
from beam_tfrecord.features.feature import labels_of, with_labels
from beam_tfrecord.features.python_values import Misfit, join
from beam_tfrecord.features.tensors import TensorType, dtype_name, is_foreign, tensor_column
from beam_tfrecord.features.type_join import cast_exactly
from beam_tfrecord.format.hashes import file_hash
from beam_tfrecord.options.sources import MemoryOptions
from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.memory_tables import (
    FIRST_ROWS,
    NO_ROW,
    check_distinct,
    is_table,
    next_of,
    next_rows,
    stream_of,
)
from beam_tfrecord.sources.numpy import Numpy, checked_columns, columns_of
from beam_tfrecord.sources.numpy_files import StoredArray

_NAME = "data in memory"
_MOST_NAME = 1000
FILE_NAME = "rows.arrow"
_DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclasses.dataclass(frozen=True)
class _Temporary(FileSource):
    """A source of one temporary file."""

    digest: str = dataclasses.field(default="", kw_only=True)

    def files(self) -> Iterator[InputFile]:
        for file in super().files():
            # A hash of the content in place of the name and the times.
            yield dataclasses.replace(
                file, name=_NAME, version=self.digest, state="", digest=self.digest
            )


@dataclasses.dataclass(frozen=True)
class Memory(_Temporary, MemoryOptions, Arrow):
    """A table or rows in memory, in a temporary Arrow file."""

    kind: ClassVar[str] = "memory"


@dataclasses.dataclass(frozen=True)
class Arrays(_Temporary, Numpy):
    """NumPy arrays in memory, in a temporary .npz file."""


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """Files, and the source that can read them."""

    source: type[Source]
    paths: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def source_of(self, **options: Any) -> Source:
        """Return the source of the files, with options that the user chose."""
        # Any, because the base class lacks the fields: every source is a dataclass that begins with
        # `paths`.
        source: Any = self.source
        made: Source = source(self.paths, **self.options, **options)
        return made


@contextlib.contextmanager
def on_disk(inputs: Any, temp_dir: str | None = None, nan: str = "null") -> Iterator[Any]:
    """Yield paths as they are; write other input to a file that lives until the context ends."""
    inputs, are_paths = _looked_at(inputs)
    if are_paths:
        yield inputs
        return
    directory = tempfile.mkdtemp(prefix="beam_tfrecord-rows-", dir=temp_dir)
    try:
        yield _written(inputs, directory, nan)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def until_exit(inputs: Any, temp_dir: str | None = None, nan: str = "null") -> Any:
    """Return what `on_disk` yields, for as long as this process runs."""
    stack = contextlib.ExitStack()
    readable = stack.enter_context(on_disk(inputs, temp_dir, nan))
    atexit.register(stack.close)
    return readable


def _looked_at(inputs: Any) -> tuple[Any, bool]:
    """Return an input that can still be read, and whether it is paths."""
    if isinstance(inputs, str | os.PathLike):
        return inputs, True
    if is_table(inputs) or not isinstance(inputs, Iterable):
        return inputs, False
    if isinstance(inputs, Sized) and not len(inputs):
        # The choice of the source refuses it.
        return (), True
    # An iterator can be read only once.
    iterator = iter(inputs)
    first = next_of(iterator, 1, 0)
    rest = itertools.chain(first, iterator)
    if first and isinstance(first[0], str | os.PathLike):
        return tuple(rest), True
    return rest, False


def _written(inputs: Any, directory: str, nan: str) -> OnDisk:
    parts = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    arrays = [value for value in parts if isinstance(value, np.ndarray)]
    is_masked = any(isinstance(array, np.ma.MaskedArray) for array in arrays)
    # Python objects are read as lists are, and so are the arrays beside them.
    if arrays and (is_masked or not any(array.dtype == object for array in arrays)):
        path, types = _write_arrays(inputs, directory)
        return OnDisk(Arrays, (path,), {"types": types or None, "digest": file_hash(path)})
    path, digest = spool(*stream_of(inputs, nan), directory)
    return OnDisk(Memory, (path,), {"digest": digest})


def _write_arrays(arrays: Any, directory: str) -> tuple[str, dict[str, str]]:
    """Write one array, or a mapping of arrays by name, to an .npz file.

    Return its path, and the dtypes of the columns that it holds as raw bytes.
    """
    if isinstance(arrays, np.ndarray):
        arrays = {"data": arrays}
    for name, array in arrays.items():
        # zipfile cuts a name at NUL, and stores its length in two bytes.
        if not (isinstance(name, str) and name.isprintable() and 0 < len(name) < _MOST_NAME):
            raise UsageError(
                f"{str(name)[:80]!r} cannot be the name of an array: pass a short text"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise UsageError(f"array {name!r} is masked: give array.filled(…) instead")
    held = {name: _as_array(name, array) for name, array in arrays.items()}
    stored = (StoredArray(name, of.dtype, of.shape, False, 0) for name, of in held.items())
    columns = (column for array in stored for column in columns_of(array))
    dtypes = {
        name: column.dtype
        for name, column in checked_columns(columns, "the arrays in memory", {}).items()
    }
    path = os.path.join(directory, "arrays.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in held.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                raw = array.view(f"V{array.itemsize}") if is_foreign(array.dtype) else array
                np.lib.format.write_array(member, raw, allow_pickle=False)
    return path, {name: dtype_name(dtype) for name, dtype in dtypes.items() if is_foreign(dtype)}


def _as_array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Return an array, or a list among arrays if NumPy has one type for its values."""
    if isinstance(values, np.ndarray):
        return values
    with contextlib.suppress(ValueError):
        array = np.asarray(values)
        # NumPy turns 1 beside "a" into text, and cuts zeros at the end of text.
        if repr(array.tolist()) == repr(list(values)):
            return array
    raise UsageError(
        f"{name!r} is no array, though others are, and NumPy would change its values: give an "
        "array, or lists for all columns"
    )


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
