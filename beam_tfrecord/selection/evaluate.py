"""Decides for each row of a batch whether a condition is true, false or null.

This is the only place that decides, for every source and runner. Numbers compare by their exact
values, whatever their types: no operand is rounded to the type of the other. NaN is neither equal
to, less than nor greater than any number, as in IEEE 754. Text compares by code points.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.selection.nodes import (
    And,
    Column,
    Compare,
    Condition,
    In,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Not,
    Operator,
    Or,
)
from beam_tfrecord.tables import not_found

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_MS = 86_400_000
_OF_ARROW: dict[Operator, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_OF_PYTHON: dict[Operator, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_HINTS = {
    ("date", "text"): "write DATE '2024-12-31'",
    ("date", "timestamp"): "write DATE '2024-12-31'",
    ("timestamp", "text"): "write TIMESTAMP '2024-12-31 23:59:59'",
    ("timestamp", "date"): "write TIMESTAMP '2024-12-31 23:59:59'",
    ("timestamp", "timestamp with time zone"): "leave out the offset of the literal",
    ("timestamp with time zone", "text"): "write TIMESTAMP '2024-12-31 23:59:59Z'",
    ("timestamp with time zone", "date"): "write TIMESTAMP '2024-12-31 23:59:59Z'",
    ("timestamp with time zone", "timestamp"): "add an offset to the literal, such as Z",
    ("text", "number"): "quote the literal",
    ("number", "text"): "leave out the quotes",
    ("number", "boolean"): "write 1 or 0",
    ("boolean", "number"): "write TRUE or FALSE",
    ("boolean", "text"): "write TRUE or FALSE",
}


class Values(NamedTuple):
    """The values of a column in a form that compares."""

    name: str
    kind: str
    array: pa.Array
    unit: Fraction = Fraction(1)


def rows_that_match(condition: Condition, data: pa.RecordBatch) -> pa.BooleanArray:
    """Return for each row whether the condition is true, false or null."""
    match condition:
        case Column():
            return _compared("=", _values(condition, data), Literal("boolean", "TRUE", True))
        case And(parts):
            return _joined(pc.and_kleene, parts, data)
        case Or(parts):
            return _joined(pc.or_kleene, parts, data)
        case Not(part):
            return pc.invert(rows_that_match(part, data))
        case IsNull(Column() as column):
            return _column(column, data).is_null()
        case IsNull(part):
            return rows_that_match(part, data).is_null()
        case IsTruth(part, truth):
            found = pc.fill_null(rows_that_match(part, data), not truth)
            return found if truth else pc.invert(found)
        case Compare(sign, left, Literal() as right):
            return _compared(sign, _values(left, data), right)
        case Compare(sign, left, Column() as right):
            return _compared_columns(sign, _values(left, data), _values(right, data))
        case In(column, literals):
            return _is_in(_values(column, data), literals)
        case Like(column, _, _):
            return _matches(_values(column, data), condition)


def _joined(
    join: Callable[..., Any], parts: Sequence[Condition], data: pa.RecordBatch
) -> pa.BooleanArray:
    found = rows_that_match(parts[0], data)
    for part in parts[1:]:
        found = join(found, rows_that_match(part, data))
    return found


def _column(column: Column, data: pa.RecordBatch) -> pa.Array:
    names = data.schema.names
    if column.name not in names:
        raise UsageError(not_found(column.name, names, of="--filter"))
    return data.column(column.name)


def _values(column: Column, data: pa.RecordBatch) -> Values:
    array, name = _column(column, data), column.name
    of = array.type
    if pa.types.is_dictionary(of):
        array, of = array.dictionary_decode(), of.value_type
    if pa.types.is_integer(of) or pa.types.is_decimal(of):
        return Values(name, "number", array)
    if pa.types.is_floating(of):
        return Values(name, "number", pc.cast(array, pa.float64()))
    if pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of):
        return Values(name, "text", pc.cast(array, pa.large_string()))
    if pa.types.is_boolean(of):
        return Values(name, "boolean", array)
    if pa.types.is_date32(of):
        return Values(name, "date", array.cast(pa.int32()))
    if pa.types.is_date64(of):
        return Values(name, "date", array.cast(pa.int64()), Fraction(1, _DAY_MS))
    if pa.types.is_timestamp(of):
        kind = "timestamp" if of.tz is None else "timestamp with time zone"
        return Values(name, kind, array.cast(pa.int64()), Fraction(_NS[of.unit]))
    return Values(name, "null" if pa.types.is_null(of) else str(of), array)


def _check(values: Values, kind: str, what: str, *, is_column: bool = False) -> bool:
    """Return whether there is something to compare: False if one side is always null."""
    if "null" in (values.kind, kind):
        return False
    if values.kind != kind:
        hint = "use --map" if is_column else _HINTS.get((values.kind, kind), "use --map")
        raise UsageError(
            f"--filter compares column {values.name!r} ({values.kind}) with {what}: {hint}"
        )
    return True


def _nulls(array: pa.Array) -> pa.BooleanArray:
    return pa.nulls(len(array), pa.bool_())


def _constant(array: pa.Array, value: bool) -> pa.BooleanArray:
    """Return a value for each row, but null if the row has no value."""
    return pc.if_else(array.is_valid(), pa.scalar(value), pa.scalar(None, pa.bool_()))


def _compared(sign: Operator, values: Values, literal: Literal) -> pa.BooleanArray:
    if not _check(values, literal.kind, literal.text):
        return _nulls(values.array)
    compare = _OF_ARROW[sign]
    if literal.kind == "boolean":
        _check_boolean(sign, values)
    if not isinstance(literal.value, Fraction):
        return compare(values.array, pa.scalar(literal.value, values.array.type))
    below, is_exact = _at_or_below(values, literal)
    if is_exact:
        return compare(values.array, pa.scalar(below, values.array.type))
    # The values of this type next to the literal are `below` and the one after it, so that
    # `x >= literal` means `x > below`.
    if sign in ("=", "<>") or below is None:
        return _constant(values.array, sign in ("<>", ">", ">="))
    compare = pc.greater if sign in (">", ">=") else pc.less_equal
    return compare(values.array, pa.scalar(below, values.array.type))


def _check_boolean(sign: Operator, values: Values) -> None:
    if sign not in ("=", "<>"):
        raise UsageError(f"--filter orders column {values.name!r} (boolean): compare it by = or <>")


def _at_or_below(values: Values, literal: Literal) -> tuple[int | float | Decimal | None, bool]:
    """Return the largest value of a column's type that is at most a literal."""
    assert isinstance(literal.value, Fraction)
    of = values.array.type
    if pa.types.is_floating(of):
        return _float_at_or_below(literal)
    scale, scaled = of.scale if pa.types.is_decimal(of) else 0, literal.value
    if scale or values.unit != 1:
        scaled = scaled / values.unit * Fraction(10) ** scale
    least, most = _range(of)
    whole = math.floor(scaled)
    if whole < least:
        return None, False
    below = min(whole, most)
    value = Decimal(f"{below}e{-scale}") if pa.types.is_decimal(of) else below
    return value, below == scaled


def _range(of: pa.DataType) -> tuple[int, int]:
    """Return the least and the largest value of an integer type, or digits of a decimal type."""
    if pa.types.is_decimal(of):
        most = 10**of.precision - 1
        return -most, most
    if pa.types.is_unsigned_integer(of):
        return 0, 2**of.bit_width - 1
    return -(2 ** (of.bit_width - 1)), 2 ** (of.bit_width - 1) - 1


def _float_at_or_below(literal: Literal) -> tuple[float, bool]:
    exact = literal.value
    assert isinstance(exact, Fraction)
    try:
        nearest = float(exact)
    except OverflowError:
        return (sys.float_info.max if exact > 0 else -math.inf), False
    if literal.is_float or nearest == exact:
        return nearest, True
    return (nearest if nearest < exact else math.nextafter(nearest, -math.inf)), False


def _compared_columns(sign: Operator, left: Values, right: Values) -> pa.BooleanArray:
    what = f"column {right.name!r} ({right.kind})"
    if not _check(left, right.kind, what, is_column=True):
        return _nulls(left.array)
    if left.kind == "boolean":
        _check_boolean(sign, left)
    if left.array.type == right.array.type and left.unit == right.unit:
        return _OF_ARROW[sign](left.array, right.array)
    # Python compares integers, floats and decimals by their exact values, in any combination.
    compare = _OF_PYTHON[sign]
    pairs = zip(_exact(left), _exact(right), strict=True)
    return pa.array(
        [
            None if a is None or b is None else compare(a, b) if a == a and b == b else sign == "<>"
            for a, b in pairs
        ],
        pa.bool_(),
    )


def _exact(values: Values) -> list[Any]:
    if values.unit == 1:
        return list(values.array.to_pylist())
    return [None if value is None else value * values.unit for value in values.array.to_pylist()]


def _is_in(values: Values, literals: Sequence[Literal]) -> pa.BooleanArray:
    found: list[Any] = []
    array = values.array
    for literal in literals:
        if not _check(values, literal.kind, literal.text):
            continue
        if not isinstance(literal.value, Fraction):
            found.append(literal.value)
            continue
        below, is_exact = _at_or_below(values, literal)
        if is_exact:
            found.append(below)
    if values.kind == "null":
        return _nulls(array)
    if pa.types.is_floating(array.type):
        # Sets tell -0.0 from 0.0, which are equal numbers.
        array, found = pc.add(array, 0.0), [one + 0.0 for one in found]
    is_one = pc.is_in(array, value_set=pa.array(found, array.type))
    has_null = any(literal.kind == "null" for literal in literals)
    is_known = pc.and_(array.is_valid(), is_one) if has_null else array.is_valid()
    return pc.if_else(is_known, is_one, pa.scalar(None, pa.bool_()))


def _matches(values: Values, like: Like) -> pa.BooleanArray:
    if not _check(values, "text", "a pattern"):
        return _nulls(values.array)
    try:
        return pc.match_substring_regex(values.array, _regex(like))
    except pa.ArrowInvalid as error:
        raise UsageError(f"--filter has a pattern that is too long, of {like.column}") from error


def _regex(like: Like) -> str:
    """Return a pattern of LIKE as a regular expression of RE2."""
    pieces, is_escaped = [r"(?s)\A"], False
    for character in like.pattern:
        if not is_escaped and character == like.escape:
            is_escaped = True
            continue
        wild = {"%": ".*", "_": "."}.get(character)
        pieces.append(wild if wild and not is_escaped else _literally(character))
        is_escaped = False
    return "".join([*pieces, r"\z"])


def _literally(character: str) -> str:
    if character == "\0":
        return r"\x00"
    is_word = not character.isascii() or character.isalnum() or character == "_"
    return character if is_word else f"\\{character}"
