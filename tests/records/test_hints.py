from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import functools
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest

from beam_tfrecord.records.row_types import returned_schema, schema_of_hint


class Row(TypedDict):
    number: int
    share: float
    name: str | None
    raw: bytes
    yes: bool
    tags: list[str | None]
    nested: list[list[int]]


class Times(NamedTuple):
    day: datetime.date
    moment: datetime.datetime
    clock: datetime.time
    span: datetime.timedelta
    price: decimal.Decimal


class Partial(TypedDict, total=False):
    a: int


class Unclear(TypedDict):
    a: int | str


class Untyped(TypedDict):
    a: Any


class BareList(TypedDict):
    a: list


class Unresolved(TypedDict):
    a: NotThere  # type: ignore[name-defined]  # noqa: F821


ROW = pa.schema(
    [
        ("number", pa.int64()),
        ("share", pa.float64()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("nested", pa.list_(pa.list_(pa.int64()))),
    ]
)


@pytest.mark.parametrize(
    "hint", [Row, list[Row], Row | None, list[Row] | None, collections.abc.Iterable[Row]]
)
def test_a_row_one_row_or_many(hint):
    assert schema_of_hint(hint) == ROW


def test_every_scalar_type():
    assert schema_of_hint(Times) == pa.schema(
        [
            ("day", pa.date32()),
            ("moment", pa.timestamp("us")),
            ("clock", pa.time64("us")),
            ("span", pa.duration("us")),
            ("price", pa.decimal128(38, 9)),
        ]
    )
    for hint in (Partial, dataclasses.make_dataclass("Made", [("a", int)])):
        assert schema_of_hint(hint) == pa.schema([("a", pa.int64())])


@pytest.mark.parametrize(
    "hint",
    [
        *(None, dict, dict[str, int], int, list, bytes, Row | Partial, Any),
        *(Unclear, Untyped, BareList, Unresolved),
    ],
)
def test_other_hints_tell_nothing(hint):
    assert schema_of_hint(hint) is None


def to_row(row: dict[str, Any]) -> Row: ...


def to_nothing_said(row):
    return row


def to_the_unknown(row: dict[str, Any]) -> Missing: ...  # type: ignore[name-defined] # noqa: F821


def test_hints_of_functions():
    assert returned_schema(to_row) == ROW
    assert returned_schema(to_nothing_said) is None
    assert returned_schema(to_the_unknown) is None
    assert returned_schema(functools.partial(to_row, {})) is None
    assert returned_schema(len) is None
