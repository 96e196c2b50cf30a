"""Whole files by the batch, side by side in one buffer that Arrow takes as it is."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.images import Header
from beam_tfrecord.native._files import describe_jpegs, hash_files, read_files

_DIGEST_CHARACTERS = 64


class Files:
    """Files that were read, and why others were not.

    Args:
        data: The bytes of those that lie side by side, in order.
        sizes: Of each in `data`, None where it is not there; shape `[files]`.
        apart: Contents, or what went wrong, of the others.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        sizes: Sequence[int | None],
        apart: Mapping[int, bytes | OSError],
    ) -> None:
        self._data = data
        self._apart = apart
        self._ends = np.cumsum([0, *(size or 0 for size in sizes)])
        self._view = data.data

    def content(self, index: int) -> memoryview:
        """Return a whole file.

        Raises:
            OSError: It could not be read.
        """
        if index in self._apart:
            content = self._apart[index]
            if isinstance(content, OSError):
                raise content
            return memoryview(content)
        return self._view[self._ends[index] : self._ends[index + 1]]

    def plain_jpegs(self, *, max_pixels: int) -> list[Header | None]:
        """Return the headers of those JPEGs of which `describe` would say nothing further.

        Args:
            max_pixels: As there.

        Returns:
            One of each file; None where it is no such JPEG.
        """
        starts, sizes = self._ends[:-1], np.diff(self._ends)
        told = describe_jpegs(self._data, starts, sizes, max_pixels).tolist()
        return [Header("jpeg", *numbers) if numbers[0] else None for numbers in told]

    def sha256(self, kept: Sequence[int]) -> list[str]:
        """Return the hexadecimal hash of files that could be read."""
        function = _sha256_address()
        digests = None
        if function and kept and self._apart.keys().isdisjoint(kept):
            starts, sizes = self._ends[:-1][kept], np.diff(self._ends)[kept]
            digests = hash_files(function, self._data, starts, sizes)
        if digests is None:
            return [hashlib.sha256(self.content(index)).hexdigest() for index in kept]
        text = digests.tobytes().hex()
        edges = range(0, len(text), _DIGEST_CHARACTERS)
        return [text[at : at + _DIGEST_CHARACTERS] for at in edges]

    def array(self, kept: Sequence[int], changed: Mapping[int, bytes]) -> pa.Array:
        """Return files as Arrow binary, without a copy where all of them are kept as they were.

        Args:
            kept: Index of each.
            changed: What takes the place of some.
        """
        if changed or self._apart or len(kept) < len(self._ends) - 1:
            return pa.array(
                [changed[i] if i in changed else self.content(i) for i in kept], pa.binary()
            )
        buffers = [None, pa.py_buffer(self._ends.astype(np.int32)), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.binary(), len(kept), buffers)


@functools.cache
def _sha256_address() -> int:
    """Return the address of the SHA256 of the library that `hashlib` itself calls; 0 without one.

    Nor is it called where the library is set up to have no such function, or to have another.

    To call it from `hashlib` costs a small file more in taking turns than in hashing, where
    several threads do so.
    """
    try:
        import _hashlib

        # A name is looked for in what a module was linked to, too.
        function = ctypes.CDLL(_hashlib.__file__).SHA256
    except (ImportError, OSError, AttributeError):
        return 0
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    probe = np.frombuffer(b"abc", np.uint8)
    found = hash_files(address, probe, np.zeros(1, np.int64), np.array([3]))
    is_right = found is not None and found.tobytes() == hashlib.sha256(b"abc").digest()
    return address if is_right else 0


def read_local(paths: Sequence[str], sizes: Sequence[int], *, most: int) -> Files:
    """Read local files of about the given sizes.

    Args:
        paths: What opens each.
        sizes: Bytes expected of each.
        most: Bytes after which a file that turns out to be longer, or endless, is left.
    """
    read = functools.partial(read_whole, most=most)
    data = np.empty(sum(sizes) + 1, np.uint8)
    names = [os.fsencode(path) for path in paths]
    status = read_files(names, np.array(sizes, np.int64), data).tolist()
    if not any(status):
        return Files(data, sizes, {})
    # Whatever went wrong goes wrong again, and says what it is; another size may be right now.
    apart = read_apart({i: paths[i] for i, failed in enumerate(status) if failed}, read)
    found = [None if failed else size for failed, size in zip(status, sizes, strict=True)]
    return Files(data, found, apart)


def read_each(paths: Sequence[str], read: Callable[[str], bytes]) -> Files:
    """Read files one after another by a function."""
    nothing = np.empty(0, np.uint8)
    return Files(nothing, [None] * len(paths), read_apart(dict(enumerate(paths)), read))


def read_apart(
    paths: Mapping[int, str], read: Callable[[str], bytes]
) -> dict[int, bytes | OSError]:
    """Return what `read` gives or raises for each path."""
    apart: dict[int, bytes | OSError] = {}
    for index, path in paths.items():
        try:
            apart[index] = read(path)
        except OSError as error:
            apart[index] = error
    return apart


def read_whole(path: str, *, most: int) -> bytes:
    """Read a local file up to one byte more than `most`.

    Raises:
        OSError: It cannot be read.
    """
    # A pipe in place of a file must not be waited for.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with open(file, "rb", closefd=False) as content:
            return content.read(most + 1) or b""
    finally:
        os.close(file)
