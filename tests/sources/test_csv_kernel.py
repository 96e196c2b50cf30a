"""Values that the CSV kernel makes of texts, against Python and NumPy."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_tfrecord.native import _csv as native
from beam_tfrecord.native import kernel_types as codes
from beam_tfrecord.native.kernel_types import Target
from tests.helpers.effort import examples

RFC = (ord(","), ord('"'), None, True)
DOUBLE = Target(0, codes.AS_DOUBLE, 8)
FLOAT = Target(0, codes.AS_FLOAT, 4)


def numbers_of(target, words, dtype):
    empty = {"keep_blank": False, "nulls": [], "always": []}
    filled = native.Filler(RFC, 1, [target], capacity=1000, **empty)
    filled.feed(b"\n".join(words) + b"\n", 0, True)
    ((values, *_),) = filled.take()
    return np.asarray(values).view(dtype), [fault.row for fault in filled.take_faults()]


decimals = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?[0-9]{1,25}\.[0-9]{1,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"-?\.[0-9]{1,5}|-?[0-9]{1,5}\.", fullmatch=True),
    st.sampled_from(["1e308", "1.7976931348623157e308", "2.2250738585072011e-308", "5e-324"]),
)


@settings(max_examples=examples(300), deadline=None)
@given(decimals)
@example("9007199254740993.0")
@example("9007199254740992.99999999999999999999999")
@example("2.4703282292062327208e-324")
@example("1e23")
def test_doubles_round_as_pythons(text):
    values, bad = numbers_of(DOUBLE, [text.encode()], "f8")
    if math.isinf(float(text)):
        assert bad == [0]
    else:
        assert struct.pack("d", values[0]) == struct.pack("d", float(text))


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        (b"16777217", 0x4B800000),  # half way between two floats: to the even one
        (b"16777217.000000000000000001", 0x4B800001),
        (b"16777219", 0x4B800002),
        (b"0.1", 0x3DCCCCCD),
        (b"1e-45", 0x00000001),
        (b"7.006492321624085e-46", 0x00000000),
        (b"7.0064923216240862e-46", 0x00000001),
        (b"3.4028235677973366e38", 0x7F7FFFFF),
        (b"-0.0", 0x80000000),
    ],
)
def test_floats_round_once(text, bits):
    values, bad = numbers_of(FLOAT, [text], "u4")
    assert (hex(values[0]), bad) == (hex(bits), [])


@pytest.mark.parametrize("text", [b"3.4028235677973367e38", b"1e39", b"1e999"])
def test_a_float_too_large_does_not_fit(text):
    assert numbers_of(FLOAT, [text], "f4")[1] == [0]


@pytest.mark.parametrize(
    ("width", "low", "high", "good", "bad"),
    [
        (1, -128, 127, [b"-128", b"127", b"007"], [b"128", b"-129", b"+1", b"1.0", b"0x1", b"-"]),
        (2, 0, 2**16 - 1, [b"0", b"65535", b"-0"], [b"65536", b"-1"]),
        (8, -(2**63), 2**63 - 1, [b"9223372036854775807", b"-9223372036854775808"],
         [b"9223372036854775808", b"-9223372036854775809", b"99999999999999999999999"]),
        (8, 0, 2**64 - 1, [b"18446744073709551615"], [b"18446744073709551616"]),
    ],
)  # fmt: skip
def test_integers_stay_in_range(width, low, high, good, bad):
    target = Target(0, codes.AS_INT, width, low, high)
    dtype = f"{'i' if low else 'u'}{width}"
    values, faults = numbers_of(target, good + bad, dtype)
    assert values[: len(good)].tolist() == [int(word) for word in good]
    assert faults == list(range(len(good), len(good) + len(bad)))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("", 0), ("  ", 0), ("NA", "WORD"), ("0", "INT"), ("-5", "INT"), (" 12\t", "INT"),
        ("9007199254740992", "INT"), ("9007199254740993", "BIG_INT"),
        ("-9223372036854775808", "BIG_INT"), ("9223372036854775808", "TEXT"),
        ("007", "TEXT"), ("-01", "TEXT"), ("00.5", "TEXT"), ("+1", "TEXT"), ("0x1F", "TEXT"),
        ("1.5", "FLOAT"), (".5", "FLOAT"), ("5.", "FLOAT"), ("1e5", "FLOAT"), ("-0.0", "FLOAT"),
        ("nan", "FLOAT"), ("NaN", "FLOAT"), ("-inf", "FLOAT"), ("INF", "FLOAT"),
        ("1e400", "TEXT"), ("1.2.3", "TEXT"), ("1e", "TEXT"), (".", "TEXT"), ("-", "TEXT"),
        ("true", "BOOL"), ("FALSE", "BOOL"), ("yes", "TEXT"), ("nano", "TEXT"),
        ("2024-02-29", "DATE"), ("2023-02-29", "TEXT"), ("0001-01-01", "DATE"),
        ("0000-01-01", "TEXT"), ("2024-13-01", "TEXT"), ("20240101", "INT"),
        ("2024-01-01T10:00", "TIME"), ("2024-01-01 10:00:59.123456", "TIME"),
        ("2024-01-01 10:00:59.123456000", "TIME"), ("2024-01-01 10:00:59.1234567", "TEXT"),
        ("2024-01-01 24:00", "TEXT"), ("2024-01-01T10:00:60", "TEXT"),
        ("2024-01-01T10:00Z", "ZONED_TIME"), ("2024-01-01T10:00:00.5+05:30", "ZONED_TIME"),
        ("2024-01-01T10:00-0130", "ZONED_TIME"), ("2024-01-01T10:00+25:00", "TEXT"),
        ("1.5e-12345", "FLOAT"), ("1234-56789", "TEXT"),
    ],
)  # fmt: skip
def test_kinds(word, kind):
    expected = [getattr(codes, kind)] if kind else []
    typer = native.Typer(RFC, 1, keep_blank=True, nulls=[b"NA"], always=[])
    typer.feed(word.encode() + b"\n", 0, True)
    assert [sighting.kind for sighting in typer.take_sightings()] == expected


@settings(max_examples=examples(200), deadline=None)
@given(st.datetimes(), st.sampled_from(["s", "ms", "us", "ns"]))
def test_times_equal_numpys(moment, unit):
    text = moment.isoformat(sep=" ")
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    target = Target(0, codes.AS_TIME, 8, ticks=ticks)
    values, bad = numbers_of(target, [text.encode()], "i8")
    exact = moment.microsecond * ticks % 10**6 == 0
    fits = unit != "ns" or 1678 <= moment.year <= 2261
    if exact and fits:
        assert (values[0], bad) == (np.datetime64(moment).astype(f"M8[{unit}]").astype("i8"), [])
    elif not exact:
        assert bad == [0]
