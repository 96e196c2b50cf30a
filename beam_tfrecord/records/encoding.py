"""Encodes batches as framed `tf.train.Example` records, whose bytes follow from rows and schema.

The columns of a batch are first converted to the types of the schema, then to arrays of TF columns
(the keys of the examples). The native kernel encodes these as bytes. If the columns of a batch
already have types that the kernel encodes, no conversion takes place.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.errors import SchemaConflict
from beam_tfrecord.features.arrow_arrays import lacking_values, relative_error, to_text
from beam_tfrecord.features.arrow_to_tf import arrow_to_tf, is_encoded_as_is
from beam_tfrecord.features.arrow_types import bare_type, is_text, with_bytes
from beam_tfrecord.features.cast_to_schema import NoConversion, convert
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.limits import Limits
from beam_tfrecord.features.python_rows import python_values
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import BYTES, VALUES, TFColumn, schema_tf_columns
from beam_tfrecord.native.kernel_types import (
    BoolArray,
    Float64Array,
    Int64Array,
    UInt8Array,
    UInt64Array,
)
from beam_tfrecord.rows.batch import MAX_VALUE_CHARS, Batch, Reject

# More than most runs (sorted spill files) need: unused memory costs nothing, growing costs a copy.
RUN_ROOM_BYTES = 128 * 2**20


class Arena:
    """A growing buffer of framed records, with the position of each record.

    A full buffer doubles its size, and `reset` keeps the memory, so a worker that encodes much
    allocates only a few times.
    """

    def __init__(self, *, capacity_bytes: int = 1 << 20, capacity_records: int = 1 << 12) -> None:
        self.data: UInt8Array = np.empty(capacity_bytes, np.uint8)
        self.starts: Int64Array = np.empty(capacity_records, np.int64)
        self.size = 0
        self.records = 0

    def reserve(self, num_bytes: int, num_records: int) -> None:
        """Make room for more bytes and records; records in use keep their positions."""
        self.data = _grown(self.data, self.size, num_bytes)
        self.starts = _grown(self.starts, self.records, num_records)

    def add(self, data: UInt8Array, starts: Int64Array) -> None:
        """Add framed records that follow each other in `data`; each begins at one of `starts`."""
        self.reserve(len(data), len(starts))
        self.data[self.size : self.size + len(data)] = data
        self.starts[self.records : self.records + len(starts)] = starts + self.size
        self.size += len(data)
        self.records += len(starts)

    def reset(self) -> None:
        """Drop all records and keep the memory."""
        self.size = 0
        self.records = 0

    def used_data(self) -> UInt8Array:
        """Return a view of the bytes in use."""
        return self.data[: self.size]

    def used_starts(self) -> Int64Array:
        """Return a view of the positions of all records."""
        return self.starts[: self.records]


def _grown(array: np.ndarray, used: int, more: int) -> np.ndarray:
    if used + more <= len(array):
        return array
    grown = np.empty(max(used + more, 2 * len(array)), array.dtype)
    grown[:used] = array[:used]
    return grown


class EncodedRows(NamedTuple):
    """The records that one batch added to an arena."""

    rows: Int64Array
    rejects: list[Reject]
    observed: dict[str, ColumnStats]


# The first reject of each rejected row, by the index of the row in the batch.
_Rejects = dict[int, Reject]


class Encoder:
    """Encodes batches under one schema.

    Columns are matched with features by name. A column that a batch lacks counts as null in every
    row. A column that the schema lacks is left out.
    """

    def __init__(self, schema: Schema, *, merge_equal_floats: bool = False) -> None:
        self.schema = schema
        self._merge_equal_floats = merge_equal_floats
        columns = schema_tf_columns(schema)
        self._names = [column.name for parts in columns for column in parts]
        # Number of the feature of each TF column, and of the first TF column of each feature.
        self._owners = [i for i, parts in enumerate(columns) for _ in parts]
        self._firsts = [0, *itertools.accumulate(map(len, columns))][:-1]
        self._ranged = [_ranged_column(parts) for parts in columns]
        self._limits = {i: Limits.of(f) for i, f in enumerate(schema.features) if f.allowed}
        self._as_is = [not merge_equal_floats and is_encoded_as_is(f) for f in schema.features]
        # The last Arrow schema of a batch, and the index of the column of each feature in it.
        self._arrow: pa.Schema | None = None
        self._sources: list[int | None] = []
        # Relative errors of float64 columns of the current batch that are stored as bytes.
        self._errors: dict[int, float] = {}

    def encode(self, batch: Batch, arena: Arena) -> EncodedRows:
        """Append the records of `batch` to `arena`."""
        rejects: _Rejects = {}
        self._errors.clear()
        if self._arrow is None or not self._arrow.equals(batch.data.schema):
            self._arrow = batch.data.schema
            self._sources = [_column_index(self._arrow, name) for name in self.schema.names]
        arrays = [self._column(batch, i, rejects) for i in range(len(self._sources))]
        for index, limits in self._limits.items():
            feature, array = self.schema.features[index], arrays[index]
            for limit, bad_rows in limits.broken(array):
                allowed = f"{limit}: {feature.allowed[limit]!r:.80}"
                why = f"is not allowed ({allowed}): correct it, or change the schema"
                _reject_values(batch, array, bad_rows, feature.name, "not-allowed", why, rejects)
        tf_arrays = self._to_tf(batch, arrays, rejects)
        arena.reserve(2 * tf_arrays.nbytes, batch.num_rows)
        rows = np.empty(batch.num_rows, np.int64)
        starts = arena.starts[arena.records :]
        skip = np.zeros(batch.num_rows, np.uint8)
        skip[list(rejects)] = 1
        while True:
            try:
                encoded = native.encode(tf_arrays, arena.data, arena.size, starts, rows, skip)
                break
            except BufferError:
                arena.reserve(len(arena.data) + 1, 0)
        arena.size += encoded.size
        arena.records += encoded.records
        rows = rows[: encoded.records]
        for row, column, code in encoded.rejects:
            rejects.setdefault(row, self._kernel_reject(batch, row, column, code, arrays))
        indices = None if encoded.records == batch.num_rows else pa.array(rows)
        observed = self._stats(arrays, tf_arrays, encoded.max_relative_error, indices)
        return EncodedRows(rows, [rejects[row] for row in sorted(rejects)], observed)

    def _column(self, batch: Batch, index: int, rejects: _Rejects) -> pa.Array:
        """Return a column in its type in the schema, or in a more exact type that rounds to it."""
        feature, source = self.schema.features[index], self._sources[index]
        array = pa.nulls(batch.num_rows) if source is None else batch.data.column(source)
        if not feature.nullable and array.null_count:
            message = _missing_message(feature, source)
            for row in np.flatnonzero(pc.is_null(array)).tolist():
                reject = batch.reject(row, "missing-value", message, column=feature.name)
                rejects.setdefault(row, reject)
        exact = _exact_column(batch, feature)
        if exact is not None and is_text(exact.type):
            return self._convert(batch, exact, index, rejects)
        if exact is not None and feature.store == "auto":
            return exact
        if exact is not None:
            text = feature.store != "bytes"
            stored = pc.cast(to_text(array), pa.float64()) if text else array
            self._errors[index] = relative_error(stored, exact)
        return self._convert(batch, array, index, rejects)

    def _convert(self, batch: Batch, array: pa.Array, index: int, rejects: _Rejects) -> pa.Array:
        feature = self.schema.features[index]
        # As text, one number may have several notations: hash its float64 instead.
        store = "bytes" if self._merge_equal_floats and feature.store == "text" else feature.store
        try:
            converted, bad_rows, error = convert(array, feature.type, store)
        except NoConversion:
            raise SchemaConflict(
                f"column {feature.name!r} is {array.type} in the data but {feature.type} in the "
                "schema: change the schema, or convert the column first"
            ) from None
        if error:
            self._errors[index] = error
        if bad_rows is not None:
            why = f"does not fit {feature.type}: correct it, or change the type in the schema"
            _reject_values(batch, array, bad_rows, feature.name, "bad-value", why, rejects)
        return converted

    def _to_tf(self, batch: Batch, arrays: list[pa.Array], rejects: _Rejects) -> pa.RecordBatch:
        parts: list[pa.Array] = []
        for feature, as_is, array in zip(self.schema.features, self._as_is, arrays, strict=True):
            # The kernel cannot encode dictionaries, even if the schema has their plain type.
            if as_is and bare_type(array.type) == array.type:
                parts.append(array)
                continue
            made, null_rows = arrow_to_tf(
                array, feature, merge_equal_floats=self._merge_equal_floats
            )
            parts += made
            for row in null_rows:
                code = native.REJECT_CODES[native.NULL_IN_LIST]
                message = _kernel_message(native.NULL_IN_LIST, feature.name)
                value = _value_text(array[row])
                reject = batch.reject(row, code, message, column=feature.name, value=value)
                rejects.setdefault(row, reject)
        return pa.RecordBatch.from_arrays(parts, names=self._names)

    def _kernel_reject(
        self, batch: Batch, row: int, column: int, code: int, arrays: list[pa.Array]
    ) -> Reject:
        reason = native.REJECT_CODES[code]
        if column == native.WHOLE_ROW:
            return batch.reject(row, reason, _kernel_message(code))
        owner = self._owners[column]
        value = _value_text(arrays[owner][row])
        message = _kernel_message(code, self._names[column], value)
        name = self.schema.features[owner].name
        return batch.reject(row, reason, message, column=name, value=value)

    def _stats(
        self,
        arrays: list[pa.Array],
        tf_arrays: pa.RecordBatch,
        errors: Float64Array,
        indices: pa.Array | None,
    ) -> dict[str, ColumnStats]:
        """Return the statistics of the encoded rows of a batch."""
        stats = {}
        largest = np.maximum.reduceat(errors, self._firsts) if self._firsts else errors
        for i, array in enumerate(arrays):
            missing, null_structs = array.null_count, 0
            is_struct = pa.types.is_struct(bare_type(array.type))
            if is_struct or (missing and indices is not None):
                lacking = lacking_values(array)
                if indices is not None:
                    lacking = tuple(rows.take(indices) for rows in lacking)
                missing, null_structs = (rows.true_count for rows in lacking)
            low, high, nan = None, None, 0
            if (ranged := self._ranged[i]) is not None:
                values = tf_arrays.column(self._firsts[i] + ranged)
                low, high, nan = value_range(values if indices is None else values.take(indices))
            elif pa.types.is_floating(array.type):  # stored as bytes
                values = array if indices is None else array.take(indices)
                nan = pc.sum(pc.is_nan(values.cast(pa.float64()))).as_py() or 0
            error = max(float(largest[i]), self._errors.get(i, 0.0))
            name = self.schema.features[i].name
            stats[name] = ColumnStats(missing, low, high, error, nan, null_structs)
        return stats


def _reject_values(
    batch: Batch, column: pa.Array, rows: BoolArray, name: str, code: str, why: str, to: _Rejects
) -> None:
    """Add a reject of each of `rows` that has none yet, with its value of a column."""
    for row in np.flatnonzero(rows).tolist():
        value = _value_text(column[row])
        message = f"value {value} of column {name!r} {why}"
        to.setdefault(row, batch.reject(row, code, message, column=name, value=value))


def _column_index(arrow: pa.Schema, name: str) -> int | None:
    """Return the index of a column; None if there is none."""
    indices = arrow.get_all_field_indices(name)
    if len(indices) > 1:
        raise SchemaConflict(f"two columns are named {name!r}: rename one of them")
    return indices[0] if indices else None


def _ranged_column(parts: tuple[TFColumn, ...]) -> int | None:
    """Return the index of the TF column with the numbers or times of a feature; None if none.

    A feature with several TF columns of values, such as a struct, has no range.
    """
    values = [i for i, column in enumerate(parts) if column.role == VALUES]
    column = parts[values[0]]
    is_number = column.kind != BYTES and not pa.types.is_boolean(column.type)
    return values[0] if len(values) == 1 and is_number else None


def value_range(values: pa.Array) -> tuple[float | int | None, float | int | None, int]:
    """Return the smallest and the largest finite value, as stored, and the number of NaNs.

    Without a finite value, the first two are None.
    """
    while pa.types.is_nested(values.type):
        values = values.flatten()
    if values.null_count:
        values = values.drop_null()
    numbers = values.to_numpy(zero_copy_only=False)
    if not len(numbers):
        return None, None, 0
    if numbers.dtype.kind != "f":
        return int(numbers.min()), int(numbers.max()), 0
    nan = 0
    if not (math.isfinite(numbers.min()) and math.isfinite(numbers.max())):
        nan = int(np.count_nonzero(np.isnan(numbers)))
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return None, None, nan
    low, high = float(numbers.min()), float(numbers.max())
    # Adding 0.0 turns -0.0 into 0.0: which of the two is found depends on the order of the rows.
    return float(np.float32(low)) + 0.0, float(np.float32(high)) + 0.0, nan


def _exact_column(batch: Batch, feature: Feature) -> pa.Array | None:
    """Return the exact numbers (`Batch.numbers`) of a float feature, or None if it has none."""
    is_float = pa.types.is_float32(feature.type) or pa.types.is_float64(feature.type)
    if batch.numbers is None or not is_float or feature.name not in batch.numbers.schema.names:
        return None
    return batch.numbers.column(feature.name)


def _missing_message(feature: Feature, source: int | None) -> str:
    what = "is not in the data" if source is None else "has no value"
    return f"column {feature.name!r} {what}, which the schema requires: make it nullable there"


_KERNEL_MESSAGES = {
    native.INTEGER_OVERFLOW: (
        "value {value} of column {name!r} does not fit int64: store it as text in the schema, "
        "or, of an array, as bytes"
    ),
    native.FLOAT_OVERFLOW: (
        "value {value} of column {name!r} is beyond the range of float32: "
        "store it as bytes or text in the schema"
    ),
    native.INVALID_UTF8: (
        "text of column {name!r} is not valid UTF-8: make its type bytes in the schema"
    ),
    native.NULL_IN_LIST: (
        "a list of column {name!r} has a null in it: give a fill in the schema; if it is a list or "
        "struct, put an empty one there"
    ),
}
_TOO_LARGE = "the example would be larger than 2147483647 bytes: leave columns out or split the row"


def _kernel_message(code: int, name: str = "", value: str = "") -> str:
    """Return why the kernel rejected a row; `code` is one of `native.REJECT_CODES`."""
    return _KERNEL_MESSAGES.get(code, _TOO_LARGE).format(name=name, value=value)


def _value_text(value: pa.Scalar) -> str:
    """Return a value as text for messages, cut to `MAX_VALUE_CHARS`."""
    try:
        (python,) = python_values(pa.repeat(value, 1))
    except UnicodeDecodeError:
        # Such text is what rejects may report.
        python = pa.repeat(value, 1).view(with_bytes(value.type))[0].as_py()
    if isinstance(python, bytes):
        return _decoded(python)
    # NumPy shows an array on several lines.
    text = python if isinstance(python, str) else " ".join(str(python).split())
    return text[:MAX_VALUE_CHARS]


def _decoded(raw: bytes) -> str:
    return raw[: 4 * MAX_VALUE_CHARS].decode("utf-8", "backslashreplace")[:MAX_VALUE_CHARS]


class ColumnHashes:
    """Hashes columns by their canonical encoding, so that equal values of any source agree.

    Equal numbers have equal hashes: 0.0 and -0.0 share one, and all NaNs share one.
    """

    def __init__(self, given: Schema | None) -> None:
        self._given = given
        self._encoders: dict[tuple[str, ...], tuple[pa.Schema, Encoder]] = {}
        self._arena = Arena()

    def hashes(
        self, batch: Batch, columns: tuple[str, ...], rows: Int64Array, seed: int
    ) -> UInt64Array:
        """Return a hash of `columns` for each of `rows`, shape `[len(rows)]`."""
        data = batch.data.select(list(columns))
        known = self._encoders.get(columns)
        if known is None or known[0] != data.schema:
            # Hash the values as the dataset stores them, so that they do not depend on the source.
            given = self._given
            if given is not None and all(name in given for name in columns):
                schema = given.select(columns)
            else:
                schema = Schema.from_arrow(data.schema)
            known = (data.schema, Encoder(schema, merge_equal_floats=True))
            self._encoders[columns] = known
        self._arena.reset()
        encoded = known[1].encode(Batch(data, numbers=batch.numbers), self._arena)
        hashes = native.hash_records(self._arena.data, self._arena.used_starts(), seed)
        if len(encoded.rows) == batch.num_rows:
            return hashes[rows]
        # A row that these columns alone reject was also rejected as a whole: it needs no hash.
        by_row = np.zeros(batch.num_rows, np.uint64)
        by_row[encoded.rows] = hashes
        return by_row[rows]
