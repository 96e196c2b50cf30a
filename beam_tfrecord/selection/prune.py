"""Finds out from bounds of columns which parts of the input can have a row that a filter matches.

Parts are row groups of a file, or whole files; all of them are judged at once. The answer may be
wrong in one direction only: a part without such a row may seem to have one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.selection.evaluate import comparison, kind_of, rows_that_match
from beam_tfrecord.selection.nodes import (
    SIGNS,
    TRUE,
    Column,
    Condition,
    Literal,
    Node,
    columns_of,
)

# A longer list would take longer than to read what it excludes.
_MOST_LITERALS = 1000


@dataclasses.dataclass(frozen=True)
class Bounds:
    """What is known of the values of a column, an element for each part.

    All values are between `least` and `largest`, but for nulls and NaN; null if it is not known.
    """

    least: pa.Array
    largest: pa.Array
    may_be_null: pa.BooleanArray
    may_have_value: pa.BooleanArray


@dataclasses.dataclass(frozen=True)
class Parts:
    """Some parts of the input, with the bounds of columns, and a row of those of a single value."""

    count: int
    bounds: Mapping[str, Bounds]
    constants: pa.RecordBatch

    def may_match(self, condition: Condition, result: bool = True) -> pa.BooleanArray:
        """Return for each part whether a condition may be true, or false, for one of its rows."""
        if set(columns_of(condition)) <= set(self.constants.schema.names):
            return self._all(rows_that_match(condition, self.constants)[0].as_py() is result)
        match condition:
            case Node("AND" | "OR" as word, parts):
                join = pc.and_ if result is (word == "AND") else pc.or_
                return functools.reduce(join, (self.may_match(part, result) for part in parts))
            case Node("NOT", (part,)):
                return self.may_match(part, not result)
            case Node("IS NULL", (Column(name),)) if name in self.bounds:
                bounds = self.bounds[name]
                return bounds.may_be_null if result else bounds.may_have_value
            case Node("IN", (column, *literals)) if result and len(literals) <= _MOST_LITERALS:
                known = (literal for literal in literals if literal.kind != "null")
                each = (self._compare("=", column, literal, True) for literal in known)
                return functools.reduce(pc.or_, each, self._all(False))
            case Node(sign, (column, Literal() as literal)) if sign in SIGNS:
                return self._compare(sign, column, literal, result)
            case Column():
                return self._compare("=", condition, TRUE, result)
        return self._all(True)

    def _all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), self.count)

    def _compare(
        self, sign: str, column: Column, literal: Literal, result: bool
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
