"""Hashes buffers and files by XXH64, and writes and reads manifests, which end with their own hash.

Manifests contain a hash as 16 hex digits; ``docs/format.md`` defines it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.storage import open_read

T = TypeVar("T")

_READ_BYTES = 8 * 2**20


def data_hash(data: Any) -> str:
    """Return the XXH64 of all bytes of a buffer as 16 hex digits."""
    return f"{native.xxh64(data, 0):016x}"


def file_hash(path: str) -> str:
    """Return the XXH64 of a file's bytes as 16 hex digits."""
    digest = native.XXH64(0)
    buffer = bytearray(_READ_BYTES)
    with open_read(path) as file:
        while count := file.readinto(buffer):  # type: ignore[attr-defined]
            digest.update(memoryview(buffer)[:count])
    return f"{digest.intdigest():016x}"


def name_hash(name: str) -> int:
    """Return the hash of a name, even of a file name that is not valid UTF-8."""
    return native.xxh64(name.encode("utf-8", "surrogatepass"), 0)


def sum_text(hashes: Iterable[int]) -> str:
    """Return the sum of 64-bit hashes, which their order does not change, as manifests hold it."""
    return f"{sum(hashes) % 2**64:016x}"


def sealed_lines(lines: Sequence[str]) -> str:
    """Return the text of a JSON object whose last field is the hash of the text."""
    body = "{\n" + ",\n".join(lines) + ',\n  "xxh64": "'
    tail = '"\n}\n'
    return f"{body}{data_hash((body + tail).encode())}{tail}"


def _is_sealed(text: str) -> bool:
    """Return whether a text ends with its own hash, as `sealed_lines` writes it."""
    tail = '"\n}\n'
    body, digest = text[: -len(tail) - 16], text[-len(tail) - 16 : -len(tail)]
    return text.endswith(tail) and data_hash((body + tail).encode()) == digest


class _Head(msgspec.Struct):
    format: str
    requires: list[str] = []


# Errors that arbitrary JSON can cause when it is read as a manifest. Those of `TypeError` and the
# like come from the types of a schema.
_PARSE_ERRORS = (
    *(msgspec.ValidationError, KeyError, TypeError, AttributeError, ValueError, OverflowError),
    *(RecursionError, UsageError),
)


def parse_sealed(
    text: str,
    parse: Callable[[dict[str, Any]], T],
    *,
    where: str,
    what: str,
    format: str,
    command: str,
) -> T:
    """Check the format and the hash in the text of a manifest, then parse it."""
    advice = f"restore it from a copy, or run {command} again"
    try:
        value = json.loads(text)
        head = msgspec.convert(value, _Head)
        if head.format != format:
            if command == "write" and head.format.startswith("beam_tfrecord-stage/"):
                raise DataError(
                    f"{where} is the manifest of a stage, the copy of rows that extract makes: "
                    "show, head, verify and load read it; to compare it, write a dataset of it; if "
                    "it is damaged, run extract again"
                )
            raise DataError(
                f"{where} has format {head.format!r}, not {format!r}: "
                "read it with the version of beam_tfrecord that wrote it"
            )
        if not _is_sealed(text):
            raise DataError(f"{where} was changed after it was written: {advice}")
        if head.requires:
            needed = ", ".join(map(repr, head.requires))
            raise DataError(
                f"{where} requires {needed}, which this version does not understand: "
                "read it with a newer version of beam_tfrecord"
            )
        return parse(value)
    except _PARSE_ERRORS as error:
        raise DataError(f"{where} is not {what} ({_reason(error)}): {advice}") from error


def _reason(error: Exception) -> str:
    """Return in one line why JSON cannot be read as a manifest."""
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: line {error.lineno}: {error.msg}"
    is_told = isinstance(error, msgspec.ValidationError | ValueError | UsageError)
    reason = str(error) if is_told else repr(error)
    return (reason.splitlines() or [type(error).__name__])[0][:200]
