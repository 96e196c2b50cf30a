"""What the types of databases hold and become: SQL literals, and the values that they mean.

Dates, times and decimals are written as text, because Python has neither nanoseconds nor years
before 1; a NULL is added to every case.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

NS = pa.timestamp("ns")
US = pa.timestamp("us")
UTC_NS = pa.timestamp("ns", "UTC")
UTC_US = pa.timestamp("us", "UTC")

Case = tuple[str, list[str], pa.DataType, list[Any]]


H2_CASES: list[Case] = [
    ("tinyint", ["-128", "127"], pa.int32(), [-128, 127]),
    ("smallint", ["-32768", "32767"], pa.int32(), [-32768, 32767]),
    ("int", ["-2147483648", "0", "2147483647"], pa.int32(), [-(2**31), 0, 2**31 - 1]),
    ("bigint", ["-9223372036854775808", "0"], pa.int64(), [-(2**63), 0]),
    (
        "numeric(38, 10)",
        ["-9999999999999999999999999999.9999999999", "0", "1.5"],
        pa.decimal128(38, 10),
        ["-9999999999999999999999999999.9999999999", "0E-10", "1.5000000000"],
    ),
    (
        "numeric(76, 2)",
        [f"-{'9' * 74}.99", "0.01"],
        pa.decimal256(76, 2),
        [f"-{'9' * 74}.99", "0.01"],
    ),
    ("numeric(100, 2)", [f"{'9' * 98}.99"], pa.string(), [f"{'9' * 98}.99"]),
    ("decfloat(34)", ["1.5E100"], pa.string(), ["1.5E+100"]),
    ("real", ["'NaN'", "1.5", "'-Infinity'"], pa.float32(), [float("nan"), 1.5, float("-inf")]),
    ("double precision", ["'NaN'", "1e308", "-0e0"], pa.float64(), [float("nan"), 1e308, 0.0]),
    ("boolean", ["true", "false"], pa.bool_(), [True, False]),
    ("char(5)", ["'ab'"], pa.string(), ["ab   "]),
    ("varchar(20)", ["''", "'é😀'"], pa.string(), ["", "é😀"]),
    ("clob", ["''", "'é😀'"], pa.string(), ["", "é😀"]),
    ("binary(3)", ["X'00ff01'"], pa.binary(), [b"\x00\xff\x01"]),
    ("varbinary(9)", ["X''", "X'00ff'"], pa.binary(), [b"", b"\x00\xff"]),
    ("blob", ["X''", "X'00ff'"], pa.binary(), [b"", b"\x00\xff"]),
    (
        "date",
        ["date '0001-01-01'", "date '1582-10-10'", "date '9999-12-31'"],
        pa.date32(),
        ["0001-01-01", "1582-10-10", "9999-12-31"],
    ),
    ("time", ["time '23:59:59'"], pa.time64("us"), ["23:59:59.000000"]),
    (
        "time(9)",
        ["time '00:00:00'", "time '23:59:59.999999999'"],
        pa.time64("ns"),
        ["00:00:00.000000000", "23:59:59.999999999"],
    ),
    ("time with time zone", ["'23:59:59+05:30'"], pa.string(), ["23:59:59+05:30"]),
    (
        "timestamp",
        ["'0001-01-01 00:00:00'", "'2024-03-10 02:30:00.123456'", "'9999-12-31 23:59:59.999999'"],
        US,
        [
            "0001-01-01 00:00:00.000000",
            "2024-03-10 02:30:00.123456",
            "9999-12-31 23:59:59.999999",
        ],
    ),
    (
        "timestamp(9)",
        ["'1677-09-21 00:12:43.145224193'", "'2024-03-10 02:30:00.123456789'"],
        NS,
        ["1677-09-21 00:12:43.145224193", "2024-03-10 02:30:00.123456789"],
    ),
    (
        "timestamp with time zone",
        ["'2024-03-10 02:30:00.123456+05:30'"],
        UTC_US,
        ["2024-03-09 21:00:00.123456"],
    ),
    (
        "timestamp(9) with time zone",
        ["'1969-12-31 19:00:00.000000001-05'"],
        UTC_NS,
        ["1970-01-01 00:00:00.000000001"],
    ),
    (
        "uuid",
        ["'123e4567-e89b-12d3-a456-426614174000'"],
        pa.string(),
        ["123e4567-e89b-12d3-a456-426614174000"],
    ),
    ("json", ["JSON '{\"a\":1}'"], pa.string(), ['{"a":1}']),
    ("enum('a', 'b')", ["'b'"], pa.string(), ["b"]),
    (
        "interval day to second",
        ["interval '1 02:03:04.5' day to second"],
        pa.string(),
        ["INTERVAL '1 02:03:04.5' DAY TO SECOND"],
    ),
    ("geometry", ["'POINT(1 2)'"], pa.string(), ["POINT (1 2)"]),
]

POSTGRES_CASES: list[Case] = [
    ("smallint", ["-32768", "32767"], pa.int32(), [-32768, 32767]),
    ("int", ["-2147483648", "0"], pa.int32(), [-(2**31), 0]),
    ("bigint", ["-9223372036854775808"], pa.int64(), [-(2**63)]),
    ("oid", ["4294967295"], pa.int64(), [2**32 - 1]),
    (
        "numeric(38, 10)",
        ["-9999999999999999999999999999.9999999999", "0"],
        pa.decimal128(38, 10),
        ["-9999999999999999999999999999.9999999999", "0E-10"],
    ),
    ("numeric(76, 2)", [f"{'9' * 74}.99"], pa.decimal256(76, 2), [f"{'9' * 74}.99"]),
    ("numeric", ["'NaN'", f"1{'0' * 200}.5"], pa.string(), ["NaN", f"1{'0' * 200}.5"]),
    ("numeric(5, -2)", ["12300"], pa.string(), ["12300"]),
    ("real", ["'NaN'", "'-Infinity'", "1.5"], pa.float32(), [float("nan"), float("-inf"), 1.5]),
    ("float8", ["'NaN'", "1e308", "0"], pa.float64(), [float("nan"), 1e308, 0.0]),
    ("boolean", ["true", "false"], pa.bool_(), [True, False]),
    ("bit(1)", ["B'1'", "B'0'"], pa.bool_(), [True, False]),
    ("bit(5)", ["B'10101'"], pa.string(), ["10101"]),
    ("bit varying(9)", ["B'101'"], pa.string(), ["101"]),
    ("char(5)", ["'ab'"], pa.string(), ["ab   "]),
    ("varchar(20)", ["''", "'é😀'"], pa.string(), ["", "é😀"]),
    ("text", ["''", "'é😀'"], pa.string(), ["", "é😀"]),
    ("bytea", ["''", r"'\x00ff'"], pa.binary(), [b"", b"\x00\xff"]),
    (
        "date",
        ["'0044-03-15 BC'", "'0001-01-01'", "'1582-10-10'", "'9999-12-31'"],
        pa.date32(),
        ["-0043-03-15", "0001-01-01", "1582-10-10", "9999-12-31"],
    ),
    (
        "time",
        ["'00:00'", "'23:59:59.999999'"],
        pa.time64("us"),
        ["00:00:00.000000", "23:59:59.999999"],
    ),
    ("timetz", ["'23:59:59.123456+05:30'"], pa.string(), ["23:59:59.123456+05:30"]),
    (
        "timestamp",
        ["'0001-01-01'", "'2024-03-10 02:30:00.123456'", "'9999-12-31 23:59:59.999999'"],
        US,
        [
            "0001-01-01 00:00:00.000000",
            "2024-03-10 02:30:00.123456",
            "9999-12-31 23:59:59.999999",
        ],
    ),
    (
        "timestamptz",
        ["'2024-03-10 02:30:00.123456+05:30'", "'1900-01-01 00:00+00'"],
        UTC_US,
        ["2024-03-09 21:00:00.123456", "1900-01-01 00:00:00.000000"],
    ),
    (
        "uuid",
        ["'123e4567-e89b-12d3-a456-426614174000'"],
        pa.string(),
        ["123e4567-e89b-12d3-a456-426614174000"],
    ),
    ("json", ["'{\"a\":  1}'"], pa.string(), ['{"a":  1}']),
    ("jsonb", ["'{\"a\":  1}'"], pa.string(), ['{"a": 1}']),
    ("mood", ["'ok'"], pa.string(), ["ok"]),
    ("small", ["7"], pa.int32(), [7]),
    (
        "interval",
        ["'1 year 2 mons 3 days 04:05:06.789'"],
        pa.string(),
        ["1 year 2 mons 3 days 04:05:06.789"],
    ),
    ("inet", ["'10.0.0.1'"], pa.string(), ["10.0.0.1"]),
    ("xml", ["'<a/>'"], pa.string(), ["<a/>"]),
    ("point", ["'(1,2)'"], pa.string(), ["(1,2)"]),
    ("int4range", ["'[1,5)'"], pa.string(), ["[1,5)"]),
]

MARIADB_CASES: list[Case] = [
    ("tinyint", ["-128", "127"], pa.int32(), [-128, 127]),
    ("tinyint(1)", ["2", "0"], pa.int32(), [2, 0]),
    ("tinyint unsigned", ["255"], pa.int32(), [255]),
    ("smallint unsigned", ["65535"], pa.int32(), [65535]),
    ("mediumint", ["-8388608"], pa.int32(), [-8388608]),
    ("mediumint unsigned", ["16777215"], pa.int64(), [2**24 - 1]),
    ("int", ["-2147483648"], pa.int32(), [-(2**31)]),
    ("int unsigned", ["4294967295"], pa.int64(), [2**32 - 1]),
    ("bigint", ["-9223372036854775808"], pa.int64(), [-(2**63)]),
    ("bigint unsigned", ["18446744073709551615", "0"], pa.uint64(), [2**64 - 1, 0]),
    (
        "decimal(38, 10)",
        ["-9999999999999999999999999999.9999999999"],
        pa.decimal128(38, 10),
        ["-9999999999999999999999999999.9999999999"],
    ),
    (
        "decimal(65, 30)",
        [f"{'9' * 35}.{'9' * 30}"],
        pa.decimal256(65, 30),
        [f"{'9' * 35}.{'9' * 30}"],
    ),
    (
        "float",
        ["16777215", "1.2345678", "1e-45", "3.4028234663852886e38"],
        pa.float32(),
        [16777215.0, 1.2345677614212036, 2.0**-149, 3.4028234663852886e38],
    ),
    ("float unsigned", ["1.5"], pa.float32(), [1.5]),
    ("float zerofill", ["1.5"], pa.float32(), [1.5]),
    ("double", ["1e308", "0"], pa.float64(), [1e308, 0.0]),
    ("double unsigned", ["1.5", "1e308"], pa.float64(), [1.5, 1e308]),
    ("decimal(4, 2) unsigned", ["1.5"], pa.decimal128(4, 2), ["1.50"]),
    ("boolean", ["true", "false"], pa.int32(), [1, 0]),
    ("bit(1)", ["b'1'", "b'0'"], pa.bool_(), [True, False]),
    ("bit(9)", ["b'100000001'"], pa.binary(), [b"\x01\x01"]),
    ("char(5)", ["'ab  '"], pa.string(), ["ab"]),
    ("varchar(20)", ["''", "'é'"], pa.string(), ["", "é"]),
    ("longtext", ["'é'"], pa.string(), ["é"]),
    ("binary(3)", ["X'00ff'"], pa.binary(), [b"\x00\xff\x00"]),
    ("varbinary(9)", ["X'00ff'"], pa.binary(), [b"\x00\xff"]),
    ("longblob", ["''", "X'00ff'"], pa.binary(), [b"", b"\x00\xff"]),
    (
        "date",
        ["'0001-01-01'", "'1582-10-10'", "'9999-12-31'"],
        pa.date32(),
        ["0001-01-01", "1582-10-10", "9999-12-31"],
    ),
    (
        "datetime(6)",
        ["'0001-01-01'", "'2024-03-10 02:30:00.123456'"],
        US,
        ["0001-01-01 00:00:00.000000", "2024-03-10 02:30:00.123456"],
    ),
    # The server's zone is -05:00: what is written in it is an instant, read in UTC.
    ("timestamp(6)", ["'2024-03-10 02:30:00.123456'"], UTC_US, ["2024-03-10 07:30:00.123456"]),
    ("year", ["2024", "1901"], pa.int32(), [2024, 1901]),
    ("enum('a', 'b')", ["'b'"], pa.string(), ["b"]),
    ("set('a', 'b')", ["'a,b'"], pa.string(), ["a,b"]),
    ("json", ["'{\"a\":1}'"], pa.string(), ['{"a":1}']),
    ("inet6", ["'::1'"], pa.string(), ["::1"]),
    (
        "uuid",
        ["'123e4567-e89b-12d3-a456-426614174000'"],
        pa.string(),
        ["123e4567-e89b-12d3-a456-426614174000"],
    ),
]

SQLITE_CASES: list[Case] = [
    ("integer", ["-9223372036854775808", "0", "7"], pa.int64(), [-(2**63), 0, 7]),
    ("int unsigned", ["7"], pa.int64(), [7]),
    ("real", ["1.5", "9e999", "3"], pa.float64(), [1.5, float("inf"), 3.0]),
    ("double precision", ["-0.1"], pa.float64(), [-0.1]),
    ("varchar(3)", ["'too long'", "''", "'é😀'"], pa.string(), ["too long", "", "é😀"]),
    ("text", ["12"], pa.string(), ["12"]),
    ("blob", ["X'00ff'", "X''"], pa.binary(), [b"\x00\xff", b""]),
    ("boolean", ["1", "0"], pa.bool_(), [True, False]),
]
