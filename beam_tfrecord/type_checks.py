"""Whether a value is of an annotated type, for values that come from files."""

from __future__ import annotations

import collections.abc
import functools
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

Check = Callable[[Any], bool]


def conforms(value: Any, hint: Any) -> bool:
    """Tell whether `value` is of the type `hint`: unlike for Python, no bool is an int.

    Args:
        value: Any value; what it holds is looked at as well.
        hint: An annotation of builtins, their generics, unions, arrays of a dtype and classes.
    """
    return _check_of(hint)(value)


@functools.cache
def _check_of(hint: Any) -> Check:
    if hint is Any:
        return lambda value: True
    if hint is None or hint is types.NoneType:
        return lambda value: value is None
    if hint is float:
        return lambda value: type(value) in (float, int)
    if hint in (int, str, bytes, bool):
        return lambda value: type(value) is hint
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        checks = [_check_of(one) for one in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is np.ndarray:
        (scalar,) = typing.get_args(arguments[1])
        return lambda value: type(value) is np.ndarray and value.dtype.type is scalar
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _check_of_each([_check_of(one) for one in arguments])
    if origin in (dict, collections.abc.Mapping):
        key, item = map(_check_of, arguments)
        return lambda value: (
            type(value) is dict and all(map(key, value)) and all(map(item, value.values()))
        )
    if origin in (tuple, list, frozenset, collections.abc.Sequence):
        inner = _check_of(arguments[0])
        of = (list, tuple) if origin is collections.abc.Sequence else (origin,)
        return lambda value: type(value) in of and all(map(inner, value))
    return lambda value: isinstance(value, origin or hint)


def _check_of_each(checks: list[Check]) -> Check:
    return lambda value: (
        type(value) is tuple
        and len(value) == len(checks)
        and all(check(one) for check, one in zip(checks, value, strict=True))
    )
