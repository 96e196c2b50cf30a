"""What the text of CSV fields means."""

import datetime
import decimal
import math
import re

import numpy as np

from beam_tfrecord.native.values import (
    AS_BOOL,
    AS_DATE,
    AS_DOUBLE,
    AS_FLOAT,
    AS_INT,
    AS_TIME,
    BIG_INT,
    BOOL,
    DATE,
    FLOAT,
    INT,
    TEXT,
    TIME,
    ZONED_TIME,
)

_STORED = {AS_FLOAT: np.float32, AS_DOUBLE: np.float64}
# Decimal digits of any float64 written in full.
_DOUBLE_DIGITS = 1100

_INTEGER = re.compile(rb"-?[0-9]+")
_DECIMAL = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(rb"-?(nan|inf|infinity)", re.IGNORECASE)
_TIME = re.compile(
    rb"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    rb"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    rb"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)


def nearest_double(text):
    """Return the float64 nearest to the decimal number `text`, and on which side of it that lies.

    The side is 1 or -1 where the number is greater or less than the float64, which may be infinite,
    and 0 where the float64 stands for the number: written with as many digits (but for zeros at the
    end), it is that number. It is 2 or -2 where it does, but lies halfway between two float32.
    """
    text = text.strip(b" \t")
    value = float(text)
    if not math.isfinite(value):
        return value, 0
    if not value:
        # Its exponent may be beyond what a decimal can have.
        is_zero = not text.lower().partition(b"e")[0].strip(b"-0.")
        return value, 0 if is_zero else -1 if text.startswith(b"-") else 1
    number, exact = decimal.Decimal(text.decode()), decimal.Decimal(value)
    with decimal.localcontext() as context:
        context.prec = len(number.as_tuple().digits) + _DOUBLE_DIGITS
        apart = number - exact
        last = int(number.normalize().as_tuple().exponent)
        stands = abs(apart) <= decimal.Decimal((0, (5,), last - 1))
    if not apart or (stands and _halves(value) % 2 != 1):
        return value, 0
    return value, (2 if stands else 1) * (1 if apart > 0 else -1)


def _halves(values):
    """Return float64 as numbers of half steps of float32, which is 2^-150 at the least."""
    steps = np.maximum(np.frexp(values)[1] - 25, -150)
    return np.ldexp(values, -steps)


def beyond(values, sides):
    """Return for each value a float64 beside it, on its side, where that is not 0.

    It rounds to the float32 that the decimal number would be rounded to at once. By how much it
    differs from the value, or from that float32, is the loss, to the last digit of a float64; where
    the value stands for the number, it is two steps away, which is no loss of the value.
    """
    values, sides = np.asarray(values, np.float64), np.asarray(sides)
    towards = np.nextafter(values, np.copysign(np.inf, sides))
    away = np.nextafter(values, np.copysign(np.inf, -sides))
    further = np.nextafter(towards, np.copysign(np.inf, sides))
    # There is nothing behind the greatest float64. And on a float32, or halfway between two, no
    # loss is to be seen, or the wrong one.
    with np.errstate(invalid="ignore"):
        skipped = np.isinf(towards) | (_halves(towards) % 1 == 0)
    beside = np.where(np.abs(sides) == 2, further, np.where(skipped, away, towards))
    return np.where(sides == 0, values, beside)


def floats_of(target, values, sides):
    """Return a column of floats as the bytes of its type, and what these values are exactly.

    The latter are the values `beyond`; None where the former are the same.
    """
    exact = values
    if sides.any():
        exact = values.copy()
        beside = np.flatnonzero(sides)
        exact[beside] = beyond(values[beside], sides[beside])
    if target.kind == AS_DOUBLE:
        return values.view(np.uint8), None if exact is values else exact
    with np.errstate(over="ignore"):
        return exact.astype(np.float32).view(np.uint8), exact


def kind_of(value):
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


def parse_time(value):
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


def check_text(value):
    """Raise `ValueError` where `value` is not UTF-8 or holds a NUL byte."""
    if b"\0" in value:
        raise ValueError("NUL byte")
    value.decode()


def parse(target, value):
    """Return what `value` means for `target`; a float with its side, as `nearest_double` does.

    Raises:
        ValueError: It does not fit.
    """
    if target.kind == AS_INT and _INTEGER.fullmatch(value):
        number = int(value) if len(value) < 4000 else 2**80
        if target.low <= number <= target.high:
            return number
    elif target.kind in (AS_FLOAT, AS_DOUBLE):
        if _SPECIAL.fullmatch(value):
            return float(value), 0
        if _DECIMAL.fullmatch(value):
            nearest, side = nearest_double(value)
            with np.errstate(over="ignore"):
                stored = beyond(nearest, side).astype(_STORED[target.kind])
            if np.isfinite(stored):
                return nearest, side
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
