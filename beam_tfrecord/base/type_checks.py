"""Checks whether values of users and of files have the types in the annotations."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import msgspec

from beam_tfrecord.errors import UsageError


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
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    return True
