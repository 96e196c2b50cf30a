"""Reading many small pictures: into one buffer, checked, described and hashed, by some threads."""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord import storage
from beam_tfrecord.images import Fault, Header
from beam_tfrecord.images.decode import Transform, check_decode, transformed
from beam_tfrecord.images.formats import describe

CHECKS = ("header", "decode", "none")
_FIELDS = {
    "width": pa.int64(),
    "height": pa.int64(),
    "channels": pa.int64(),
    "format": pa.string(),
    "orientation": pa.int64(),
}
_ORIGINAL_FIELDS = {"original_width": pa.int64(), "original_height": pa.int64()}

_UNKNOWN = (None,) * len(Header._fields)

# A batch: little enough that one in every thread and some in waiting are no burden.
BATCH_BYTES = 8 * 2**20
BATCH_FILES = 256
# A request takes long and costs the processor little: many at a time, of few files each.
REMOTE_BATCH_FILES = 32
REMOTE_THREADS = 32
# Beside them other groups are read: while some wait for a disk, the others hash and decode.
THREADS = max(2, min(16, os.cpu_count() or 1))

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def picture_fields(*, resizes: bool) -> dict[str, pa.DataType]:
    """Return the columns that describe a picture, with those of pictures that are resized."""
    return _FIELDS | (_ORIGINAL_FIELDS if resizes else {})


@dataclasses.dataclass(frozen=True)
class Reading:
    """How pictures are read.

    Attributes:
        check: One of `CHECKS`.
        transform: What becomes of them.
        max_pixels: Width times height that is let through.
        max_bytes: Size of a file that is let through.
        needs_sha256: Hash the files.
        read: Reads files, given paths and expected sizes.
        batch_files: Most files of a batch.
        threads: Batches that are read at a time.
        is_remote: The files are not on this machine.
    """

    check: str
    transform: Transform
    max_pixels: int
    max_bytes: int
    needs_sha256: bool
    read: Callable[[Sequence[str], Sequence[int]], Files]
    batch_files: int = BATCH_FILES
    threads: int = THREADS
    is_remote: bool = False

    @property
    def describes_only(self) -> bool:
        """True where no more is wanted of a picture than its bytes and its header."""
        return self.check != "decode" and self.transform.is_none

    @property
    def keeps_files(self) -> bool:
        """True where what is stored is what lies in files of this machine."""
        return self.transform.is_none and not self.is_remote


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Pictures that were read, in columns; shape `[kept]` each.

    Attributes:
        kept: Index among the wanted ones of each.
        contents: The bytes to store.
        headers: What is known of each; None where it could not be told.
        sha256: Hexadecimal hash of each file; empty where none was wanted.
        faults: Index among the wanted ones, and what was wrong, of all others.
        original_sizes: Width and height of each before it was resized; None: none was to be.
    """

    kept: list[int]
    contents: pa.Array
    headers: list[Header | None]
    sha256: list[str]
    faults: list[tuple[int, Fault]]
    original_sizes: list[tuple[int | None, int | None]] | None = None

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns that come from the pictures alone."""
        known = [_UNKNOWN if header is None else header for header in self.headers]
        fields = dict(zip(Header._fields, zip(*known, strict=True), strict=True)) if known else {}
        columns = {name: pa.array(fields.get(name, ()), kind) for name, kind in _FIELDS.items()}
        columns["image"] = self.contents
        if self.original_sizes is not None:
            for side, name in enumerate(_ORIGINAL_FIELDS):
                sizes = [size[side] for size in self.original_sizes]
                columns[name] = pa.array(sizes, pa.int64())
        if self.sha256 or not self.kept:
            columns["sha256"] = pa.array(self.sha256, pa.string())
        return columns


def read_pictures(paths: Sequence[str], sizes: Sequence[int], how: Reading) -> Pictures:
    """Read, check, describe and hash some pictures.

    Args:
        paths: What opens each.
        sizes: Expected size of each.
        how: What is done to them.
    """
    is_small = [size <= how.max_bytes for size in sizes]
    wanted = [index for index, is_so in enumerate(is_small) if is_so]
    files = how.read(taken(paths, wanted), taken(sizes, wanted))
    at: list[int] = []
    kept: list[int] = []
    headers: list[Header | None] = []
    originals: list[tuple[int | None, int | None]] = []
    changed: dict[int, bytes] = {}
    faults = [
        (index, _too_large(sizes[index], how)) for index, is_so in enumerate(is_small) if not is_so
    ]
    plain: Sequence[Header | None] = [None] * len(wanted)
    if how.describes_only:
        plain = files.plain_jpegs(max_pixels=how.max_pixels)
    for place, (index, header) in enumerate(zip(wanted, plain, strict=True)):
        if header is None:
            try:
                checked = _checked(_content(files, place, how), how)
            except Fault as fault:
                faults.append((index, fault))
                continue
            header = checked.header
            if checked.changed is not None:
                changed[place] = checked.changed
            originals.append(checked.original_size or (None, None))
        at.append(place)
        kept.append(index)
        headers.append(header)
    hashes = files.sha256(at) if how.needs_sha256 else []
    return Pictures(
        kept,
        files.array(at, changed),
        headers,
        hashes,
        faults,
        originals if how.transform.resizes else None,
    )


def _content(files: Files, place: int, how: Reading) -> memoryview:
    try:
        view = files.content(place)
    except FileNotFoundError:
        raise Fault("missing", "is missing") from None
    except OSError as error:
        raise Fault("unreadable", f"cannot be read ({error.strerror or error})") from error
    if len(view) > how.max_bytes:
        raise _too_large(len(view), how)
    return view


def _too_large(size: int, how: Reading) -> Fault:
    return Fault(
        "too-large",
        f"has {size:,} bytes, more than {how.max_bytes:,}: pass --max-bytes to allow it",
    )


class _Checked(NamedTuple):
    """A picture as it is stored.

    Attributes:
        header: What is known of it; None where it could not be told.
        changed: Its new bytes; None where it stays as it is.
        original_size: Width and height before it was resized, turned as it is stored.
    """

    header: Header | None
    changed: bytes | None = None
    original_size: tuple[int, int] | None = None


def _checked(view: memoryview, how: Reading) -> _Checked:
    """Check a picture, and change it where that is asked for."""
    header: Header | Fault
    try:
        header = describe(view, whole=how.check == "header", max_pixels=how.max_pixels)
    except Fault as fault:
        is_lasting = fault.code in ("empty", "too-large") or how.check == "header"
        if is_lasting or (how.check == "none" and not how.transform.is_none):
            raise
        header = fault
    changes = isinstance(header, Header) and how.transform.changes(header)
    if how.check == "decode" and not changes:
        # Pillow is the judge here: it forgives some faults of headers, and finds others.
        header = check_decode(view, header, max_pixels=how.max_pixels)
        changes = how.transform.changes(header)
    if isinstance(header, Fault):
        return _Checked(None)
    if not changes:
        return _Checked(header, None, (header.width, header.height))
    changed, header, original_size = transformed(
        view, header, how.transform, max_pixels=how.max_pixels
    )
    return _Checked(header, changed, original_size)


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


try:
    from beam_tfrecord.native._files import describe_jpegs, hash_files, read_files
except ImportError:
    # A loop in Python is no slower than the disk.
    describe_jpegs = hash_files = read_files = None

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
        if describe_jpegs is None:
            return [None] * len(sizes)
        told = describe_jpegs(self._data, starts, sizes, max_pixels).tolist()
        return [Header("jpeg", *numbers) if numbers[0] else None for numbers in told]

    def sha256(self, kept: Sequence[int]) -> list[str]:
        """Return the hexadecimal hash of files that could be read."""
        function = 0 if hash_files is None else _sha256_address()
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
    if read_files is None:
        return read_each(paths, read)
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


def read_remote(paths: Sequence[str], sizes: Sequence[int]) -> Files:
    """Read whole files, whatever their expected sizes.

    Raises:
        StorageError: The filesystem cannot be reached.
    """
    return read_each(paths, storage.read_bytes)
