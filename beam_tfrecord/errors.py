"""The exceptions of this package; their messages name options by flag or by Python keyword.

    BeamTFRecordError          base of every error that this package raises on purpose
    ├── DataError              the data is at fault (exit code 1)
    │   ├── SchemaConflict     two parts of the input disagree about a type
    │   ├── RejectedRows       more rows were rejected than the budget allows
    │   └── InputChanged       a file of the input changed while it was read
    ├── UsageError             the call or the command is at fault (exit code 2)
    │   └── TargetExists       the output is not empty, or another job writes there
    ├── StorageError           a remote filesystem failed even after retries (exit code 1)
    │   └── LeaseLost          another job took over the output directory
    └── JobFailed              the runner ended the job (exit code 1)

Messages are lower case and say what happened, where, and what to do about it. Most have one line;
two spaces indent the further lines of others. The code writes them with the flags of the command
line; for Python callers, `for_caller` replaces flags by keywords.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import itertools
import linecache
import re
import traceback
import types
from collections.abc import Iterable, Iterator
from typing import Literal

from beam_tfrecord.options import Option
from beam_tfrecord.options.jobs import RUNNER_OPTIONS, WRITE_OPTIONS, RunnerOption
from beam_tfrecord.options.sources import SOURCE_OPTIONS

OptionName = Literal["flag", "keyword"]

_named_by: OptionName = "keyword"
_MOST_LINES = 11  # of a message in a notebook

# What is in quotes is not of the message's own words, so it stays.
_CITED = r"""(?<!\w)(?:'[^']*'|"[^"]*")"""
_FLAG = r"(?<![\w'\"-])(--[a-z][a-z-]*)(?![\w=-])"
_UNPRINTABLE = re.compile(rb"[^ -~]|[\\']")
# An error of this package in a traceback, with the further lines of its message, all indented.
_RAISED = re.compile(r"\bbeam_tfrecord\.errors\.(\w+): (.+(?:\n {2}.+)*)")
_STEP = re.compile(r" \[while running '[^']*'\]$")


class BeamTFRecordError(Exception):
    """Base of every error that this package raises on purpose.

    `str` and `repr` show the message with options named by flag or by keyword; see
    `options_named_by`.

    Example:
        >>> try:
        ...     bt.load("nothing/")
        ... except bt.BeamTFRecordError as error:
        ...     print(type(error).__name__)
        UsageError
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        # PyTorch passes the message by keyword when it raises an error of a worker process again.
        super().__init__(message)

    @property
    def message(self) -> str:
        """The message with flags, as the code wrote it; use this form to store or send errors."""
        return super().__str__()

    def __str__(self) -> str:
        return for_caller(self.message)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython and Jupyter show: the user's line, and the message."""
        lines = f"{type(self).__name__}: {self}".splitlines()
        if len(lines) > _MOST_LINES:
            lines = [*lines[: _MOST_LINES - 1], "  …"]
        frames = traceback.walk_tb(self.__traceback__)
        own = list(itertools.takewhile(lambda one: not _is_of_package(one[0]), frames))
        if not own:
            return lines
        frame, number = own[-1]
        source = linecache.getline(frame.f_code.co_filename, number).strip()
        return [f"line {number}: {source}", *lines]


def _is_of_package(frame: types.FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == __package__


class DataError(BeamTFRecordError):
    """The input data cannot become the requested dataset."""

    exit_code = 1


class SchemaConflict(DataError):
    """Two parts of the input, or the input and the user's schema, disagree about a column."""


class RejectedRows(DataError):
    """More rows were rejected than ``max_rejects`` allows; nothing was published."""


class InputChanged(DataError):
    """A file of the input was changed or removed during the job; nothing was published."""


class UsageError(BeamTFRecordError):
    """The arguments of a call or command are wrong or do not fit together."""


class TargetExists(UsageError):
    """The output already contains something else, or another job is writing there."""


class StorageError(BeamTFRecordError):
    """A remote filesystem failed, and trying again did not help."""

    exit_code = 1


class LeaseLost(StorageError):
    """Another job took over the lock file (the lease) of the output directory."""


class JobFailed(BeamTFRecordError):
    """The runner ended the job, for a reason other than the data."""

    exit_code = 1


class OutputWarning(UserWarning):
    """An output was written, and its user should know something: lost digits, rejected rows."""


def error_of_kind(kind: str, message: str) -> BeamTFRecordError:
    """Return an error of this package by the name of its class; the base class if it is unknown."""
    found = globals().get(kind)
    if isinstance(found, type) and issubclass(found, BeamTFRecordError):
        return found(message)
    return BeamTFRecordError(message)


def error_in(text: str) -> BeamTFRecordError | None:
    """Return the last error of this package in a text of tracebacks; None if there is none."""
    if not (raised := _RAISED.findall(text)):
        return None
    kind, message = raised[-1]
    return error_of_kind(kind, _STEP.sub("", message))


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the question whether the most similar known word is meant; `otherwise` without one."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


@contextlib.contextmanager
def options_named_by(name: OptionName) -> Iterator[None]:
    """Make messages name options by flag or by keyword, in this process and during the block."""
    global _named_by
    before, _named_by = _named_by, name
    try:
        yield
    finally:
        _named_by = before


def for_caller(message: str) -> str:
    """Return a message with options named by flag or keyword, as `options_named_by` last set."""
    return message if _named_by == "flag" else with_keywords(message)


def with_keywords(message: str) -> str:
    """Return a message with flags replaced by the keywords of Python functions.

    ``--max-rejects 1%`` becomes ``max_rejects 1%``, and ``--union`` becomes ``union=True``. The
    flag of a runner becomes the name of the option in Beam.
    """
    return re.sub(f"{_CITED}|{_FLAG}", _with_keyword, message)


def _with_keyword(match: re.Match[str]) -> str:
    option = _options().get(match[1])
    if option is None:
        return match[0]
    if isinstance(option, RunnerOption):
        return f"--{option.keyword}"
    constant = {"switch": "=True", "off": "=False"}.get(option.form, "")
    return f"{option.keyword}{constant}"


def quoted(value: str) -> str:
    """Return the value of an option in quotes, as messages have it and shells take it."""
    if value.isprintable():
        return "'" + value.replace("'", "'\"'\"'") + "'"
    # A terminal would not show the characters.
    encoded = value.encode("utf-8", "surrogateescape")
    escaped = _UNPRINTABLE.sub(lambda byte: b"\\%03o" % byte[0][0], encoded)
    return f"$'{escaped.decode()}'"


@functools.cache
def _options() -> dict[str, Option]:
    return {o.flag: o for o in (*WRITE_OPTIONS, *SOURCE_OPTIONS, *RUNNER_OPTIONS)}
