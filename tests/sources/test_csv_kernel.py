"""The CSV kernel against rules written out byte by byte, and against other parsers."""

import csv
import io
import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_tfrecord.native import _csv as native
from beam_tfrecord.native import values as codes
from beam_tfrecord.native.values import Target
from tests.helpers.effort import examples
from tests.native import csv_rows

RFC = (ord(","), ord('"'), None, True)
DIALECTS = [
    RFC,
    (ord(","), ord('"'), None, False),
    (ord(","), ord('"'), ord("\\"), True),
    (ord(";"), ord("'"), ord("\\"), False),
    (ord("\t"), None, None, True),
    (ord(","), ord('"'), None, True, ord("x")),
    (ord(","), ord('"'), ord("\\"), True, ord(";")),
]
ALPHABET = b",;'\"\\\t\r\n\nxxxx\xc3\xa9\0"

texts = st.lists(st.sampled_from(list(ALPHABET)), max_size=200).map(bytes)
DOUBLE = Target(0, codes.AS_DOUBLE, 8)
FLOAT = Target(0, codes.AS_FLOAT, 4)


def filler(columns, targets, **options):
    defaults = {"keep_blank": False, "nulls": [], "always": [], "capacity": 1000, "dialect": RFC}
    given = defaults | options
    return native.Filler(given.pop("dialect"), columns, targets, **given)


def kernel_rows(text, columns, **options):
    """Good rows as lists of bytes, and numbers of the bad ones."""
    targets = [Target(i, codes.AS_BYTES) for i in range(columns)]
    filled = filler(columns, targets, **options)
    filled.feed(text, 0, True)
    bad = {fault.row for fault in filled.take_faults()}
    cells = [
        [bytes(values[offsets[i] : offsets[i + 1]]) for i in range(len(valid))]
        for values, valid, offsets, _ in filled.take()
    ]
    good = [list(row) for i, row in enumerate(zip(*cells, strict=True)) if i not in bad]
    return good, bad


@settings(max_examples=examples(300), deadline=None)
@given(texts, st.sampled_from(DIALECTS))
def test_a_scan_follows_every_state(text, dialect):
    assert native.scan(text, dialect) == csv_rows.scan(text, dialect)


@settings(max_examples=examples(300), deadline=None)
@given(texts, st.sampled_from(DIALECTS), st.booleans())
def test_the_first_row_is_the_first_that_is_not_blank(text, dialect, final):
    row = next(csv_rows.rows_of(text, 0, dialect, final=final, keep_blank=False), None)
    if row and row.broken:
        with pytest.raises(ValueError, match=codes.BROKEN_ROWS[row.broken]):
            native.first_row(text, dialect, final)
        return
    expected = row and (row.start, row.stop, [value for value, _ in row.fields])
    assert native.first_row(text, dialect, final) == expected


def test_the_first_row_may_be_long_and_wide():
    values = [b"%d" % i for i in range(5000)]
    text = b"\r\n\n" + b",".join(values) + b"\nnext"
    assert native.first_row(text, RFC, False) == (3, len(text) - 4, values)
    assert native.first_row(b"a,b", RFC, False) is None
    assert native.first_row(b"", RFC, True) is None
    with pytest.raises(ValueError, match="a quote that never closes"):
        native.first_row(b'a,"b\n', RFC, True)
    with pytest.raises(ValueError, match="text behind a closing quote"):
        native.first_row(b'a,"b"c,d\n', RFC, True)


@settings(max_examples=examples(100), deadline=None)
@given(texts, texts, st.sampled_from(DIALECTS))
def test_scan_composes(left, right, dialect):
    whole = native.scan(left + right, dialect)
    for state in range(9 if len(dialect) > 4 else 8):
        middle, rows, line_ends, _ = native.scan(left, dialect)[state]
        last, more_rows, more_ends, _ = native.scan(right, dialect)[middle]
        assert whole[state][:3] == (last, rows + more_rows, line_ends + more_ends)


def test_scan_of_a_quoted_newline():
    passages = native.scan(b'a,"b\nc"\nd,e\n', RFC)
    assert passages[codes.ROW_START] == (codes.ROW_START, 2, 2, 0)
    # Entered inside quotes, the quote closes them; the next one is literal, so the first line
    # end ends a row.
    assert passages[codes.QUOTED] == (codes.ROW_START, 3, 3, 5)


def test_a_quote_inside_a_field_is_literal():
    rows = [[b"2", b'5" disk'], [b"3", b"x"]]
    assert kernel_rows(b'2,5" disk\n3,x\n', 2) == (rows, set())


@pytest.mark.parametrize(
    ("text", "lines"), [(b"", 0), (b"a\r\nb\rc\n", 3), (b"\n" * 130, 130), (b"x" * 63 + b"\r\n", 1)]
)
def test_count_lines(text, lines):
    assert native.count_lines(text) == lines


@settings(max_examples=examples(200), deadline=None)
@given(texts, st.sampled_from(DIALECTS), st.integers(1, 3), st.booleans(), st.integers(1, 5))
def test_fields_and_faults_are_those_of_the_rules(text, dialect, columns, keep_blank, capacity):
    targets = [Target(i, codes.AS_BYTES) for i in range(columns)]
    options = {"dialect": dialect, "keep_blank": keep_blank, "capacity": capacity}
    filled = filler(columns, targets, always=[b"x"], **options)
    filled.feed(text, 0, True)
    rows = list(csv_rows.rows_of(text, 0, dialect, final=True, keep_blank=keep_blank))
    assert filled.is_full == (len(rows) >= capacity)
    del rows[capacity:]
    counts = [row.broken or len(row.fields) for row in rows]
    assert filled.take_faults() == [
        (number, -1, count, row.start, row.stop, b"")
        for number, (row, count) in enumerate(zip(rows, counts, strict=True))
        if count != columns
    ]
    good = [number for number, count in enumerate(counts) if count == columns]
    for column, (values, valid, offsets, _) in enumerate(filled.take()):
        for number in good:
            value, quoted = rows[number].fields[column]
            assert valid[number] == (value != b"x" and bool(value or quoted))
            if valid[number]:
                assert bytes(values[offsets[number] : offsets[number + 1]]) == value


@settings(max_examples=examples(200), deadline=None)
@given(st.text(',"\r\n xy', max_size=80))
@example('a"b,"c""d"e,f\r\n\r\n"x\ny",,z')
@example('a,b,c\n1,"x\n2,"y",z\n3,4,5')
def test_rows_equal_those_of_pythons_csv(text):
    expected, stopped = [], False
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            expected += [row] if row else []
    except csv.Error:
        stopped = True
    width = 3
    good, bad = kernel_rows(text.encode(), width)
    fitting = [[cell.encode() for cell in row] for row in expected if len(row) == width]
    assert good[: len(fitting)] == fitting
    assert {row for row in bad if row < len(expected)} == {
        number for number, row in enumerate(expected) if len(row) != width
    }
    # Python's reader stops at the first row that is broken.
    assert len(expected) in bad if stopped else len(good) + len(bad) == len(expected)


@settings(max_examples=examples(100), deadline=None)
@given(texts, st.integers(0, 200), st.sampled_from(DIALECTS))
def test_text_may_come_in_pieces(text, at, dialect):
    def collect(pieces):
        filled = filler(2, [Target(1, codes.AS_BYTES)], dialect=dialect)
        left = b""
        for index, piece in enumerate(pieces):
            left += piece
            left = left[filled.feed(left, 0, index == len(pieces) - 1) :]
        ((values, valid, offsets, _),) = filled.take()
        return bytes(values), bytes(valid), bytes(offsets), len(filled.take_faults())

    assert collect([text[:at], text[at:]]) == collect([text])


def numbers_of(target, words, dtype):
    filled = filler(1, [target])
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


def sightings_of(cells):
    typer = native.Typer(RFC, 2, keep_blank=False, nulls=[b"NA", b"null"], always=[b"no"])
    typer.feed("".join(f"{cell},1\n" for cell in cells).encode(), 0, True)
    return [one for one in typer.take_sightings() if one.column == 0]


words = st.sampled_from(
    ["1", "2.5", "true", "2024-01-01", "?", " - ", "NA", " NA", "null", '""', "", "x", "no", "Nb"]
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(words, max_size=300))
def test_a_column_has_the_kinds_of_its_cells(cells):
    first = {}
    for row, cell in enumerate(cells):
        for one in sightings_of([cell]):
            first.setdefault(one.kind, (row, one.value))
    found = {one.kind: (one.row, one.value) for one in sightings_of(cells)}
    # Behind ordinary text other kinds do not matter.
    end, _ = first.get(codes.TEXT, (len(cells), b""))
    assert found.keys() <= first.keys()
    assert {one for one in found.items() if one[1][0] <= end} == {
        one for one in first.items() if one[1][0] <= end
    }


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
