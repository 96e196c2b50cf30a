"""Copies standard input to a file, which a job then reads like any other input."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

from beam_tfrecord.base.scratch import scratch_directory
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.runners.traits import check_runner_name, traits_of

STDIN = "-"
_SUFFIXES = {"csv": ".csv", "json": ".json"}
_COPY_BYTES = 2**20
_GZIP = b"\x1f\x8b"
_SPACE = b" \t\r\n\xef\xbb\xbf"


@contextlib.contextmanager
def stdin_as_file(inputs: Any, *, from_: str | None, runner: str = "direct") -> Iterator[Any]:
    """Yield the inputs, with the path of a file for ``-``, which has all bytes of standard input.

    The file is removed at the end of the block. A job that reads the same bytes again reads another
    file, so it needs `overwrite`.
    """
    named = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(named, list | tuple) or not any(
        isinstance(path, str) and path == STDIN for path in named
    ):
        yield inputs
        return
    if len(named) > 1:
        raise UsageError("- is standard input, and has to be the only input: leave out the others")
    check_runner_name(runner)
    if not traits_of(runner).runs_here:
        raise UsageError(f"{runner} workers cannot read standard input: write it to a file first")
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        raise UsageError("- is standard input, but nothing is piped to it: name a file")
    with scratch_directory() as directory:
        yield _copied(stream, directory, from_)


def _copied(stream: BinaryIO, directory: str, from_: str | None) -> str:
    first = stream.read(_COPY_BYTES)
    if not first:
        raise DataError("standard input is empty: check the program that writes to it")
    if first.startswith(_GZIP):
        raise UsageError("standard input is compressed: pipe it through gzip -dc first")
    path = os.path.join(directory, f"stdin{_SUFFIXES[_kind_of(first, from_)]}")
    try:
        with open(path, "wb") as file:
            file.write(first)
            shutil.copyfileobj(stream, file, _COPY_BYTES)
    except OSError as error:
        raise DataError(
            f"cannot copy standard input to {path!r} ({error.strerror}): set TMPDIR to a directory "
            "with more space"
        ) from error
    return path


def _kind_of(first: bytes, from_: str | None) -> str:
    if from_ is not None:
        if from_ not in _SUFFIXES:
            kinds = " or ".join(_SUFFIXES)
            raise UsageError(f"cannot read {from_} from standard input, only {kinds}: name a file")
        return from_
    if first.lstrip(_SPACE).startswith((b"{", b"[")):
        return "json"
    raise UsageError(
        "cannot tell what standard input holds: it is not JSON: pass --from csv for CSV"
    )
