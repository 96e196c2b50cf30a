"""Checks whether values of users and of files have the types in the annotations."""

from __future__ import annotations

import collections.abc
import functools
import operator
import types
import typing
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from beam_tfrecord.errors import UsageError

Check = Callable[[Any], bool]


def as_words(option: str, words: Iterable[str] | None) -> tuple[str, ...]:
    """Return the words of an option as a tuple; None means none."""
    if isinstance(words, str):
        raise UsageError(f"{option} {words!r} is one string: pass a list of them")
    return () if words is None else tuple(words)


def check_seed(seed: int | None, name: str = "seed") -> int:
    """Return a seed, or the number of an epoch, of 64 bits; None means 0."""
    try:
        number = 0 if seed is None else operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise UsageError(f"{name} {seed!r} is out of range: choose one from 0 to 2^64 - 1")
    return number


def has_type(value: Any, hint: Any) -> bool:
    """Return whether `value` is of the type `hint`. Unlike in Python, a bool is not an int."""
    return _check_of(hint)(value)


def check_fields(made: Any) -> None:
    """Check that each field of a dataclass instance has the type in its annotation."""
    for name, hint in _field_types(typing.cast(Hashable, type(made))).items():
        if not has_type(getattr(made, name), hint):
            raise ValueError(f"{name} cannot be {getattr(made, name)!r:.40}")


@functools.cache
def _field_types(kind: Hashable) -> dict[str, Any]:
    return typing.get_type_hints(kind)


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
    return _check_of_generic(typing.get_origin(hint) or hint, typing.get_args(hint))


def _check_of_generic(origin: Any, arguments: tuple[Any, ...]) -> Check:
    if origin in (typing.Union, types.UnionType):
        checks = [_check_of(one) for one in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is np.ndarray and arguments:
        (scalar,) = typing.get_args(arguments[1])
        return lambda value: type(value) is np.ndarray and value.dtype.type is scalar
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        checks = [_check_of(one) for one in arguments]
        return lambda value: (
            type(value) is tuple
            and len(value) == len(checks)
            and all(check(one) for check, one in zip(checks, value, strict=True))
        )
    if origin in (dict, collections.abc.Mapping) and arguments:
        key, item = map(_check_of, arguments)
        return lambda value: (
            type(value) is dict and all(map(key, value)) and all(map(item, value.values()))
        )
    if origin in (tuple, list, frozenset, collections.abc.Sequence) and arguments:
        inner = _check_of(arguments[0])
        of = (list, tuple) if origin is collections.abc.Sequence else (origin,)
        return lambda value: type(value) in of and all(map(inner, value))
    return lambda value: isinstance(value, origin)
