"""Computes the XXH64 hashes of buffers, files, and byte ranges of input files.

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


# Large enough to make the cost of calls negligible, and small enough for the cache of one core.
STEP_BYTES = 2**18


def hash_ranges(path: str, ranges: Iterable[tuple[int, int]], *, name: str) -> int:
    """Return the hash of some byte ranges of a local file, a sum of the hashes of all ranges."""
    buffer = memoryview(bytearray(STEP_BYTES))
    hashes = [name_hash(name)]
    with open(path, "rb", buffering=0) as file:
        for start, stop in ranges:
            digest = range_digest(name, start, stop)
            at = file.seek(start)
            while at < stop:
                count = file.readinto(buffer[: stop - at])
                if not count:
                    raise EOFError(f"{path!r} has become shorter")
                digest.update(buffer[:count])
                at += count
            hashes.append(digest.intdigest())
    return sum_hashes(hashes)


def range_digest(name: str, start: int, stop: int) -> native.XXH64:
    """Return an XXH64 object for one range; the caller updates it with the bytes, in order."""
    return native.XXH64(name_hash(f"{start}-{stop} {name}"))


def name_hash(name: str) -> int:
    """Return the hash of a name, even of a file name that is not valid UTF-8."""
    return native.xxh64(name.encode("utf-8", "surrogatepass"), 0)


def sum_hashes(hashes: Iterable[int]) -> int:
    """Combine the hashes of several parts into one hash that does not depend on their order."""
    return sum(hashes) % 2**64


def xxh64_text(value: int) -> str:
    """Return a 64-bit hash as 16 hex digits."""
    return f"{value:016x}"
