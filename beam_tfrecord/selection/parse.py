"""Parses the text of a filter, which is a condition in SQL, with sqlglot.

A condition consists of `Node`, `ColumnRef` and `Literal`. Anything else in SQL is refused by name
and position, so a filter never means less than its text says. `str` of a node is its normal form:
equal conditions in other spelling have the same text, which does not depend on sqlglot.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow.compute as pc

from beam_tfrecord.base.text import cell
from beam_tfrecord.errors import UsageError


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
class ColumnRef:
    """The value of a column; as a condition, a column of booleans."""

    name: str

    def __str__(self) -> str:
        return quoted_text(self.name, '"')

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of the column."""
        return (self.name,)


@dataclasses.dataclass(frozen=True)
class Literal:
    """A constant."""

    kind: str
    text: str
    value: str | bool | Fraction | None = None
    is_float: bool = False
    columns: ClassVar[tuple[str, ...]] = ()

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

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of the condition, each once, in order."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.columns))


Condition = ColumnRef | Node


def quoted_text(text: str, quote: str = "'") -> str:
    """Return a text as an SQL literal, or a name in double quotes."""
    return quote + text.replace(quote, quote * 2) + quote


GUIDE = "see docs/filter.md"
# Larger than any exponent of a number that Arrow holds, and small enough to compute with.
_MOST_EXPONENT = 500
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[ T](?P<time>\d\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,9}))?)?"
    r" ?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)
_OPERATORS = {sign.parsed: operator for operator, sign in SIGNS.items()}
# The arguments that the nodes may have; any other one would change the meaning.
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_OPERATORS, "And", "Or", "Is"), ("this", "expression")),
    **dict.fromkeys(("Not", "Paren", "Neg", "Column", "Boolean"), ("this",)),
    "Like": ("this", "expression", "negate"),
    "Between": ("this", "low", "high"),
    "In": ("this", "expressions"),
    "Identifier": ("this", "quoted"),
    "Literal": ("this", "is_string"),
    "Null": (),
    "Cast": ("this", "to"),
}
_CANNOT_HAVE = f"which a filter cannot have: {GUIDE}"
_WORDS = ("AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN")
_NAMES = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Mod", "IntDiv"), "arithmetic"),
    "NullSafeEQ": "IS NOT DISTINCT FROM",
    "NullSafeNEQ": "IS DISTINCT FROM",
    "Anonymous": "a function",
    "Alias": "a word after the condition",
}


@contextlib.contextmanager
def naming(flag: str) -> Iterator[None]:
    """Name the flag that a condition is of in errors about it, which say ``--filter``."""
    try:
        yield
    except UsageError as error:
        raise UsageError(error.message.replace("--filter", flag, 1)) from error


def parse_filter(text: str) -> Condition:
    """Return the condition that a text states."""
    if not isinstance(text, str):
        raise UsageError(f"--filter is {text!r}, not a text: pass a condition such as 'a > 0'")
    if not text.strip():
        raise UsageError("--filter is empty: pass a condition such as 'a > 0', or leave it out")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        where = error.start + 1
        raise UsageError(f"--filter is not valid Unicode at character {where}") from error
    try:
        return _Parser(text).condition(_tree(text))
    except RecursionError as error:
        raise UsageError("--filter has too many levels of parentheses: simplify it") from error


def _tree(text: str) -> Any:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        trees = sqlglot.parse(text)
    except SqlglotError as error:
        found = getattr(error, "errors", None)
        near = found[0]["highlight"] or "" if found else ""
        may_be_name = near.isidentifier() and near.upper() not in _WORDS
        hint = f'write "{near}" if it is a column' if may_be_name else GUIDE
        raise UsageError(f"--filter {cell(text)!r} is not SQL at {near!r}: {hint}") from error
    if len(trees) != 1 or trees[0] is None:
        raise UsageError(f"--filter {cell(text)!r} is not one condition: join them by AND")
    return trees[0]


class _Parser:
    """Converts the tree of sqlglot; errors name the position of a node in the text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def condition(self, node: Any) -> Condition:
        """Return the condition that a node states."""
        match kind := self._kind(node):
            case "Paren":
                return self.condition(node.this)
            case "And" | "Or":
                # A chain of thousands of conditions is a deep tree, which `flatten` walks.
                return Node(kind.upper(), tuple(map(self.condition, node.flatten())))
            case "Not":
                return Node("NOT", (self.condition(node.this),))
            case "Is":
                if self._kind(node.expression) != "Null":
                    raise self._wrong(node.expression, "cannot follow IS: use IS [NOT] NULL")
                return Node("IS NULL", (self._column_in(node.this),))
            case "Like":
                pattern = self._operand(node.expression)
                if not isinstance(pattern, Literal) or pattern.kind != "text":
                    raise self._wrong(node.expression, "is not a text in single quotes")
                found = Node("LIKE", (self._column_in(node.this), pattern))
                return Node("NOT", (found,)) if node.args.get("negate") else found
            case "In":
                literals = map(self._literal, node.expressions)
                return Node("IN", (self._column_in(node.this), *literals))
            case "Between":
                low = self._compare(node, ">=", node.this, node.args["low"])
                high = self._compare(node, "<=", node.this, node.args["high"])
                return Node("AND", (low, high))
            case "Column":
                return self._column(node)
            case _ if kind in _OPERATORS:
                return self._compare(node, _OPERATORS[kind], node.this, node.expression)
        raise self._wrong(node, "is no condition: compare it with something")

    def _compare(self, node: Any, operator: str, left: Any, right: Any) -> Node:
        one, other = self._operand(left), self._operand(right)
        for operand in (one, other):
            if isinstance(operand, Literal) and operand.kind == "null":
                raise self._wrong(node, "compares with NULL, which is never true: use IS NULL")
        if isinstance(one, ColumnRef):
            return Node(operator, (one, other))
        if isinstance(other, ColumnRef):
            return Node(SIGNS[operator].mirrored, (other, one))
        raise self._wrong(node, "compares no column")

    def _column_in(self, node: Any) -> ColumnRef:
        found = self._operand(node)
        if isinstance(found, ColumnRef):
            return found
        raise self._wrong(node, "is not a column")

    def _literal(self, node: Any) -> Literal:
        found = self._operand(node)
        if isinstance(found, Literal):
            return found
        raise self._wrong(node, "is a column in the list of IN, which has literals only")

    def _operand(self, node: Any) -> ColumnRef | Literal:
        match self._kind(node):
            case "Paren":
                return self._operand(node.this)
            case "Column":
                return self._column(node)
            case "Null":
                return Literal("null", "NULL")
            case "Boolean":
                return Literal("boolean", str(bool(node.this)).upper(), bool(node.this))
            case "Literal" if node.is_string:
                return Literal("text", quoted_text(node.this), node.this)
            case "Literal" | "Neg":
                return self._number(node)
            case "Cast":
                return self._moment(node)
        raise self._wrong(node, "is neither a column nor a literal")

    def _column(self, node: Any) -> ColumnRef:
        self._kind(node.this)
        return ColumnRef(node.this.this)

    def _number(self, node: Any) -> Literal:
        sign, digits = "", node
        if self._kind(node) == "Neg":
            sign, digits = "-", node.this
        if self._kind(digits) != "Literal" or digits.is_string:
            raise self._wrong(digits, "is not a number after a minus sign")
        value = Decimal(sign + digits.this)
        if abs(value.adjusted()) > _MOST_EXPONENT:
            raise self._wrong(digits, f"has an exponent beyond {_MOST_EXPONENT}")
        exact, is_float = Fraction(value), not digits.this.isdecimal()
        text = f"{sign}{digits.this.lower()}" if is_float else str(exact)
        return Literal("number", text, exact, is_float)

    def _moment(self, node: Any) -> Literal:
        """Return the literal of a date or a timestamp."""
        kind, of = str(node.args["to"].this).rpartition(".")[2], node.this
        if kind not in ("DATE", "TIMESTAMP", "TIMESTAMPTZ") or self._kind(of) != "Literal":
            raise self._wrong(of, "is converted to another type, which a filter cannot do")
        match = _MOMENT.fullmatch(of.this.strip())
        try:
            if match is None or (kind == "DATE" and match.end("date") < len(match.string)):
                raise ValueError(of.this)
            return _date(match) if kind == "DATE" else _timestamp(match)
        except ValueError as error:
            form = "YYYY-MM-DD" if kind == "DATE" else "YYYY-MM-DD HH:MM:SS.fff+00:00"
            raise self._wrong(of, f"is not a {kind} of the form {form}") from error

    def _kind(self, node: Any) -> str:
        """Return the name of the class of a node, after a check of its arguments."""
        kind = type(node).__name__
        known = _ARGUMENTS.get(kind)
        if known is None:
            raise self._wrong(node, f"has {_NAMES.get(kind, kind.upper())}, {_CANNOT_HAVE}")
        others = [name for name, value in node.args.items() if value and name not in known]
        if kind == "Column" and others:
            raise self._wrong(
                node,
                "has a dot: fields of structs cannot be compared; quote a name that has a dot, as "
                'in "a.b"',
            )
        if others:
            raise self._wrong(node, f"has {others[0]} in {kind.upper()}, {_CANNOT_HAVE}")
        return kind

    def _wrong(self, node: Any, reason: str) -> UsageError:
        """Return the error about a node; its text is the subject of the message."""
        starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
        stops = [one.meta["end"] for one in node.walk() if "end" in one.meta]
        if not starts:
            return UsageError(f"--filter: {cell(self._text)!r} {reason}")
        near = self._text[min(starts) : max(stops) + 1]
        if DAY.fullmatch(near):
            reason = f"is no date: write DATE '{near}'"
        return UsageError(f"--filter: {cell(near)!r} at character {min(starts) + 1} {reason}")


def _date(match: re.Match[str]) -> Literal:
    day = datetime.date.fromisoformat(match["date"])
    return Literal("date", f"DATE '{day}'", Fraction((day - _EPOCH.date()).days))


def _timestamp(match: re.Match[str]) -> Literal:
    """Return the literal of a timestamp, with the time zone UTC if the text has an offset."""
    zone, fraction = match["zone"], (match["fraction"] or "").rstrip("0")
    moment = datetime.datetime.fromisoformat(
        f"{match['date']}T{match['time'] or '00:00'}{zone or 'Z'}"
    )
    seconds = (moment - _EPOCH) // datetime.timedelta(seconds=1)
    # In UTC, because two spellings of one instant have one normal form.
    text = f"{np.datetime64(seconds, 's')}{fraction and f'.{fraction}'}{'Z' if zone else ''}"
    kind = "timestamp with time zone" if zone else "timestamp"
    value = Fraction(seconds * 10**9 + int(fraction.ljust(9, "0")))
    return Literal(kind, f"TIMESTAMP '{text}'", value)
