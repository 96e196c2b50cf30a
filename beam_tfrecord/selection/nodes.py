"""The nodes of a filter, a condition on the columns of a row.

`str` of a node is its normal form: equal conditions in other spelling have the same text, which
does not depend on the library that parsed them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow.compute as pc


class Sign(NamedTuple):
    """What belongs to an operator: its class in sqlglot, and its function in Arrow.

    `mirrored` is the same with the operands exchanged, and `opposite` is true where it is false.
    """

    parsed: str
    mirrored: str
    opposite: str
    compare: Callable[..., Any]


SIGNS: dict[str, Sign] = {
    "=": Sign("EQ", "=", "<>", pc.equal),
    "<>": Sign("NEQ", "<>", "=", pc.not_equal),
    "<": Sign("LT", ">", ">=", pc.less),
    "<=": Sign("LTE", ">=", ">", pc.less_equal),
    ">": Sign("GT", "<", "<=", pc.greater),
    ">=": Sign("GTE", "<=", "<", pc.greater_equal),
}


@dataclasses.dataclass(frozen=True)
class Column:
    """The value of a column; as a condition, a column of booleans."""

    name: str

    def __str__(self) -> str:
        return _quoted(self.name, '"')


@dataclasses.dataclass(frozen=True)
class Literal:
    """A constant."""

    kind: str
    text: str
    value: str | bool | Fraction | None = None
    is_float: bool = False

    def __str__(self) -> str:
        return self.text


TRUE = Literal("boolean", "TRUE", True)


@dataclasses.dataclass(frozen=True)
class Node:
    """A condition: a word, and what it stands before or between.

    After AND, OR and NOT these are conditions. An operator has a column and an operand, IN a column
    and literals, LIKE a column and a pattern, IS NULL a column.
    """

    word: str
    parts: tuple[Any, ...]

    def __str__(self) -> str:
        first, *others = map(str, self.parts)
        match self.word:
            case "AND" | "OR":
                return f"({f' {self.word} '.join([first, *others])})"
            case "NOT":
                return f"(NOT {first})"
            case "IS NULL":
                return f"({first}) IS NULL"
            case "IN":
                return f"{first} IN ({', '.join(others)})"
        return f"{first} {self.word} {others[0]}"


Condition = Column | Node


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return the names of the columns of a condition, each once, in order."""
    return tuple(dict.fromkeys(_columns(condition)))


def _columns(node: Condition | Literal) -> Iterator[str]:
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Node):
        for part in node.parts:
            yield from _columns(part)


def quoted_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return _quoted(text, "'")


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote
