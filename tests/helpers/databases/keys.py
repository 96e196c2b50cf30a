"""Keys of every type that a database offers, as literals of its SQL.

Some differ in nothing but case or trailing blanks, or share a long beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

NUMBERS = [0, 1, -1, 7, 10, 9, 100, -100, 42, 99]
TEXTS = (
    *("", " ", "a", "A", "a ", "A  ", "á", "Á", "ab", "aB", "AB", "b", "B", "z", "Z", "ß", "ss"),
    *("a'b", "a\\", "a\\'b", "a\\\\b", 'a"b', "e\u0301", "é", "É", "😀", "\ue000", "_", "%", "#"),
    *("10", "9", "-1", "1e3", "true", "null", "a\nb", "a\tb", "a;b", "--", "/*", "x" * 1100 + "1"),
    *("x" * 1100 + "2", "x" * 1100 + "3", "x" * 1100 + "4", "x" * 1100 + "5"),
)
SHORT_TEXTS = tuple(text for text in TEXTS if len(text) <= 5 and "\n" not in text)
BYTES = (
    *(b"", b"\0", b"\0\0", b"a", b"A", b"a ", b"\\", b"'", b'"', b"\xff", b"\xfe\xff", b"\x80"),
    *(b"\x7f", b"abc", b"ab\0", b"\xc3\xa9", b"\xc3", b"1", b"\n", b"\xf0\x9f\x98\x80", b";--"),
    *(b"\xff\xff\xff", b"\x01\x02", b"zz"),
)
UUIDS = [
    f"{n:08x}-{n * 7919 % 65536:04x}-4{n % 4096:03x}-8000-{n * 104729:012x}" for n in range(20)
]
DATES = ("0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31")
DATES += tuple(f"20{n:02d}-0{1 + n % 9}-11" for n in range(10, 22))
_ZONES = ("+05:30", "-08") * 12
TIMES = tuple(f"{n:02d}:{59 - n:02d}:07.{n * 41017:06d}" for n in range(24))


def quoted(value):
    """Return a text as a literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[Any], cast: str = "") -> list[str]:
    """Return quoted literals, with a type before or after them where `cast` has braces."""
    return [(cast or "{}").format(quoted(str(value))) for value in values]


def plain(values):
    """Return values as they are written."""
    return [str(value) for value in values]


def hexed(values, form="X'{}'"):
    """Return bytes as literals."""
    return [form.format(value.hex()) for value in values]


def _moments(form="{}"):
    found = [f"{day} {time}" for day, time in zip(DATES, TIMES, strict=False)]
    return texts(found, form)


_TS = _moments()
_FRACTIONS = ["0.1", "0.2", "0.3", "1.1", "-1.1", "16777217", "16777216", "1e30", "1e-30", "-1e30"]
_FRACTIONS += ["123456.7", "123456.8", "123456.9", "3.4e38", "0.30000001", "-0.0", "0"]
_DECIMALS = ["0.001", "-0.001", "1.5", "2", "10", "9", "9.999", "-12345678901234567.890", "0"]
_DECIMALS += ["12345678901234567.890", "12345678901234567.891", "0.125"]

POSTGRES = {
    "smallint": plain(NUMBERS),
    "int": plain([*NUMBERS, 2**31 - 1, -(2**31)]),
    "bigint": plain([*NUMBERS, 2**63 - 1, -(2**63) + 1, 2**53, 2**53 + 1]),
    "oid": plain([0, 1, 9, 10, 2**31, 2**32 - 1]),
    "real": texts([*_FRACTIONS, "NaN", "Infinity", "-Infinity"]),
    "float8": texts([*_FRACTIONS, "NaN", "Infinity", "-Infinity", "0.1000000000000001"]),
    "numeric": texts([*_DECIMALS, "NaN", "1e100", "Infinity", "1.10", "1.1"]),
    "numeric(30, 3)": texts([*_DECIMALS, "NaN"]),
    "boolean": plain(["true", "false"]),
    "bit(1)": texts(["0", "1"], "B{}"),
    "bit(5)": texts(["00000", "10101", "01111", "11111", "00001"], "B{}"),
    "bit varying(9)": texts(["", "0", "1", "01", "10", "101", "111111111"], "B{}"),
    "char(5)": texts(SHORT_TEXTS),
    "varchar(2000)": texts(TEXTS),
    "text": texts(TEXTS),
    'text COLLATE "C"': texts(TEXTS),
    'text COLLATE "und-x-icu"': texts(TEXTS),
    "text COLLATE no_case": texts(TEXTS),
    '"char"': texts("abcABCzZ'\\ "),
    "name": texts(text for text in TEXTS if len(text.encode()) < 60),
    "bytea": hexed(BYTES, r"'\x{}'"),
    "date": texts([*DATES, "infinity", "-infinity", "0044-03-15 BC"]),
    "time": texts([*TIMES, "24:00:00"]),
    "timetz": texts([f"{time}{zone}" for time, zone in zip(TIMES, _ZONES, strict=True)]),
    "timestamp": [*_TS, "'infinity'", "'-infinity'"],
    "timestamptz": [*_TS, "'infinity'", "'1700-01-01 00:00+00'"],
    "interval": texts(["1 mon", "30 days", "29 days 25:00", "-1 day", "1 year", "0", "00:00:00.1"]),
    "uuid": texts(UUIDS),
    "jsonb": texts(
        ['{"a": 1}', "[]", "[1, 2]", '"a"', '"A"', "1", "2", "10", "true", "null", "{}"]
    ),
    "mood": texts(["sad", "ok", "Happy", "so"]),
    "mood[]": texts(["{sad}", "{ok,sad}", "{}", "{Happy}"]),
    "small": plain(NUMBERS),
    "pair": texts(["(1,a)", "(1,B)", "(2,a)", '(10,"x y")', "(,a)", '(1,"\'")']),
    "inet": texts(["10.0.0.1", "10.0.0.0/8", "9.9.9.9", "::1", "fe80::1/64", "10.0.0.1/31"]),
    "cidr": texts(["10.0.0.0/8", "9.0.0.0/8", "10.0.0.0/16", "::/0"]),
    "macaddr": texts(["08:00:2b:01:02:03", "00:00:00:00:00:01", "ff:ff:ff:ff:ff:ff"]),
    "money": texts(["1.50", "-1", "1234567.89", "0", "10", "9"]),
    "int4range": texts(["[1,5)", "[1,4)", "empty", "(,5)", "[2,)", "[-1,1)"]),
    "int4multirange": texts(["{[1,5)}", "{}", "{[1,2),[3,4)}", "{[-1,0)}"]),
    "int[]": texts(["{1,2}", "{}", "{1,NULL}", "{10}", "{9,1}", "{{1,2},{3,4}}", "[5:6]={1,2}"]),
    "text[]": texts(["{a,B}", "{}", '{"a,b"}', "{NULL}", '{"NULL"}', '{"a\\"b"}', "{A}"]),
    "tsvector": texts(["a b", "b", "a", "A:1 b:2"]),
    "pg_lsn": texts(["0/1", "1/0", "0/A", "FF/9"]),
    "xid8": texts(["1", "9", "10", "18446744073709551615"]),
    "tid": texts(["(0,1)", "(1,0)", "(0,10)", "(0,9)", "(10,1)"]),
    "regclass": texts(["pg_class", "pg_type", "pg_attribute", "pg_proc"]),
}
POSTGRES_UNORDERED = {
    "json": texts(['{"a": 1}', "[]"]),
    "xml": texts(["<a/>", "<b/>"]),
    "point": texts(["(1,2)", "(2,1)"]),
    "json[]": texts(["{1}", "{2}"]),
}


# By jdbc: and in DuckDB, only numbers, dates and timestamps cut a table.
MARIADB = {
    "tinyint": plain(NUMBERS),
    "tinyint(1)": plain([0, 1, 2, -1]),
    "smallint unsigned": plain([0, 9, 10, 65535]),
    "int": plain(NUMBERS),
    "int unsigned zerofill": plain([0, 7, 10, 9, 100, 2**32 - 1]),
    "bigint": plain([*NUMBERS, 2**63 - 1, -(2**63), 2**53, 2**53 + 1]),
    "bigint unsigned": plain([0, 9, 10, 2**63, 2**63 - 1, 2**64 - 1, 2**64 - 2]),
    "decimal(38, 10)": plain(_DECIMALS),
    "decimal(65, 30)": plain([*_DECIMALS, "9" * 30]),
    "year": plain([1901, 2000, 2024, 2155, 0]),
    "date": texts(DATES[1:]),
    "datetime": texts(moment.strip("'")[:19] for moment in _TS[1:]),
    "datetime(6)": _TS[1:],
    "timestamp(6)": _TS[6:],
}

H2 = {
    "tinyint": plain(NUMBERS),
    "smallint": plain(NUMBERS),
    "int": plain(NUMBERS),
    "bigint": plain([*NUMBERS, 2**63 - 1, 2**53, 2**53 + 1]),
    "numeric(38, 10)": plain(_DECIMALS),
    "date": texts(DATES),
    "timestamp(9)": _TS,
    "timestamp(6) with time zone": texts(moment.strip("'") + "+05:30" for moment in _TS[1:]),
}

DUCKDB = {
    "TINYINT": plain(NUMBERS),
    "INTEGER": plain(NUMBERS),
    "BIGINT": plain([*NUMBERS, 2**63 - 1, 2**53, 2**53 + 1]),
    "UBIGINT": plain([0, 9, 10, 2**64 - 1, 2**63]),
    "DECIMAL(38, 3)": plain(_DECIMALS),
    "DATE": texts([*DATES, "infinity", "-infinity", "0044-03-15 (BC)"]),
    "TIMESTAMP": [*_TS, "'infinity'", "'-infinity'"],
    "TIMESTAMP_NS": texts([f"2024-01-01 00:00:00.{n:09d}" for n in range(1, 30)]),
    "TIMESTAMP_S": texts([moment.strip("'")[:19] for moment in _TS]),
    "TIMESTAMPTZ": [*_TS, "'infinity'"],
}
