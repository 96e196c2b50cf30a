"""Arrow batches into framed, canonical tf.train.Examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.native.values import (
    BYTES_KIND,
    FLOAT_KIND,
    FLOAT_OVERFLOW,
    INT64_KIND,
    INTEGER_OVERFLOW,
    INVALID_UTF8,
    NULL_IN_LIST,
    TOO_LARGE,
    WHOLE_ROW,
    Encoded,
)
from tests.native.reference import wire

_MAX_PAYLOAD_BYTES = 2**31 - 1
_MAX_INT64 = 2**63 - 1
_TEXT_TYPES = (pa.string(), pa.large_string(), pa.string_view())
_BINARY_TYPES = (pa.binary(), pa.large_binary(), pa.binary_view())


@dataclass(frozen=True)
class _Cell:
    """One value: its bytes on the wire, the code of its fault or 0, and its relative error."""

    wire: bytes
    fault: int = 0
    relative_error: float = 0.0


@dataclass(frozen=True)
class _Feature:
    """One column: for each row its cells, or None where the row is null."""

    name: bytes
    kind: int
    rows: list[list[_Cell] | None] = field(repr=False)


def encode_bound(batch):
    """Return an upper bound of the bytes `encode` writes into `out` for this batch.

    Raises:
        TypeError: A column has a type without an encoding.
        ValueError: Two columns have one name.
    """
    payloads = _payloads(_features(batch), batch.num_rows, [True] * batch.num_rows)
    return 16 + sum(wire.FRAME_BYTES + len(payload) for payload in payloads)


def encode(
    batch: pa.RecordBatch,
    out: npt.NDArray[np.uint8],
    at: int,
    starts: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    skip: npt.NDArray[Any] | None = None,
) -> Encoded:
    """Write the rows of a batch as framed Examples.

    Canonical: features in byte order of their names, packed numbers, minimal varints; a null is an
    absent feature, an empty list a feature with its kind set and no value.

    Args:
        batch: Columns named as features; numbers, bool, text, binary, and lists of those.
        out: Where to write; the kernel may also scribble on 16 bytes behind the last record.
        at: Position in `out` of the first record.
        starts: int64[>= rows]; gets the position in `out` of each record.
        rows: int64[>= rows]; gets the row number in the batch of each record.
        skip: uint8 or bool [rows]; rows to leave out silently.

    Raises:
        TypeError: A column has a type without an encoding.
        ValueError: Two columns have one name, or an array is too short.
    """
    features = _features(batch)
    if len(starts) < batch.num_rows or len(rows) < batch.num_rows:
        raise ValueError(f"starts and rows must have room for {batch.num_rows} rows")
    if skip is not None and len(skip) != batch.num_rows:
        raise ValueError(f"{len(skip)} skip marks for {batch.num_rows} rows")
    wanted = [skip is None or not skip[row] for row in range(batch.num_rows)]
    faults = [_fault(features, row) if wanted[row] else None for row in range(batch.num_rows)]
    written = [wanted[row] and faults[row] is None for row in range(batch.num_rows)]
    payloads = _payloads(features, batch.num_rows, written)
    position, records = at, 0
    for row, payload in enumerate(payloads):
        if not written[row]:
            continue
        if len(payload) > _MAX_PAYLOAD_BYTES:
            faults[row], written[row] = (WHOLE_ROW, TOO_LARGE), False
            continue
        record = np.frombuffer(wire.framed(payload), np.uint8)
        if len(out) - position < len(record) + 16:
            raise ValueError("out is too short: encode_bound(batch) tells the bytes it needs")
        out[position : position + len(record)] = record
        starts[records], rows[records] = position, row
        position, records = position + len(record), records + 1
    rejects = [(row, *fault) for row, fault in enumerate(faults) if fault is not None]
    errors = [_max_relative_error(feature, written) for feature in features]
    return Encoded(position - at, records, rejects, np.array(errors, np.float64))


def _fault(features, row):
    """Return column and code of the first fault of the row, in the batch's order."""
    for column, feature in enumerate(features):
        codes = {cell.fault for cell in feature.rows[row] or ()} - {0}
        if codes:
            return column, NULL_IN_LIST if NULL_IN_LIST in codes else codes.pop()
    return None


def _max_relative_error(feature, written):
    return max(
        (
            cell.relative_error
            for cells, is_written in zip(feature.rows, written, strict=True)
            if is_written
            for cell in cells or ()
        ),
        default=0.0,
    )


def _payloads(features, row_count, written):
    """Return the Example of each row; an empty payload for the rows that are not written."""
    by_name = sorted(features, key=lambda feature: feature.name)
    payloads = []
    for row in range(row_count):
        entries = b""
        for feature in by_name:
            cells = feature.rows[row]
            if cells is not None and written[row]:
                values = [cell.wire for cell in cells]
                entries += wire.feature_entry(feature.name, feature.kind, values)
        payloads.append(wire.field(1, entries) if written[row] else b"")
    return payloads


def _features(batch):
    names = batch.schema.names
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"column {name!r} is there twice")
    return [_feature(name, batch.column(i)) for i, name in enumerate(names)]


def _feature(name, array):
    rows: list[list[_Cell] | None]
    valid = array.is_valid().to_pylist()
    arrow_type = array.type
    if pa.types.is_fixed_size_list(arrow_type):
        kind, cells = _cells(name, array.values, arrow_type)
        size = arrow_type.list_size
        bounds = [(array.offset + row) * size for row in range(len(array) + 1)]
    elif pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        kind, cells = _cells(name, array.values, arrow_type)
        bounds = array.offsets.to_pylist()
    else:
        kind, cells = _cells(name, array, arrow_type)
        rows = [[cell] if ok else None for cell, ok in zip(cells, valid, strict=True)]
        return _Feature(name.encode(), kind, rows)
    rows = [cells[bounds[r] : bounds[r + 1]] if valid[r] else None for r in range(len(array))]
    return _Feature(name.encode(), kind, rows)


def _cells(name, array, shown_type):
    """Return the kind and all values of a flat array; a null one has its fault already."""
    arrow_type = array.type
    if pa.types.is_boolean(arrow_type) or pa.types.is_integer(arrow_type):
        kind, cells = INT64_KIND, [_int_cell(value) for value in array.to_pylist()]
    elif pa.types.is_floating(arrow_type):
        kind, cells = FLOAT_KIND, _float_cells(array)
    elif arrow_type in _TEXT_TYPES:
        binary = array.cast(_BINARY_TYPES[_TEXT_TYPES.index(arrow_type)])
        kind, cells = BYTES_KIND, [_text_cell(value) for value in binary.to_pylist()]
    elif arrow_type in _BINARY_TYPES or pa.types.is_fixed_size_binary(arrow_type):
        kind, cells = BYTES_KIND, [_Cell(value or b"") for value in array.to_pylist()]
    else:
        raise TypeError(f"column {name!r} is {shown_type}, which has no encoding")
    valid = array.is_valid().to_pylist()
    missing = _Cell(b"", NULL_IN_LIST)
    return kind, [cell if ok else missing for cell, ok in zip(cells, valid, strict=True)]


def _int_cell(value):
    return _Cell(wire.varint(value or 0), INTEGER_OVERFLOW if (value or 0) > _MAX_INT64 else 0)


def _text_cell(value):
    try:
        (value or b"").decode("utf-8", "strict")
    except UnicodeDecodeError:
        return _Cell(b"", INVALID_UTF8)
    return _Cell(value or b"")


def _float_cells(array):
    buffer, width = array.buffers()[1], array.type.bit_width // 8
    memory = b"" if buffer is None else buffer.to_pybytes()
    stop = array.offset + len(array)
    values = np.frombuffer(memory[: width * stop], f"<f{width}")[array.offset :]
    with np.errstate(all="ignore"):
        narrow = _widen_half(values) if width == 2 else values.astype("<f4")
        if width == 8:
            overflow = np.isinf(narrow) & ~np.isinf(values)
            lost = np.abs(values - narrow.astype("<f8"))
            errors = np.where((lost > 0) & np.isfinite(values), lost / np.abs(values), 0.0)
        else:
            overflow, errors = np.zeros(len(values), bool), np.zeros(len(values))
    return [
        _Cell(bits.tobytes(), FLOAT_OVERFLOW if bad else 0, float(error))
        for bits, bad, error in zip(narrow.view("<u4"), overflow, errors, strict=True)
    ]


def _widen_half(values):
    """Return float32 of the same values; processors differ in signalling NaNs, so those by hand."""
    bits = values.view("<u2").astype("<u4")
    of_nans = (bits & 0x8000) << 16 | 0x7F800000 | (bits & 0x3FF) << 13
    widened = values.astype("<f4").view("<u4")
    return np.where(np.isnan(values), of_nans, widened).astype("<u4").view("<f4")
