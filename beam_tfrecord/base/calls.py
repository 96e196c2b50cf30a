"""Gives functions the arguments that a class of options declares, with types and documentation."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from inspect import Parameter
from typing import Any, ParamSpec, TypeVar

from beam_tfrecord.errors import with_keywords
from beam_tfrecord.options.option import Option

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
