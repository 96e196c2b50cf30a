"""What CSV fields mean, in plain Python: the part of `csv_reference` that looks at values."""

from __future__ import annotations

import datetime
import fractions
import math
import re
import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

BOOL, INT, BIG_INT, FLOAT, DATE, TIME, ZONED_TIME, TEXT = (1 << bit for bit in range(8))
(AS_NULL, AS_BOOL, AS_INT, AS_FLOAT, AS_DOUBLE, AS_DATE, AS_TIME, AS_TEXT, AS_BYTES, AS_WORDS) = (
    range(10)
)

_INTEGER = re.compile(rb"-?[0-9]+")
_DECIMAL = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(rb"-?(nan|inf|infinity)", re.IGNORECASE)
_TIME = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    rb"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


class Target(NamedTuple):
    """What a column of the file is read as: one of the ``AS_`` kinds and its limits.

    Attributes:
        column: Number of the column in the file.
        kind: ``AS_BOOL`` (one byte a value), ``AS_INT``, ``AS_DATE`` (int32 days), ``AS_TIME``
            (int64 ticks), ``AS_TEXT`` (UTF-8 without NUL), ``AS_BYTES``, ``AS_WORDS`` (text in
            which blanks around a value and words for null are taken away) …
        width: Bytes a value.
        low: Least integer.
        high: Greatest integer.
        ticks: Ticks a second.
        zoned: Times carry a zone; without it, they must not.
    """

    column: int
    kind: int
    width: int = 0
    low: int = 0
    high: int = 0
    ticks: int = 1
    zoned: bool = False


def powers_of_five() -> npt.NDArray[np.uint64]:
    """Return the 128 leading bits of 5^q, q from -342 to 308, as high and low words.

    Positive powers are cut off; negative ones are rounded up, as Eisel-Lemire wants them.
    """
    words = []
    for power in range(-342, 309):
        if power >= 0:
            exact = 5**power
            shift = exact.bit_length() - 128
            bits = exact >> shift if shift > 0 else exact << -shift
        else:
            divisor = 5**-power
            bits = (1 << (divisor.bit_length() + 127)) // divisor + 1
        words += [bits >> 64, bits & (2**64 - 1)]
    return np.array(words, np.uint64)


def round_to_float32(text: bytes) -> float:
    """Return the float32 nearest to the decimal number `text`, ties to even; may be infinite."""
    wide = float(text)
    if wide == 0 or not math.isfinite(wide):
        return wide
    if abs(wide) > 3.5e38:
        return math.copysign(math.inf, wide)
    digits, _, power = text.decode().lower().partition("e")
    exact = fractions.Fraction(digits) * fractions.Fraction(10) ** int(power or 0)
    if abs(exact) >= 2**128 - 2**103:  # half a step above the greatest float32
        return math.copysign(math.inf, wide)
    with np.errstate(over="ignore"):
        near = np.float32(wide)
    around = [near, *(np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf))]
    finite = [value for value in around if math.isfinite(value)]

    def distance(value: np.float32) -> tuple[fractions.Fraction, int]:
        odd = struct.unpack("<I", struct.pack("<f", value))[0] & 1
        return abs(fractions.Fraction(float(value)) - exact), odd

    return float(min(finite, key=distance))


def kind_of(value: bytes) -> int:
    """Return the kind of a value, one bit; 0 for a blank one."""
    value = value.strip(b" \t")
    if not value:
        return 0
    time = _TIME.fullmatch(value)
    if time and (parsed := parse_time(value)):
        seconds_nanos, dated, zoned = parsed
        if dated:
            return DATE
        return TEXT if seconds_nanos % 1000 else ZONED_TIME if zoned else TIME
    if re.match(rb"-?0[0-9]", value):
        return TEXT
    if _INTEGER.fullmatch(value):
        number = int(value) if len(value) < 30 else 2**80
        in_range = -(2**63) <= number < 2**63
        return (INT if abs(number) <= 2**53 else BIG_INT) if in_range else TEXT
    if _SPECIAL.fullmatch(value) or (_DECIMAL.fullmatch(value) and math.isfinite(float(value))):
        return FLOAT
    return BOOL if value.lower() in (b"true", b"false") else TEXT


def parse_time(value: bytes) -> tuple[int, bool, bool] | None:
    """Return (ns since 1970 in UTC, no time of day given, zoned), or None."""
    match = _TIME.fullmatch(value)
    if not match:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction, zone = match.group(7) or b"", match.group(8)
    if fraction[9:].strip(b"0"):
        return None
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    since = moment - datetime.datetime(1970, 1, 1)
    seconds = since.days * 86400 + since.seconds
    if zone and zone != b"Z":
        hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(b":") or 0)
        if hours > 23 or minutes > 59:
            return None
        seconds -= (hours * 60 + minutes) * (-60 if zone[:1] == b"-" else 60)
    nanos = int(fraction[:9].ljust(9, b"0"))
    return seconds * 10**9 + nanos, match.group(4) is None, zone is not None


def check_text(value: bytes) -> None:
    """Raise `ValueError` where `value` is not UTF-8 or holds a NUL byte."""
    if b"\0" in value:
        raise ValueError("NUL byte")
    value.decode()


def parse(target: Target, value: bytes) -> Any:
    """Return what `value` means for `target`.

    Raises:
        ValueError: It does not fit.
    """
    if target.kind == AS_INT and _INTEGER.fullmatch(value):
        number = int(value) if len(value) < 4000 else 2**80
        if target.low <= number <= target.high:
            return number
    elif target.kind in (AS_FLOAT, AS_DOUBLE):
        if _SPECIAL.fullmatch(value):
            return float(value)
        if _DECIMAL.fullmatch(value):
            rounded = float(value) if target.kind == AS_DOUBLE else round_to_float32(value)
            if math.isfinite(rounded):
                return rounded
    elif target.kind == AS_BOOL and value.lower() in (b"0", b"1", b"true", b"false"):
        return value.lower() in (b"1", b"true")
    elif target.kind in (AS_DATE, AS_TIME) and (parsed := parse_time(value)):
        nanos, dated, zoned = parsed
        ticks, rest = divmod(nanos * target.ticks, 10**9)
        if target.kind == AS_DATE and dated:
            return nanos // (86400 * 10**9)
        exact = zoned == target.zoned and not rest
        if target.kind == AS_TIME and exact and -(2**63) <= ticks < 2**63:
            return ticks
    raise ValueError(value)
