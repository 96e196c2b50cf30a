"""Decides which rows match a filter, and which pieces of the input can have a matching row.

This is the only place that decides, for every source and runner. Numbers compare by their exact
values, whatever their types: no operand is rounded to the type of the other. NaN is neither equal
to, less than nor greater than any number, as in IEEE 754. Text compares by code points.

Pieces of the input are row groups of a file, or whole files. Bounds of their columns tell which of
them to skip. The answer may be wrong in one direction only: a piece without a matching row may seem
to have one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.selection.parse import DAY, SIGNS, TRUE, ColumnRef, Condition, Literal, Node

_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_MS = 86_400_000
_WILDCARDS = {"%": ".*", "_": "."}
_FLOATS = (pa.float32(), pa.float64())
# A longer list would take longer than to read what it excludes.
_MOST_LITERALS = 1000
_HINTS = {
    "number": "write a number without quotes",
    "text": "quote the literal, and leave out DATE or TIMESTAMP",
    "boolean": "write TRUE or FALSE",
    "date": "write DATE '2024-12-31'",
    "timestamp": "write TIMESTAMP '2024-12-31 23:59:59', without an offset",
    "timestamp with time zone": "write TIMESTAMP '2024-12-31 23:59:59Z', with an offset such as Z",
}


class Values(NamedTuple):
    """The values of a column in a form that compares."""

    name: str
    kind: str
    array: pa.Array


def rows_that_match(condition: Condition, data: pa.RecordBatch) -> pa.BooleanArray:
    """Return for each row whether the condition is true, false or null."""
    match condition:
        case ColumnRef():
            return _compared("=", _values(condition, data), TRUE)
        case Node("AND" | "OR" as word, parts):
            join = pc.and_kleene if word == "AND" else pc.or_kleene
            return functools.reduce(join, (rows_that_match(part, data) for part in parts))
        case Node("NOT", (part,)):
            return pc.invert(rows_that_match(part, data))
        case Node("IS NULL", (column,)):
            return _column(column, data).is_null()
        case Node("IN", (column, *literals)):
            return _is_in(_values(column, data), literals)
        case Node("LIKE", (column, pattern)):
            return _matches(_values(column, data), pattern)
    left, right = condition.parts
    if isinstance(right, ColumnRef):
        return _compared_columns(condition.word, _values(left, data), _values(right, data))
    return _compared(condition.word, _values(left, data), right)


def _column(column: ColumnRef, data: pa.RecordBatch) -> pa.Array:
    names = data.schema.names
    if column.name not in names:
        raise UsageError(not_found(column.name, names, of="--filter"))
    return data.column(column.name)


def _values(column: ColumnRef, data: pa.RecordBatch) -> Values:
    array = _column(column, data)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if is_text(array.type):
        array = array.cast(pa.large_string())
    elif pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    return Values(column.name, kind_of(array.type), array)


def kind_of(arrow: pa.DataType) -> str:
    """Return the kind of the literals that values of a type compare with, or the type's name."""
    types = pa.types
    if types.is_integer(arrow) or types.is_decimal(arrow) or arrow in _FLOATS:
        return "number"
    if types.is_timestamp(arrow):
        return "timestamp" if arrow.tz is None else "timestamp with time zone"
    kinds = {
        "text": is_text(arrow),
        "boolean": types.is_boolean(arrow),
        "date": types.is_date(arrow),
    }
    return next((kind for kind, is_it in kinds.items() if is_it), str(arrow))


def _check(values: Values, kind: str, what: str, *, is_column: bool = False) -> bool:
    """Return whether there is something to compare: False if one side is always null."""
    if "null" in (values.kind, kind):
        return False
    if values.kind != kind:
        hint = "use --map" if is_column else _HINTS.get(values.kind, "use --map")
        if (values.kind, kind) == ("date", "text") and DAY.fullmatch(what[1:-1]):
            hint = f"write DATE {what}"
        raise UsageError(
            f"--filter compares column {values.name!r} ({values.kind}) with {what}: {hint}"
        )
    return True


def _nulls(array: pa.Array) -> pa.BooleanArray:
    return pa.nulls(len(array), pa.bool_())


def _compared(sign: str, values: Values, literal: Literal) -> pa.BooleanArray:
    if not _check(values, literal.kind, literal.text):
        return _nulls(values.array)
    match comparison(sign, literal, values.array.type):
        case bool(always):
            # Null if the row has no value.
            return pc.if_else(values.array.is_valid(), always, pa.scalar(None, pa.bool_()))
        case sign, value:
            return SIGNS[sign].compare(values.array, value)


def comparison(sign: str, literal: Literal, arrow: pa.DataType) -> tuple[str, pa.Scalar] | bool:
    """Return what a comparison with a literal is among the values of a type.

    It is a comparison with a value of that type, or the same for all values.
    """
    below, is_exact = _at_or_below(literal, arrow)
    if is_exact:
        return sign, pa.scalar(below, arrow)
    # The values of this type next to the literal are `below` and the one after it, so that
    # `x >= literal` means `x > below`.
    if sign in ("=", "<>") or below is None:
        return sign in ("<>", ">", ">=")
    return ">" if sign in (">", ">=") else "<=", pa.scalar(below, arrow)


def _at_or_below(literal: Literal, arrow: pa.DataType) -> tuple[Any, bool]:
    """Return the largest value of a type that is at most a literal, and whether they are equal."""
    if not isinstance(literal.value, Fraction):
        return literal.value, True
    if pa.types.is_floating(arrow):
        return _float_at_or_below(literal, arrow)
    scaled, (least, most) = literal.value * _per_unit(arrow), _range(arrow)
    whole = math.floor(scaled)
    if whole < least:
        return None, False
    below = min(whole, most)
    value = Decimal(f"{below}e{-arrow.scale}") if pa.types.is_decimal(arrow) else below
    return value, below == scaled


def _per_unit(arrow: pa.DataType) -> Fraction:
    """Return by what a literal is multiplied to count in the smallest steps of a type."""
    if pa.types.is_decimal(arrow):
        return Fraction(f"1e{arrow.scale}")
    if pa.types.is_timestamp(arrow):
        return Fraction(1, _NS[arrow.unit])
    return Fraction(_DAY_MS if pa.types.is_date64(arrow) else 1)


def _range(arrow: pa.DataType) -> tuple[int, int]:
    """Return the least and the largest value of a type, in its smallest steps."""
    if pa.types.is_decimal(arrow):
        most = 10**arrow.precision - 1
        return -most, most
    if pa.types.is_unsigned_integer(arrow):
        return 0, 2**arrow.bit_width - 1
    return -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1


def _float_at_or_below(literal: Literal, arrow: pa.DataType) -> tuple[float, bool]:
    exact, double, kind = literal.value, float(literal.text), arrow.to_pandas_dtype()
    assert isinstance(exact, Fraction)
    if literal.is_float and math.isfinite(double):
        exact = Fraction(double)
    with np.errstate(over="ignore"):
        below = kind(double)
    if float(below) > exact:
        below = np.nextafter(below, kind(-math.inf))
    return float(below), float(below) == exact


def _compared_columns(sign: str, left: Values, right: Values) -> pa.BooleanArray:
    what = f"column {right.name!r} ({right.kind})"
    if not _check(left, right.kind, what, is_column=True):
        return _nulls(left.array)
    if left.array.type == right.array.type:
        return SIGNS[sign].compare(left.array, right.array)
    # Python compares integers, floats and decimals by their exact values, in any combination.
    pairs = zip(_exact(left.array), _exact(right.array), strict=True)
    order = pa.array([_order(one, other) for one, other in pairs], pa.float64())
    return SIGNS[sign].compare(order, 0.0)


def _order(one: Any, other: Any) -> float | None:
    """Return -1, 0 or 1 for less, equal and greater; NaN if either is NaN, None if null."""
    if one is None or other is None:
        return None
    return float((one > other) - (one < other)) if one == one and other == other else math.nan


def _exact(array: pa.Array) -> list[Any]:
    if pa.types.is_temporal(array.type):
        steps = array.cast(pa.int64() if array.type.bit_width == 64 else pa.int32()).to_pylist()
        return [None if step is None else step / _per_unit(array.type) for step in steps]
    return list(array.to_pylist())


def _is_in(values: Values, literals: Sequence[Literal]) -> pa.BooleanArray:
    array = values.array
    wanted = [one for one in literals if _check(values, one.kind, one.text)]
    pairs = (_at_or_below(one, array.type) for one in wanted)
    found = [value for value, is_exact in pairs if is_exact]
    if pa.types.is_floating(array.type):
        # Sets tell -0.0 from 0.0, which are equal numbers.
        array, found = pc.add(array, 0.0), [one + 0.0 for one in found]
    is_one = pc.is_in(array, value_set=pa.array(found, array.type))
    has_null = len(wanted) < len(literals)
    is_known = pc.and_(array.is_valid(), is_one) if has_null else array.is_valid()
    return pc.if_else(is_known, is_one, pa.scalar(None, pa.bool_()))


def _matches(values: Values, pattern: Literal) -> pa.BooleanArray:
    if not _check(values, "text", "a pattern"):
        return _nulls(values.array)
    regex = "".join(_WILDCARDS.get(one) or re.escape(one) for one in str(pattern.value))
    try:
        return pc.match_substring_regex(values.array, rf"(?s)\A{regex}\z")
    except pa.ArrowInvalid as error:
        raise UsageError(f"--filter has a pattern that is too long, of {values.name!r}") from error


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What is known of the values of a column, an element for each piece.

    All values are between `least` and `largest`, but for nulls and NaN; null if it is not known.
    """

    least: pa.Array
    largest: pa.Array
    may_be_null: pa.BooleanArray
    may_have_value: pa.BooleanArray


@dataclasses.dataclass(frozen=True)
class PieceBounds:
    """Pieces of the input, with the bounds of columns, and a row of those of a single value."""

    count: int
    bounds: Mapping[str, Bounds]
    constants: pa.RecordBatch

    def may_match(self, condition: Condition, result: bool = True) -> pa.BooleanArray:
        """Return for each piece whether a condition may be true, or false, for one of its rows."""
        if set(condition.columns) <= set(self.constants.schema.names):
            return self._all(rows_that_match(condition, self.constants)[0].as_py() is result)
        match condition:
            case Node("AND" | "OR" as word, parts):
                join = pc.and_ if result is (word == "AND") else pc.or_
                return functools.reduce(join, (self.may_match(part, result) for part in parts))
            case Node("NOT", (part,)):
                return self.may_match(part, not result)
            case Node("IS NULL", (ColumnRef(name),)) if name in self.bounds:
                bounds = self.bounds[name]
                return bounds.may_be_null if result else bounds.may_have_value
            case Node("IN", (column, *literals)) if result and len(literals) <= _MOST_LITERALS:
                known = (literal for literal in literals if literal.kind != "null")
                each = (self._compare("=", column, literal, True) for literal in known)
                return functools.reduce(pc.or_, each, self._all(False))
            case Node(sign, (column, Literal() as literal)) if sign in SIGNS:
                return self._compare(sign, column, literal, result)
            case ColumnRef():
                return self._compare("=", condition, TRUE, result)
        return self._all(True)

    def _all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), self.count)

    def _compare(
        self, sign: str, column: ColumnRef, literal: Literal, result: bool
    ) -> pa.BooleanArray:
        bounds = self.bounds.get(column.name)
        # Types that do not compare are for the evaluation to refuse, or the column has another type
        # in other files, and the condition fits the common type.
        if bounds is None or kind_of(bounds.least.type) != literal.kind:
            return self._all(True)
        sign = sign if result else SIGNS[sign].opposite
        may_be_nan = pa.types.is_floating(bounds.least.type) and (sign == "<>" or not result)
        found = self._all(True) if may_be_nan else _within(sign, literal, bounds)
        return pc.and_(found, bounds.may_have_value)


def _within(sign: str, literal: Literal, bounds: Bounds) -> pa.BooleanArray:
    """Return whether a comparison may be true of values between the bounds."""
    least, largest = bounds.least, bounds.largest
    match comparison(sign, literal, least.type):
        case bool(always):
            return pa.repeat(pa.scalar(always), len(least))
        case "=", value:
            found = pc.and_(pc.less_equal(least, value), pc.greater_equal(largest, value))
        case "<>", value:
            # Bounds of texts may be cut.
            is_same = pc.and_(pc.equal(least, value), pc.equal(largest, value))
            found = pc.or_(pc.invert(is_same), literal.kind == "text")
        case sign, value:
            found = SIGNS[sign].compare(largest if sign in (">", ">=") else least, value)
    return pc.fill_null(found, True)
