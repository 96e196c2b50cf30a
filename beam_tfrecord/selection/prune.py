"""Finds out from bounds of columns whether a part of a file can have a row that a filter matches.

The answer is computed from the possible results of each part of the condition: true, false and
null. It may be wrong in one direction only: a part without such a row may seem to have one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

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
)

Results = frozenset[bool | None]
_ANY: Results = frozenset((True, False, None))
_VALUES: Results = frozenset((True, False))
_NULL: Results = frozenset((None,))
_NONE: Results = frozenset()


class Bounds(NamedTuple):
    """What is known about the values of a column in a part of a file.

    Attributes:
        ends: The least and the largest value, or values beyond them; None if they are unknown.
        has_nulls: Whether there may be nulls.
        has_values: Whether there may be values.
    """

    ends: pa.Array | None
    has_nulls: bool = True
    has_values: bool = True


def may_match(condition: Condition, bounds: Mapping[str, Bounds]) -> bool:
    """Return whether the condition may be true for a row.

    Args:
        condition: The condition.
        bounds: Bounds by column; nothing is known about columns that are not among them.
    """
    return True in _results(condition, bounds)


def _results(condition: Condition, bounds: Mapping[str, Bounds]) -> Results:
    match condition:
        case And(parts):
            return _joined(_and, parts, bounds)
        case Or(parts):
            return _joined(_or, parts, bounds)
        case Not(part):
            return frozenset(_not(one) for one in _results(part, bounds))
        case IsTruth(part, truth):
            return frozenset(one is truth for one in _results(part, bounds))
        case IsNull(Column(name)):
            if (known := bounds.get(name)) is None:
                return _VALUES
            return frozenset(
                one for one, may in ((True, known.has_nulls), (False, known.has_values)) if may
            )
        case IsNull(part):
            return frozenset(one is None for one in _results(part, bounds))
        case Compare(sign, Column(name), Literal() as literal) if name in bounds:
            return _with_nulls(bounds[name], _compared(sign, name, literal, bounds[name]))
        case In(Column(name), literals) if name in bounds:
            found = [
                _NULL if one.kind == "null" else _compared("=", name, one, bounds[name])
                for one in literals
            ]
            joined = functools.reduce(lambda a, b: _product(_or, a, b), found)
            return _with_nulls(bounds[name], joined)
    return _ANY


def _with_nulls(known: Bounds, of_values: Results) -> Results:
    return (_NULL if known.has_nulls else _NONE) | (of_values if known.has_values else _NONE)


def _compared(sign: Operator, name: str, literal: Literal, known: Bounds) -> Results:
    """Return the possible results of a comparison for values that are not null."""
    if known.ends is None:
        return _VALUES
    data = pa.record_batch({name: known.ends})

    def of_ends(sign: Operator) -> list[bool]:
        found: list[bool] = rows_that_match(Compare(sign, Column(name), literal), data).to_pylist()
        return found

    try:
        if sign in ("=", "<>"):
            is_within = of_ends("<=")[0] and of_ends(">=")[1]
            return _VALUES if is_within else frozenset((sign == "<>",))
        # A comparison changes once along the values, so the ends have all of its results. NaN is
        # outside of the bounds, and makes every such comparison false.
        is_float = pa.types.is_floating(known.ends.type)
        return frozenset((*of_ends(sign), *((False,) if is_float else ())))
    except UsageError:
        # The column has another type in other files, and the condition fits the common type.
        return _VALUES


def _joined(
    join: Callable[[bool | None, bool | None], bool | None],
    parts: Sequence[Condition],
    bounds: Mapping[str, Bounds],
) -> Results:
    found = (_results(part, bounds) for part in parts)
    return functools.reduce(functools.partial(_product, join), found)


def _product(
    join: Callable[[bool | None, bool | None], bool | None], left: Results, right: Results
) -> Results:
    return frozenset(join(one, other) for one in left for other in right)


def _and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _or(left: bool | None, right: bool | None) -> bool | None:
    return _not(_and(_not(left), _not(right)))


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value
