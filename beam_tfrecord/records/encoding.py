"""`Encoder`: batches in, framed canonical `tf.train.Example` records out.

A batch goes ``enforce -> lower -> kernel``: its columns are brought to the types of the schema,
then to the plain columns of the kernel, which writes the bytes. Where the types are equal and
plain already, the batch goes to the kernel as it is.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord import native
from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import SchemaConflict, UsageError
from beam_tfrecord.features.arrow_arrays import null_positions, relative_error, to_text
from beam_tfrecord.features.arrow_to_tf import lower, needs_lowering
from beam_tfrecord.features.arrow_types import bare_type, is_text
from beam_tfrecord.features.convert_to_schema import NoConversion, enforce, same_values
from beam_tfrecord.features.feature import Feature, Observed
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.type_contract import BYTES, VALUES, Leaf, schema_leaves


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedRows:
    """What encoding one batch added to an arena.

    Attributes:
        first_record: Number of the first new record in the arena.
        records: Number of new records.
        rows: int64 row number within the batch of each new record.
        rejects: The rows that gave no record, in order.
        observed: What the encoded rows show, by column.
    """

    first_record: int
    records: int
    rows: npt.NDArray[np.int64]
    rejects: list[RowReject]
    observed: dict[str, Observed]


class _Plan(NamedTuple):
    """How to find the features in batches of one Arrow schema."""

    arrow: pa.Schema
    columns: tuple[int | None, ...]
    same: tuple[bool, ...]
    as_is: bool


class Encoder:
    """Encodes batches under one schema.

    Columns are found by name. One that is missing counts as null in every row; one that the schema
    does not have is left out, unless `strict`.

    Args:
        schema: The features of the records.
        strict: Refuse batches with a column, not all null, that `schema` does not have.
        one_zero: Give floats that are equal the same bytes, and so every NaN: the records are to be
            hashed, not stored.
    """

    def __init__(self, schema: Schema, *, strict: bool = False, one_zero: bool = False) -> None:
        self.schema = schema
        self._strict = strict
        self._one_zero = one_zero
        self._leaves = schema_leaves(schema)
        self._names = [leaf.name for column in self._leaves for leaf in column]
        self._owners = [i for i, column in enumerate(self._leaves) for _ in column]
        self._lowered = tuple(one_zero or needs_lowering(feature) for feature in schema.features)
        self._observer = Observer(schema, self._leaves)
        self._plan: _Plan | None = None
        # By column, of the batch at hand: relative errors of float64 that are stored in bytes.
        self._errors: dict[int, float] = {}

    def encode(self, batch: Batch, arena: Arena) -> EncodedRows:
        """Append the records of `batch` to `arena`.

        Raises:
            SchemaConflict: A column has a type that the schema's type has no values in common
                with, or, if strict, the batch has a column of its own.
        """
        data = batch.data
        plan = self._plan_of(data)
        faults = Faults(data.num_rows)
        self._errors.clear()
        arrays = [self._column(batch, plan, i, faults) for i in range(len(plan.columns))]
        is_plain = plan.as_is and batch.numbers is None
        lowered = data if is_plain else self._lower(arrays, faults)
        arena.reserve(native.encode_bound(lowered), data.num_rows)
        rows = np.empty(data.num_rows, np.int64)
        first = arena.records
        starts = arena.starts[first:]
        encoded = native.encode(lowered, arena.data, arena.size, starts, rows, faults.skip())
        arena.size += encoded.size
        arena.records += encoded.records
        rows = rows[: encoded.records]
        for row, column, code in encoded.rejects:
            self._add_kernel_reject(row, column, code, arrays, faults)
        kept = None if encoded.records == data.num_rows else rows
        errors = encoded.max_relative_error
        if self._errors:
            errors = np.maximum(errors, [self._errors.get(owner, 0.0) for owner in self._owners])
        observed = self._observer.observe(arrays, lowered, errors, kept)
        return EncodedRows(first, encoded.records, rows, faults.in_order(), observed)

    def _plan_of(self, data: pa.RecordBatch) -> _Plan:
        arrow = data.schema
        if self._plan is None or not self._plan.arrow.equals(arrow):
            self._plan = self._make_plan(data)
        if self._strict:
            for name in set(arrow.names) - set(self.schema.names):
                if data.column(name).null_count < data.num_rows:
                    raise SchemaConflict(
                        f"column {name!r} is in the data but not in the schema: "
                        "add it to the schema, or leave it out of the columns read"
                    )
        return self._plan

    def _make_plan(self, data: pa.RecordBatch) -> _Plan:
        arrow, features = data.schema, self.schema.features
        columns: list[int | None] = []
        same: list[bool] = []
        for feature in features:
            places = arrow.get_all_field_indices(feature.name)
            if len(places) > 1:
                raise SchemaConflict(f"two columns are named {feature.name!r}: rename one of them")
            columns.append(places[0] if places else None)
            same.append(bool(places) and same_values(arrow.types[places[0]], feature.type))
        encoded = any(bare_type(arrow.types[i]) != arrow.types[i] for i in columns if i is not None)
        as_is = (
            columns == list(range(len(arrow.names)))
            and all(same)
            and not encoded
            and not any(self._lowered)
        )
        return _Plan(arrow, tuple(columns), tuple(same), as_is)

    def _column(self, batch: Batch, plan: _Plan, index: int, faults: Faults) -> pa.Array:
        """Return one column in the type of the schema, or in a more exact one that rounds to it."""
        data = batch.data
        feature, place = self.schema.features[index], plan.columns[index]
        array = pa.nulls(data.num_rows) if place is None else data.column(place)
        if not feature.nullable and array.null_count:
            for row in null_positions(array).tolist():
                faults.add(row, feature.name, "missing-value", _missing_message(feature, place))
        exact = _exact_column(batch, feature)
        if exact is not None and is_text(exact.type):
            array = exact
        elif exact is not None and feature.store == "auto":
            return exact
        elif exact is not None:
            stored = array if feature.store == "bytes" else _said(array)
            self._errors[index] = relative_error(stored, exact)
        if plan.same[index] and array is not exact:
            return array
        # Two texts may say one number.
        store = "bytes" if self._one_zero and feature.store == "text" else feature.store
        try:
            enforced, bad_rows, error = enforce(array, feature.type, store)
        except NoConversion:
            raise SchemaConflict(
                f"column {feature.name!r} is {array.type} in the data but {feature.type} in the "
                "schema: change the schema, or convert the column first"
            ) from None
        if error:
            self._errors[index] = error
        if bad_rows is not None:
            for row in np.flatnonzero(bad_rows).tolist():
                value = value_text(array[row])
                message = (
                    f"value {value} of column {feature.name!r} does not fit {feature.type}: "
                    "correct it, or change the type in the schema"
                )
                faults.add(row, feature.name, "bad-value", message, value)
        return enforced

    def _lower(self, arrays: list[pa.Array], faults: Faults) -> pa.RecordBatch:
        leaves: list[pa.Array] = []
        for feature, must, array in zip(self.schema.features, self._lowered, arrays, strict=True):
            # The kernel takes no dictionary: such a column is lowered whatever the schema says.
            if not must and bare_type(array.type) == array.type:
                leaves.append(array)
                continue
            lowered = lower(array, feature, one_zero=self._one_zero)
            leaves += lowered.arrays
            if lowered.null_in_list is not None:
                for row in np.flatnonzero(lowered.null_in_list).tolist():
                    code = native.REJECT_CODES[native.NULL_IN_LIST]
                    value = value_text(array[row])
                    message = kernel_message(native.NULL_IN_LIST, feature.name, value)
                    if feature.fill is not None:
                        message = null_list_message(feature.name)
                    faults.add(row, feature.name, code, message, value)
        return pa.RecordBatch.from_arrays(leaves, names=self._names)

    def _add_kernel_reject(
        self, row: int, leaf: int, code: int, arrays: list[pa.Array], faults: Faults
    ) -> None:
        reason = native.REJECT_CODES[code]
        if leaf == native.WHOLE_ROW:
            faults.add(row, "", reason, kernel_message(code))
            return
        owner = self._owners[leaf]
        value = value_text(arrays[owner][row])
        column = self.schema.features[owner].name
        faults.add(row, column, reason, kernel_message(code, self._names[leaf], value), value)


def _exact_column(batch: Batch, feature: Feature) -> pa.Array | None:
    """Return the more exact numbers of a feature of floats, or their text, where there are any."""
    is_float = pa.types.is_float32(feature.type) or pa.types.is_float64(feature.type)
    if batch.numbers is None or not is_float or feature.name not in batch.numbers.schema.names:
        return None
    return batch.numbers.column(feature.name)


def _said(values: pa.Array) -> pa.Array:
    """Return what the text of floats says."""
    return pc.cast(to_text(values), pa.float64())


def encode_examples(elements: Iterable[Any], arena: Arena) -> EncodedRows:
    """Append elements that are examples already to `arena`.

    Args:
        elements: `tf.train.Example` messages, which are written canonically, or serialized bytes,
            which are written untouched.
        arena: Where the records go.

    Raises:
        UsageError: An element is neither.
    """
    payloads = [serialize_example(element) for element in elements]
    faults = Faults(len(payloads))
    rows = [row for row, payload in enumerate(payloads) if len(payload) < 2**31]
    for row, payload in enumerate(payloads):
        if len(payload) >= 2**31:
            message = kernel_message(native.TOO_LARGE)
            faults.add(row, "", native.REJECT_CODES[native.TOO_LARGE], message)
    array = pa.array([payloads[row] for row in rows], pa.large_binary())
    arena.reserve(native.frame_bound(array), len(rows))
    first = arena.records
    arena.size += native.frame(array, arena.data, arena.size, arena.starts[first:])
    arena.records += len(rows)
    return EncodedRows(first, len(rows), np.array(rows, np.int64), faults.in_order(), {})


def serialize_example(element: Any) -> bytes:
    """Return the bytes of a `tf.train.Example`, canonical; bytes stay as they are.

    Raises:
        UsageError: `element` is neither an Example nor bytes.
    """
    if isinstance(element, bytes):
        return element
    descriptor = getattr(element, "DESCRIPTOR", None)
    if getattr(descriptor, "full_name", "") != "tensorflow.Example":
        raise UsageError(
            f"an element is of type {type(element).__name__}: "
            "give tf.train.Example messages or their serialized bytes"
        )
    canonical = native.canonicalize(element.SerializeToString())
    if canonical is None:
        raise UsageError("a tf.train.Example could not be serialized: build it anew")
    return canonical


def _missing_message(feature: Feature, place: int | None) -> str:
    what = "is not in the data" if place is None else "has no value"
    return f"column {feature.name!r} {what}, which the schema requires: make it nullable there"


MAX_VALUE_CHARS = 200


class RowReject(NamedTuple):
    """A row of a batch that could not be encoded: what `Reject` says, with its row in the batch."""

    row: int
    column: str
    code: str
    message: str
    value: str


class Faults:
    """The rejects of one batch: at most one a row, the first to be found."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._found: dict[int, RowReject] = {}

    def add(self, row: int, column: str, code: str, message: str, value: str = "") -> None:
        """Reject a row, unless it is rejected already."""
        self._found.setdefault(row, RowReject(row, column, code, message, value))

    def skip(self) -> npt.NDArray[np.uint8] | None:
        """Return which rows the kernel leaves out; None where it takes all."""
        if not self._found:
            return None
        skip = np.zeros(self._rows, np.uint8)
        skip[list(self._found)] = 1
        return skip

    def in_order(self) -> list[RowReject]:
        """Return the rejects by row."""
        return [self._found[row] for row in sorted(self._found)]


def kernel_message(code: int, name: str = "", value: str = "") -> str:
    """Say why the kernel rejected a row, by `native.REJECT_CODES`."""
    if code == native.INTEGER_OVERFLOW:
        return (
            f"value {value} of column {name!r} does not fit int64: store it as text in the schema, "
            "or, of an array, as bytes"
        )
    if code == native.FLOAT_OVERFLOW:
        return (
            f"value {value} of column {name!r} is beyond the range of float32: "
            "store it as bytes or text in the schema"
        )
    if code == native.INVALID_UTF8:
        return f"text of column {name!r} is not valid UTF-8: make its type bytes in the schema"
    if code == native.NULL_IN_LIST:
        return f"a list of column {name!r} has a null in it: give a fill in the schema"
    return "the example would be larger than 2147483647 bytes: leave columns out or split the row"


def null_list_message(name: str) -> str:
    """Say why a row was rejected that has a null where a fill is no value."""
    return (
        f"a list of column {name!r} has a null list or struct in it, which a fill cannot replace: "
        "put an empty one there"
    )


def value_text(value: pa.Scalar) -> str:
    """Return a value for a human, cut to `MAX_VALUE_CHARS`."""
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        # as_py would fail on text that is not UTF-8, which is what is reported here.
        value = value.cast(pa.large_binary()) if pa.types.is_large_string(value.type) else value
        raw = value.as_buffer() if value.is_valid else None
        return "" if raw is None else _decoded(raw.to_pybytes())
    try:
        python = value.as_py()
    except (ValueError, OverflowError):
        return str(value)[:MAX_VALUE_CHARS]
    if isinstance(python, bytes):
        return _decoded(python)
    # An array is shown on several lines.
    return " ".join(str(python).split())[:MAX_VALUE_CHARS]


def _decoded(raw: bytes) -> str:
    return raw[: 4 * MAX_VALUE_CHARS].decode("utf-8", "backslashreplace")[:MAX_VALUE_CHARS]


# Mostly more than a run takes: memory that is not touched costs nothing, to grow costs a copy.
RUN_ROOM_BYTES = 128 * 2**20


class Arena:
    """Framed records one after another, with the position of each.

    Memory is kept over `reset` and doubled when it runs out, so that a worker that encodes one
    group after another allocates only a few times.

    Attributes:
        data: uint8 buffer; the first `size` bytes are in use.
        size: Bytes in use.
        starts: int64 buffer of the positions of the records in `data`; the first `records` are
            in use.
        records: Number of records.
    """

    def __init__(self, *, capacity_bytes: int = 1 << 20, capacity_records: int = 1 << 12) -> None:
        self.data: npt.NDArray[np.uint8] = np.empty(capacity_bytes, np.uint8)
        self.starts: npt.NDArray[np.int64] = np.empty(capacity_records, np.int64)
        self.size = 0
        self.records = 0

    def reserve(self, num_bytes: int, num_records: int) -> None:
        """Make room for so much more; what is in use keeps its position."""
        self.data = _grown(self.data, self.size, num_bytes)
        self.starts = _grown(self.starts, self.records, num_records)

    def reset(self) -> None:
        """Forget all records and keep the memory."""
        self.size = 0
        self.records = 0

    def replace(
        self, first: int, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64]
    ) -> None:
        """Put others in the place of the last records.

        Args:
            first: Number of the first of them; there is one.
            data: As many records, one after another.
            starts: Position of each in `data`.
        """
        self.size = int(self.starts[first])
        self.reserve(len(data), 0)
        self.data[self.size : self.size + len(data)] = data
        self.starts[first : self.records] = self.size + starts
        self.size += len(data)

    def used_data(self) -> npt.NDArray[np.uint8]:
        """Return a view of the bytes in use."""
        return self.data[: self.size]

    def used_starts(self) -> npt.NDArray[np.int64]:
        """Return a view of the positions of all records."""
        return self.starts[: self.records]


def _grown(array: np.ndarray, used: int, more: int) -> np.ndarray:
    if used + more <= len(array):
        return array
    grown = np.empty(max(used + more, 2 * len(array)), array.dtype)
    grown[:used] = array[:used]
    return grown


class Observer:
    """Observes the columns of batches of one schema.

    A column with one leaf of numbers or times (scalars or lists) has a range; one with several,
    such as a struct, has none.

    Args:
        schema: The schema.
        leaves: The leaves of each of its features.
    """

    def __init__(self, schema: Schema, leaves: tuple[tuple[Leaf, ...], ...]) -> None:
        self._names = schema.names
        self._ranged: list[int | None] = []
        self._spans: list[tuple[int, int]] = []
        at = 0
        for column in leaves:
            values = [i for i, leaf in enumerate(column) if leaf.role == VALUES]
            leaf = column[values[0]]
            has_range = (
                len(values) == 1 and leaf.kind != BYTES and not pa.types.is_boolean(leaf.type)
            )
            self._ranged.append(at + values[0] if has_range else None)
            self._spans.append((at, at + len(column)))
            at += len(column)

    def observe(
        self,
        columns: list[pa.Array],
        lowered: pa.RecordBatch,
        errors: npt.NDArray[np.float64],
        kept: npt.NDArray[np.int64] | None,
    ) -> dict[str, Observed]:
        """Return what a batch shows.

        Args:
            columns: The columns before lowering.
            lowered: The leaves of all columns.
            errors: Largest relative rounding error of each leaf.
            kept: Rows that were encoded; None for all.
        """
        indices = None if kept is None else pa.array(kept)
        observed = {}
        for i, (name, column) in enumerate(zip(self._names, columns, strict=True)):
            if indices is not None and column.null_count:
                missing = pc.is_null(column).take(indices).true_count
            else:
                missing = column.null_count
            low = high = None
            if (leaf := self._ranged[i]) is not None:
                values = lowered.column(leaf)
                low, high = value_range(values if indices is None else values.take(indices))
            start, stop = self._spans[i]
            observed[name] = Observed(missing, low, high, float(errors[start:stop].max()))
        return observed


def value_range(values: pa.Array) -> tuple[float | int | None, float | int | None]:
    """Return the smallest and the largest finite value, as stored; None where there is none."""
    while pa.types.is_nested(values.type):
        values = values.flatten()
    if values.null_count:
        values = values.drop_null()
    if not len(values):
        return None, None
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind != "f":
        return int(numbers.min()), int(numbers.max())
    low, high = float(numbers.min()), float(numbers.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return None, None
        low, high = float(numbers.min()), float(numbers.max())
    # There are two zeros, and which one is found depends on the order of the rows.
    return float(np.float32(low)) + 0.0, float(np.float32(high)) + 0.0
