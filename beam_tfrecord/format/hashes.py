"""Computes the XXH64 hashes of buffers and files.

Manifests contain a hash as 16 hex digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from beam_tfrecord import native
from beam_tfrecord.storage import open_read

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


def xxh64_text(value: int) -> str:
    """Return a 64-bit hash as 16 hex digits."""
    return f"{value:016x}"


def sum_text(hashes: Iterable[int]) -> str:
    """Return the sum of 64-bit hashes, which their order does not change, as manifests hold it."""
    return f"{sum(hashes) % 2**64:016x}"
