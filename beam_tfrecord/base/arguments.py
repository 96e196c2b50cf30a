"""Checks arguments, and gives functions the arguments that a class of options declares."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
import textwrap
from collections.abc import Callable, Iterable
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar

import msgspec

from beam_tfrecord.errors import UsageError, with_keywords
from beam_tfrecord.options import Option

P = ParamSpec("P")
Call = TypeVar("Call")
Result = TypeVar("Result")

_WIDTH = 92


def takes(
    options: Callable[P, Any], bind: Callable[..., Call]
) -> Callable[[Callable[[Call], Result]], Callable[P, Result]]:
    """Give a function the arguments of a class of options, from which `bind` makes its own.

    The decorated function has the keywords for type checkers, `inspect.signature` and `help`.
    """

    def decorate(function: Callable[[Call], Result]) -> Callable[P, Result]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            return function(bind(*args, **kwargs))

        _set_signature(call, options)
        call.__doc__ = with_arguments(function.__doc__, options)
        return call

    return decorate


def describe_arguments(kind: Any) -> None:
    """Give a class that is a dataclass of options its signature and its section of arguments."""
    _set_signature(kind.__init__, kind, Parameter("self", Parameter.POSITIONAL_ONLY))
    kind.__doc__ = with_arguments(kind.__doc__, kind)


def with_arguments(text: str | None, options: Any) -> str:
    """Return a docstring with a section of arguments before those of results and errors."""
    text = inspect.cleandoc(text or "")
    lines = [_described(field.name, *field.type.__metadata__) for field in _in_order(options)]
    end = re.search(r"^(Returns|Raises):|\Z", text, re.MULTILINE)
    at = end.start() if end else len(text)
    return "\n".join([text[:at].rstrip(), "", "Args:", *lines, "", text[at:]]).rstrip()


def _described(name: str, option: Option) -> str:
    text = f"{name}: {with_keywords(option.doc or option.help)}"
    if option.choices and not option.metavar:
        text = f"{text} One of {', '.join(option.choices)}."
    return textwrap.fill(text, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)


def _set_signature(function: Any, options: Any, *first: Parameter) -> None:
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY if field.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
            default=Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=_shown(field.type.__origin__),
        )
        for field in _in_order(options)
    ]
    function.__signature__ = inspect.Signature([*first, *parameters])
    function.arguments = options


def _shown(hint: Any) -> Any:
    return getattr(hint, "__forward_arg__", hint)


def _in_order(options: Any) -> list[Any]:
    """Return the fields of a class of options, in the order of the arguments."""
    return sorted(dataclasses.fields(options), key=lambda field: field.kw_only)


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
