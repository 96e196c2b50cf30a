"""Reading many small pictures: into one buffer, checked, described and hashed, by some threads."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from beam_tfrecord.images import Fault, Header, describe
from beam_tfrecord.images.decode import Transform, check_decode, transformed

CHECKS = ("header", "decode", "none")
PICTURE_FIELDS = {
    "width": pa.int64(),
    "height": pa.int64(),
    "channels": pa.int64(),
    "format": pa.string(),
    "orientation": pa.int64(),
}

# A batch: little enough that one in every thread and some in waiting are no burden.
BATCH_BYTES = 8 * 2**20
BATCH_FILES = 256
# A request takes long and costs the processor little: many at a time, of few files each.
REMOTE_BATCH_FILES = 32
REMOTE_THREADS = 32
# Twice the cores: while some wait for a disk, the others hash and decode.
THREADS = min(16, 2 * (os.cpu_count() or 1))

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How pictures are read.

    Attributes:
        check: One of `CHECKS`.
        transform: What becomes of them.
        max_pixels: Width times height that is let through.
        max_bytes: Size of a file that is let through.
        needs_sha256: Hash the files.
        read: Reads a file, given path and expected size, into a `Room`.
        batch_files: Most files of a batch.
        threads: Batches that are read at a time.
    """

    check: str
    transform: Transform
    max_pixels: int
    max_bytes: int
    needs_sha256: bool
    read: Callable[[str, int, Room], memoryview]
    batch_files: int = BATCH_FILES
    threads: int = THREADS


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Pictures that were read, in columns; shape `[kept]` each.

    Attributes:
        kept: Index among the wanted ones of each.
        contents: The bytes to store.
        headers: What is known of each; None where it could not be told.
        sha256: Hexadecimal hash of each file; empty where none was wanted.
        faults: Index among the wanted ones, and what was wrong, of all others.
    """

    kept: list[int]
    contents: pa.Array
    headers: list[Header | None]
    sha256: list[str]
    faults: list[tuple[int, Fault]]

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns that come from the pictures alone."""
        columns = {
            name: pa.array([getattr(header, name, None) for header in self.headers], kind)
            for name, kind in PICTURE_FIELDS.items()
        }
        columns["image"] = self.contents
        if self.sha256 or not self.kept:
            columns["sha256"] = pa.array(self.sha256, pa.string())
        return columns


class Room:
    """One growing buffer that pictures are read into and stay in, side by side.

    Args:
        size: Bytes that are expected.
    """

    def __init__(self, size: int) -> None:
        self._buffer = np.empty(max(1, size), np.uint8)
        self._ends = [0]

    def view(self, size: int, held: int = 0) -> memoryview:
        """Return `size` bytes behind what is kept; of an earlier view, `held` bytes stay."""
        start = self._ends[-1]
        if start + size > len(self._buffer):
            larger = np.empty(max(start + size, 2 * len(self._buffer)), np.uint8)
            larger[: start + held] = self._buffer[: start + held]
            self._buffer = larger
        return self._buffer.data[start : start + size]

    def keep(self, size: int) -> None:
        """Keep the first `size` bytes of the last view."""
        self._ends.append(self._ends[-1] + size)

    def put(self, data: bytes) -> None:
        """Keep a copy of `data`."""
        self.view(len(data))[:] = data
        self.keep(len(data))

    def array(self) -> pa.Array:
        """Return what was kept as an Arrow array, without a copy."""
        ends = np.array(self._ends, np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(self._buffer)]
        return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def read_local(path: str, size: int, room: Room) -> memoryview:
    """Read a whole file of about `size` bytes.

    Raises:
        OSError: It cannot be read.
    """
    # A pipe in place of a file must not be waited for.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        # One byte more than expected: less than asked for is the end of a regular file.
        view = room.view(size + 1)
        count = os.readv(file, [view])
        if count == size:
            return view[:count]
        total = count
        while count:
            view = room.view(2 * total + 1, total)
            count = os.readv(file, [view[total:]])
            total += count
        return view[:total]
    finally:
        os.close(file)


def read_pictures(paths: Sequence[str], sizes: Sequence[int], how: Reading) -> Pictures:
    """Read, check, describe and hash some pictures.

    Args:
        paths: What opens each.
        sizes: Expected size of each.
        how: What is done to them.
    """
    room = Room(sum(size for size in sizes if size <= how.max_bytes) + 1)
    kept: list[int] = []
    headers: list[Header | None] = []
    hashes: list[str] = []
    faults: list[tuple[int, Fault]] = []
    for index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        try:
            view = _whole_file(path, size, room, how)
            header, changed = _checked(view, how)
        except Fault as fault:
            faults.append((index, fault))
            continue
        if how.needs_sha256:
            hashes.append(hashlib.sha256(view).hexdigest())
        if changed is None:
            room.keep(len(view))
        else:
            room.put(changed)
        kept.append(index)
        headers.append(header)
    return Pictures(kept, room.array(), headers, hashes, faults)


def _whole_file(path: str, size: int, room: Room, how: Reading) -> memoryview:
    try:
        if size <= how.max_bytes:
            view = how.read(path, size, room)
            size = len(view)
    except FileNotFoundError:
        raise Fault("missing", "is missing") from None
    except OSError as error:
        raise Fault("unreadable", f"cannot be read ({error.strerror or error})") from error
    if size > how.max_bytes:
        raise Fault(
            "too-large",
            f"has {size:,} bytes, more than {how.max_bytes:,}: pass --max-bytes to allow it",
        )
    return view


def _checked(view: memoryview, how: Reading) -> tuple[Header | None, bytes | None]:
    """Return the header of a picture as it is stored, and its new bytes where they change."""
    header: Header | None = None
    try:
        header = describe(view, whole=how.check == "header", max_pixels=how.max_pixels)
    except Fault as fault:
        is_lasting = fault.code in ("empty", "too-large") or how.check == "header"
        if is_lasting or (how.check == "none" and not how.transform.is_none):
            raise
    changes = header is not None and not how.transform.is_none and how.transform.changes(header)
    if how.check == "decode" and not changes:
        # Pillow is the judge here: it forgives some faults of headers, and finds others.
        decoded = check_decode(view, max_pixels=how.max_pixels)
        header = header or decoded
        changes = not how.transform.is_none and how.transform.changes(header)
    if header is None or not changes:
        return header, None
    changed, header = transformed(view, header, how.transform, max_pixels=how.max_pixels)
    return header, changed


def cut_by_bytes(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of at most `most` files and about `BATCH_BYTES`."""
    start, held = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most or held + size > BATCH_BYTES):
            yield start, index
            start, held = index, 0
        held += size
    if start < len(sizes):
        yield start, len(sizes)


def in_order(
    function: Callable[[_Task], _Result], tasks: Iterable[_Task], *, threads: int
) -> Iterator[_Result]:
    """Yield what `function` makes of every task, in order, while threads work ahead."""
    waiting: collections.deque[Future[_Result]] = collections.deque()
    pool = ThreadPoolExecutor(threads, "pictures")
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def taken(values: Sequence[Any], kept: Sequence[int]) -> list[Any]:
    """Return the values at `kept`."""
    return [values[index] for index in kept]
