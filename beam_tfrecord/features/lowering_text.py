"""Exact text of numbers and times, and back: what ``store: text`` keeps.

Arrow casts most types to text and back. What it cannot parse (times of day, durations), or prints
in local time, is done here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.features.type_kinds import bare_type, is_binary, is_text

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
# Where the 32 hexadecimal digits of a UUID stand in its 36 characters.
_UUID_DIGITS = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])


def to_text(values: pa.Array) -> pa.Array:
    """Return numbers, booleans or times as text: decimal digits, or ISO 8601.

    Timestamps with a zone are written in UTC, durations as their number of units.
    """
    arrow = values.type
    if pa.types.is_duration(arrow):
        return pc.cast(values.view(pa.int64()), pa.string())
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return pc.cast(pc.cast(values, pa.timestamp(arrow.unit, "UTC")), pa.string())
    if pa.types.is_float16(arrow):
        return pc.cast(pc.cast(values, pa.float32()), pa.string())
    return pc.cast(values, pa.string())


def from_text(text: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Parse text into `arrow`; the inverse of `to_text`.

    Raises:
        pyarrow.ArrowInvalid: A text does not say a value of that type.
    """
    if pa.types.is_duration(arrow):
        return pc.cast(text, pa.int64()).view(arrow)
    if pa.types.is_time(arrow):
        return _times_from_text(text, arrow)
    if pa.types.is_float16(arrow):
        return pc.cast(pc.cast(text, pa.float32()), arrow)
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        return pc.cast(pc.cast(text, pa.timestamp(arrow.unit, "UTC")), arrow)
    if pa.types.is_decimal(arrow):
        return _decimals_from_text(text, arrow)
    return pc.cast(text, arrow)


def _decimals_from_text(text: pa.Array, arrow: pa.DataType) -> pa.Array:
    made = pc.cast(text, arrow)
    # Arrow makes 0 of a number that is 39 digits finer than the type.
    zeros = text.filter(pc.equal(made, pa.scalar(0, arrow)))
    if pc.any(pc.match_substring_regex(zeros, "^[^eE]*[1-9]")).as_py():
        raise pa.ArrowInvalid(f"a number is finer than {arrow}")
    return made


def _times_from_text(text: pa.Array, arrow: pa.DataType) -> pa.Array:
    # Arrow parses no times of day, but it parses timestamps: on the first day they are the same.
    on_first_day = pc.binary_join_element_wise(
        pa.scalar("1970-01-01"), pc.cast(text, pa.string()), " "
    )
    ticks = pc.cast(on_first_day, pa.timestamp(arrow.unit)).view(pa.int64())
    is_32_bit = pa.types.is_time32(arrow)
    return (pc.cast(ticks, pa.int32()) if is_32_bit else ticks).view(arrow)


def uuid_to_text(storage: pa.Array) -> pa.Array:
    """Return 16-byte UUIDs in their canonical form: lower case, 8-4-4-4-12."""
    rows = len(storage)
    if not rows:
        return pa.array([], pa.string())
    raw = np.frombuffer(storage.buffers()[1], np.uint8)
    raw = raw[storage.offset * 16 : (storage.offset + rows) * 16].reshape(rows, 16)
    text = np.full((rows, 36), ord("-"), np.uint8)
    text[:, _UUID_DIGITS[0::2]] = _HEX[raw >> 4]
    text[:, _UUID_DIGITS[1::2]] = _HEX[raw & 15]
    missing = pc.is_null(storage).to_numpy(zero_copy_only=False) if storage.null_count else None
    return pc.cast(fixed_binary(text, 36, missing), pa.string())


def uuid_from_text(text: pa.Array) -> pa.Array:
    """Return the 16 bytes of UUIDs written as text, in either case, with or without dashes.

    Raises:
        pyarrow.ArrowInvalid: A text is not a UUID.
    """
    digits = pc.replace_substring(pc.cast(text, pa.string()), "-", "")
    good = pc.match_substring_regex(digits, "^[0-9a-fA-F]{32}$")
    if pc.any(pc.invert(good)).as_py():
        first = text.filter(pc.invert(good))[0].as_py()
        raise pa.ArrowInvalid(f"{first!r} is not a uuid")
    missing = pc.is_null(digits).to_numpy(zero_copy_only=False) if digits.null_count else None
    joined = "".join(pc.fill_null(digits, "0" * 32).to_pylist())
    return fixed_binary(np.frombuffer(bytes.fromhex(joined), np.uint8), 16, missing)


def fixed_binary(
    data: np.ndarray, width: int, missing: np.ndarray | None, *, rows: int | None = None
) -> pa.Array:
    """Wrap C-contiguous `data` as binary values of `width` bytes, without copying it."""
    rows = rows if rows is not None else data.nbytes // width
    validity = None
    if missing is not None:
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(width), rows, [validity, pa.py_buffer(data)])


def reads_text(arrow: pa.DataType) -> bool:
    """Tell whether values of `arrow` are bytes or text that can be parsed."""
    arrow = bare_type(arrow)
    return is_text(arrow) or is_binary(arrow)
