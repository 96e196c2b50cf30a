"""The nodes of a filter, a condition on the columns of a row.

`str` of a node is its normal form: equal conditions in other spelling have the same text, which
does not depend on the library that parsed them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple
from typing import Literal as OneOf

import pyarrow.compute as pc

Operator = OneOf["=", "<>", "<", "<=", ">", ">="]


class Sign(NamedTuple):
    """What belongs to an operator: its class in sqlglot, and its function in Arrow.

    `mirrored` is the same with the operands exchanged, and `opposite` is true where it is false.
    """

    parsed: str
    mirrored: Operator
    opposite: Operator
    compare: Callable[..., Any]


SIGNS: dict[Operator, Sign] = {
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

Operand = Column | Literal


@dataclasses.dataclass(frozen=True)
class Joined:
    """All of several conditions, or at least one of them."""

    word: OneOf["AND", "OR"]
    parts: tuple[Condition, ...]

    def __str__(self) -> str:
        return f"({f' {self.word} '.join(map(str, self.parts))})"


@dataclasses.dataclass(frozen=True)
class Not:
    """The opposite of a condition; null stays null."""

    part: Condition

    def __str__(self) -> str:
        return f"(NOT {self.part})"


@dataclasses.dataclass(frozen=True)
class Compare:
    """A comparison of a column with a literal or another column."""

    operator: Operator
    left: Column
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclasses.dataclass(frozen=True)
class In:
    """Whether a column is equal to one of some literals."""

    column: Column
    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.column} IN ({', '.join(map(str, self.literals))})"


@dataclasses.dataclass(frozen=True)
class Like:
    """Whether a text matches a pattern, in which ``%`` is any text and ``_`` any character."""

    column: Column
    pattern: str
    escape: str | None = None

    def __str__(self) -> str:
        escape = "" if self.escape is None else f" ESCAPE {quoted_text(self.escape)}"
        return f"{self.column} LIKE {quoted_text(self.pattern)}{escape}"


@dataclasses.dataclass(frozen=True)
class Is:
    """Whether a condition is true, false or null, or a column null; it is never null itself."""

    part: Condition
    result: bool | None

    def __str__(self) -> str:
        return f"({self.part}) IS {'NULL' if self.result is None else str(self.result).upper()}"


Condition = Column | Joined | Not | Compare | In | Like | Is


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return the names of the columns of a condition, each once, in order."""
    return tuple(dict.fromkeys(_columns(condition)))


def _columns(node: Condition | Literal) -> Iterator[str]:
    match node:
        case Column(name):
            yield name
        case Joined(_, parts):
            for part in parts:
                yield from _columns(part)
        case Not(part) | Is(part):
            yield from _columns(part)
        case Compare(_, left, right):
            yield from (*_columns(left), *_columns(right))
        case In(column) | Like(column):
            yield column.name


def quoted_text(text: str) -> str:
    """Return a text as an SQL literal."""
    return _quoted(text, "'")


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote
