"""Finds out from bounds of columns which parts of the input can have a row that a filter matches.

Parts are row groups of a file, or files of a table; all of them are judged at once. The answer is
computed from the possible results of each part of the condition: true, false and null. It may be
wrong in one direction only: a part without such a row may seem to have one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.nodes import (
    And,
    Column,
    Compare,
    Condition,
    In,
    IsNull,
    IsTruth,
    Literal,
    Not,
    Operator,
    Or,
    columns_of,
)

Mask = npt.NDArray[np.bool_]


class Bounds(NamedTuple):
    """What is known about the values of a column in some parts, one element for each."""

    least: pa.Array
    largest: pa.Array
    has_nulls: Mask
    has_values: Mask


class Results(NamedTuple):
    """The possible results of a condition in some parts, one element for each."""

    true: Mask
    false: Mask
    null: Mask

    @property
    def any(self) -> Mask:
        """Whether there is any result, because there may be a row."""
        return self.true | self.false | self.null


def parts_that_may_match(condition: Condition, bounds: Mapping[str, Bounds], count: int) -> Mask:
    """Return for each part whether the condition may be true for one of its rows."""
    return _results(condition, bounds, count).true


def single_value(value: pa.Scalar, count: int) -> Bounds:
    """Return the bounds of a column that has one value, or null, in all of `count` parts."""
    is_null, values = np.full(count, not value.is_valid), pa.repeat(value, count)
    return Bounds(values, values, is_null, ~is_null)


def _results(condition: Condition, bounds: Mapping[str, Bounds], count: int) -> Results:
    match condition:
        case And(parts):
            return _joined(_and, parts, bounds, count)
        case Or(parts):
            return _joined(_or, parts, bounds, count)
        case Not(part):
            return _not(_results(part, bounds, count))
        case IsTruth(part, truth):
            found = _results(part, bounds, count)
            is_it, is_not = (found.true, found.false) if truth else (found.false, found.true)
            return _never_null(is_it, is_not | found.null)
        case IsNull(Column(name)) if name in bounds:
            return _never_null(bounds[name].has_nulls, bounds[name].has_values)
        case IsNull(part) if not isinstance(part, Column):
            found = _results(part, bounds, count)
            return _never_null(found.null, found.true | found.false)
        case IsNull():
            return _anything(count)
    return _of_leaf(condition, bounds, count)


def _of_leaf(condition: Condition, bounds: Mapping[str, Bounds], count: int) -> Results:
    """Return the possible results of a condition that is not made of others."""
    found, names = _anything(count), columns_of(condition)
    # Types that do not compare are for the evaluation to refuse, or the column has another type in
    # other files, and the condition fits the common type.
    with contextlib.suppress(UsageError):
        found = _of_ends(condition, bounds, count)
    with contextlib.suppress(UsageError, KeyError):
        # Where each column has a single value, the evaluation itself gives the only result.
        values = pa.record_batch({name: bounds[name].least for name in names})
        result = rows_that_match(condition, values)
        is_single = functools.reduce(np.logical_and, (_is_single(bounds[name]) for name in names))
        true, null = _mask(result, of_null=False), _mask(result.is_null(), of_null=False)
        for mask, exact in zip(found, (true, ~true & ~null, null), strict=True):
            mask[is_single] = exact[is_single]
    return found


def _of_ends(condition: Condition, bounds: Mapping[str, Bounds], count: int) -> Results:
    match condition:
        case Compare(sign, Column(name), Literal() as literal) if name in bounds:
            return _with_nulls(bounds[name], *_compared(sign, name, literal, bounds[name]))
        case In(Column(name), literals) if name in bounds:
            nothing, always = np.zeros(count, np.bool_), np.ones(count, np.bool_)
            each = (
                Results(nothing, nothing, always)
                if one.kind == "null"
                else _never_null(*_compared("=", name, one, bounds[name]))
                for one in literals
            )
            return _with_nulls(bounds[name], *functools.reduce(_or, each))
    return _anything(count)


def _is_single(known: Bounds) -> Mask:
    if pa.types.is_floating(known.least.type):
        # There may also be NaN, which is outside of the bounds.
        return np.zeros(len(known.least), np.bool_)
    is_equal = _mask(pc.equal(known.least, known.largest), of_null=False)
    return is_equal & known.has_values & ~known.has_nulls


def _compared(sign: Operator, name: str, literal: Literal, known: Bounds) -> tuple[Mask, Mask]:
    """Return whether a comparison may be true, and false, for values that are not null."""

    def of(sign: Operator, ends: pa.Array) -> pa.BooleanArray:
        return rows_that_match(Compare(sign, Column(name), literal), pa.record_batch({name: ends}))

    if sign in ("=", "<>"):
        is_within = _mask(of("<=", known.least), of_null=True)
        is_within &= _mask(of(">=", known.largest), of_null=True)
        always = np.ones(len(is_within), np.bool_)
        return (is_within, always) if sign == "=" else (always, is_within)
    # A comparison changes once along the values. NaN is outside of the bounds, and makes every such
    # comparison false.
    first, last = known.least, known.largest
    if sign in ("<", "<="):
        first, last = last, first
    is_float = pa.types.is_floating(first.type)
    may_be_false = _mask(pc.invert(of(sign, first)), of_null=True) | is_float
    return _mask(of(sign, last), of_null=True), may_be_false


def _mask(found: pa.BooleanArray, *, of_null: bool) -> Mask:
    mask: Mask = pc.fill_null(found, of_null).to_numpy(zero_copy_only=False)
    return mask.copy()


def _with_nulls(known: Bounds, true: Mask, false: Mask, null: Mask | bool = False) -> Results:
    has = known.has_values
    return Results(true & has, false & has, known.has_nulls | (null & has))


def _never_null(true: Mask, false: Mask) -> Results:
    return Results(true, false, np.zeros(len(true), np.bool_))


def _anything(count: int) -> Results:
    return Results(*np.ones((3, count), np.bool_))


def _joined(
    join: Callable[[Results, Results], Results],
    parts: Sequence[Condition],
    bounds: Mapping[str, Bounds],
    count: int,
) -> Results:
    return functools.reduce(join, (_results(part, bounds, count) for part in parts))


def _and(left: Results, right: Results) -> Results:
    return Results(
        left.true & right.true,
        left.false & right.any | right.false & left.any,
        left.null & (right.null | right.true) | left.true & right.null,
    )


def _or(left: Results, right: Results) -> Results:
    return _not(_and(_not(left), _not(right)))


def _not(found: Results) -> Results:
    return Results(found.false, found.true, found.null)
