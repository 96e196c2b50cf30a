"""The errors of this package, and how their messages name options.

    BeamTFRecordError          base of every error that this package raises on purpose
    ├── DataError              the data is at fault (exit code 1)
    │   ├── SchemaConflict     two parts of the input disagree about a type
    │   ├── RejectedRows       more rows were rejected than the budget allows
    │   └── InputChanged       a file of the input changed while it was read
    ├── UsageError             the call or the command is at fault (exit code 2)
    │   └── TargetExists       a dataset, or something else, is in the way
    ├── StorageError           a remote filesystem failed for good (exit code 1)
    │   └── LeaseLost          another job has the output directory now
    └── JobFailed              the runner ended the job (exit code 1)

Messages are lower case and say what happened, where, and what to do about it. In the code they name
options by the flags of the command line; Python callers see the keywords instead.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Literal

from beam_tfrecord.options import SOURCE_OPTIONS, WRITE_OPTIONS, Option
from beam_tfrecord.options.runners import RUNNER_OPTIONS, RunnerOption

OptionName = Literal["flag", "keyword"]

_named_by: OptionName = "keyword"

# One word as shells read it, which may hold brackets and quotes.
_WORD = r"""(?:'[^']*'|"[^"]*"|\([^()]*\)|\[[^][]*\]|[^\s'"()\[\],;])+"""
_FLAG = (
    rf"(?<![\w'\"-])(?P<flag>--[a-z][a-z-]*)(?![\w=-])"
    rf"(?: (?!--)(?P<value>{_WORD})(?P<more>(?: (?P=flag) {_WORD})*))?"
)
_AFTER_DASHES = r"(?<!\S)(\(?)-- (--[a-z][\w-]*=[^\s(),;]+)"


class BeamTFRecordError(Exception):
    """Base of every error this package raises on purpose.

    `str` returns the message with options named as the caller knows them; see `options_named_by`.
    """

    exit_code = 2

    @property
    def message(self) -> str:
        """The message as the code has it, with flags; store and send this one."""
        return super().__str__()

    def __str__(self) -> str:
        return for_caller(self.message)


class DataError(BeamTFRecordError):
    """The input data cannot become the requested dataset."""

    exit_code = 1


class SchemaConflict(DataError):
    """Two parts of the input, or the input and the user's schema, disagree about a column."""


class RejectedRows(DataError):
    """More rows were rejected than ``max_rejects`` allows; nothing was published."""


class InputChanged(DataError):
    """A file of the input is no longer the one that was listed; nothing was published."""


class UsageError(BeamTFRecordError):
    """The call cannot be carried out as it was written."""


class TargetExists(UsageError):
    """Something is in the way at the output, or another job is at work there."""


class StorageError(BeamTFRecordError):
    """A remote filesystem failed, and trying again did not help."""

    exit_code = 1


class LeaseLost(StorageError):
    """Another job has the output directory now."""


class JobFailed(BeamTFRecordError):
    """The runner ended the job, for a reason other than the data."""

    exit_code = 1


@contextlib.contextmanager
def options_named_by(name: OptionName) -> Iterator[None]:
    """Let messages name options by flag or by keyword in this process, during the block.

    Args:
        name: ``flag`` for the command line; ``keyword``, the default, for Python callers.
    """
    global _named_by
    before, _named_by = _named_by, name
    try:
        yield
    finally:
        _named_by = before


def for_caller(message: str) -> str:
    """Return a message with options named as the caller knows them: by flag or by keyword."""
    return message if _named_by == "flag" else with_keywords(message)


def with_keywords(message: str) -> str:
    """Return a message with the keywords of Python functions in place of flags.

    ``--max-rejects`` becomes ``max_rejects=``, ``--union`` becomes ``union=True``, and
    ``--types a=text`` becomes ``types={'a': 'text'}``. A runner's flag becomes Beam's option, and
    options after ``--`` an argument ``pipeline_options``.
    """
    message = re.sub(_AFTER_DASHES, r"\1pipeline_options=['\2']", message)
    return re.sub(_FLAG, _with_keyword, message)


def _with_keyword(match: re.Match[str]) -> str:
    flag, value = match["flag"], match["value"] or ""
    option = _options().get(flag)
    if option is None:
        return match[0]
    is_beams = isinstance(option, RunnerOption)
    keyword = f"--{option.keyword}" if is_beams else f"{option.keyword}="
    constant = {"switch": "True", "off": "False"}.get(option.form, "")
    if value and option.form == "words":
        words = [value, *re.findall(rf" {flag} ({_WORD})", match["more"])]
        return f"{keyword}{[_unquoted(word) for word in words]}"
    # The end of a sentence is no part of a value.
    word = value.rstrip(".:")
    if constant or (code := _python_value(option, word)) is None:
        return f"{keyword}{constant}{with_keywords(match[0].removeprefix(flag))}"
    return f"{keyword}{'=' if is_beams else ''}{code}{value.removeprefix(word)}"


def _python_value(option: Option, word: str) -> str | None:
    """Return the word after a flag as Python code, or None if it belongs to the sentence."""
    value = _unquoted(word)
    if option.form == "types":
        pairs = [pair.partition("=") for pair in re.split(r",(?=[^,=]+=)", value)]
        return repr({name: kind for name, _, kind in pairs}) if "=" in value else None
    # A word in quotes, or with a digit or a sign, is a value and no part of the sentence.
    is_value = value in option.choices or value != word or re.search(r"[\d=|./:]", value)
    if not is_value:
        return None
    return value if isinstance(option, RunnerOption) or value.isdecimal() else repr(value)


def _unquoted(word: str) -> str:
    return re.sub(r"'([^']*)'|\"([^\"]*)\"", r"\1\2", word)


@functools.cache
def _options() -> dict[str, Option]:
    return {o.flag: o for o in (*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS)}
