"""Reads the files of many images in batches, and checks, describes, changes and hashes them.

The files of a batch are contiguous in one buffer, which becomes the Arrow column without a copy.
Several threads work on one batch each.
"""

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
from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.errors import DataError
from beam_tfrecord.images import Fault, Header, refused_in
from beam_tfrecord.images.decode import Transform, check_decode, transformed
from beam_tfrecord.images.formats import describe
from beam_tfrecord.native._files import describe_jpegs, hash_files, read_files
from beam_tfrecord.tables import not_found

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
_DIGEST_CHARACTERS = 64

# Small enough that the batches of all threads, and some finished batches, need little memory.
BATCH_BYTES = 8 * 2**20
BATCH_FILES = 256
# Remote requests take long and need little CPU, so there are many small batches at a time.
REMOTE_BATCH_FILES = 32
REMOTE_THREADS = 32
# The number of cores. Beam reads other groups of units at the same time, which use the CPU while
# these threads wait for a disk.
THREADS = max(2, min(16, os.cpu_count() or 1))

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def image_fields(*, resizes: bool) -> dict[str, pa.DataType]:
    """Return the types of the columns that describe an image, by name."""
    return _FIELDS | (_ORIGINAL_FIELDS if resizes else {})


class Files:
    """The contents of some files, or the errors of reading them."""

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
        if index in self._apart:
            content = self._apart[index]
            if isinstance(content, OSError):
                raise content
            return memoryview(content)
        return self._view[self._ends[index] : self._ends[index + 1]]

    def plain_jpegs(self, *, max_pixels: int) -> list[Header | None]:
        """Return the header of each file that is a complete, upright JPEG without any refusal."""
        starts, sizes = self._ends[:-1], np.diff(self._ends)
        rows = describe_jpegs(self._data, starts, sizes, max_pixels).tolist()
        return [Header("jpeg", *numbers) if numbers[0] else None for numbers in rows]

    def sha256(self, indices: Sequence[int]) -> list[str]:
        """Return the hexadecimal hashes of some files that could be read."""
        function = _sha256_address()
        digests = None
        if function and indices and self._apart.keys().isdisjoint(indices):
            starts, sizes = self._ends[:-1][indices], np.diff(self._ends)[indices]
            digests = hash_files(function, self._data, starts, sizes)
        if digests is None:
            return [hashlib.sha256(self.content(index)).hexdigest() for index in indices]
        text = digests.tobytes().hex()
        edges = range(0, len(text), _DIGEST_CHARACTERS)
        return [text[at : at + _DIGEST_CHARACTERS] for at in edges]

    def array(self, indices: Sequence[int], changed: Mapping[int, bytes]) -> pa.Array:
        """Return some files as Arrow binary, without a copy for all files in order, unchanged."""
        if changed or self._apart or len(indices) < len(self._ends) - 1:
            contents = [changed[i] if i in changed else self.content(i) for i in indices]
            return pa.array(contents, pa.binary())
        buffers = [None, pa.py_buffer(self._ends.astype(np.int32)), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.binary(), len(indices), buffers)


@functools.cache
def _sha256_address() -> int:
    """Return the address of the function SHA256 in the OpenSSL library of `hashlib`; 0 if unknown.

    Native code can call it for many files without the interpreter's lock. `hashlib` takes the lock
    again after each file, and with small files and several threads that takes longer than hashing.
    """
    try:
        import _hashlib

        # The lookup includes the libraries that the module is linked to.
        function = ctypes.CDLL(_hashlib.__file__).SHA256
    except (ImportError, OSError, AttributeError):
        return 0
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    # A test, because a library may lack this function or have a different one of that name.
    probe = np.frombuffer(b"abc", np.uint8)
    found = hash_files(address, probe, np.zeros(1, np.int64), np.array([3]))
    is_right = found is not None and found.tobytes() == hashlib.sha256(b"abc").digest()
    return address if is_right else 0


def read_local(paths: Sequence[str], sizes: Sequence[int], *, most: int) -> Files:
    """Read local files."""
    read = functools.partial(_read_one, most=most)
    data = np.empty(sum(sizes) + 1, np.uint8)
    names = [os.fsencode(path) for path in paths]
    status = read_files(names, np.array(sizes, np.int64), data).tolist()
    # A second read of a failed file returns its error, or its content if its size has changed.
    apart = {i: _outcome(read, paths[i]) for i, failed in enumerate(status) if failed}
    found = [None if failed else size for failed, size in zip(status, sizes, strict=True)]
    return Files(data, found, apart)


def read_remote(paths: Sequence[str], sizes: Sequence[int]) -> Files:
    """Read remote files, whatever their expected sizes."""
    apart = {index: _outcome(storage.read_bytes, path) for index, path in enumerate(paths)}
    return Files(np.empty(0, np.uint8), [None] * len(paths), apart)


def _outcome(read: Callable[[str], bytes], path: str) -> bytes | OSError:
    try:
        return read(path)
    except OSError as error:
        return error


def _read_one(path: str, *, most: int) -> bytes:
    # O_NONBLOCK, because a pipe in place of a file would block.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        with open(file, "rb", closefd=False) as content:
            return content.read(most + 1) or b""
    finally:
        os.close(file)


@dataclasses.dataclass(frozen=True)
class Reading:
    """The settings of reading images."""

    check: str
    transform: Transform
    max_pixels: int
    max_bytes: int
    needs_sha256: bool
    read: Callable[[Sequence[str], Sequence[int]], Files]
    is_remote: bool = False

    @property
    def batch_files(self) -> int:
        """Largest number of files of a batch."""
        return REMOTE_BATCH_FILES if self.is_remote else BATCH_FILES

    @property
    def threads(self) -> int:
        """Number of threads, and so of batches that are read at a time."""
        return REMOTE_THREADS if self.is_remote else THREADS


class _Checked(NamedTuple):
    """An image that passed the check, in the form to store."""

    header: Header | None
    changed: bytes | None = None
    original_size: tuple[int | None, int | None] = (None, None)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows whose images are to be read.

    Attributes:
        batch: The columns that do not come from the image files, such as ``path``, and the
            origin.
        paths: Path or URL of the image of each row.
        sizes: Expected number of bytes of each image.
        faults: Faults that are already known, by index; images with a fault are not read.
        reject: Function that returns the reject of a row, given its index and fault.
        expected: Width and height of each image before resizing but after any rotation; None means
            any.
        more: Function that returns further columns, given the indices of the accepted rows and the
            columns of their images.
    """

    batch: Batch
    paths: Sequence[str]
    sizes: Sequence[int]
    faults: dict[int, Fault]
    reject: Callable[[int, Fault], Reject]
    expected: Sequence[tuple[int, int]] | None = None
    more: Callable[[list[int], dict[str, pa.Array]], dict[str, pa.Array]] | None = None


def add_images(rows: Rows, schema: pa.Schema, how: Reading) -> Batch:
    """Read, check, describe and hash images, and add them to their rows."""
    accepted, columns, headers = read_images(
        rows.paths, rows.sizes, rows.faults, how, expected=rows.expected
    )
    if rows.more is not None:
        columns |= rows.more(accepted, columns)
    batch = rows.batch.take(np.array(accepted, np.int64)) if rows.faults else rows.batch
    rejects = [rows.reject(index, fault) for index, fault in sorted(rows.faults.items())]
    refused = None
    if "image" in schema.names:
        found = [index for index, header in enumerate(headers) if header and header.refusal]
        names = batch.data.column("path")
        refused = refused_in((names[index].as_py(), headers[index]) for index in found)
    return batch.replace(
        data=with_columns(batch, columns, schema),
        rejects=(*rows.batch.rejects, *rejects),
        refused=refused,
    )


def with_columns(batch: Batch, more: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` from a batch and from `more`."""
    columns = dict(zip(batch.data.schema.names, batch.data.columns, strict=True)) | dict(more)
    if missing := [name for name in schema.names if name not in columns]:
        of = batch.origin.unit if batch.origin is not None else "the input"
        raise DataError(not_found(missing[0], columns, of="the schema", where=of))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def read_images(
    paths: Sequence[str],
    sizes: Sequence[int],
    faults: dict[int, Fault],
    how: Reading,
    *,
    expected: Sequence[tuple[int, int]] | None = None,
) -> tuple[list[int], dict[str, pa.Array], list[Header | None]]:
    """Read images, and add the faults that it finds to `faults`."""
    for index, size in enumerate(sizes):
        if size > how.max_bytes:
            faults.setdefault(index, _too_large(size, how))
    wanted = [index for index in range(len(paths)) if index not in faults]
    files = how.read(pick(paths, wanted), pick(sizes, wanted))
    plain: Sequence[Header | None] = [None] * len(wanted)
    if how.check != "decode" and how.transform.is_none:
        plain = files.plain_jpegs(max_pixels=how.max_pixels)
    headers: dict[int, Header | None] = {}
    changed: dict[int, bytes] = {}
    originals: list[tuple[int | None, int | None]] = []
    for place, header in enumerate(plain):
        checked = None if header is None else _Checked(header, None, (header.width, header.height))
        try:
            checked = checked or _checked(files, place, how)
            if expected is not None:
                _check_size(checked.original_size, expected[wanted[place]])
        except Fault as fault:
            faults[wanted[place]] = fault
            continue
        originals.append(checked.original_size)
        if checked.changed is not None:
            changed[place] = checked.changed
        headers[place] = checked.header
    places, described = list(headers), list(headers.values())
    columns = _description(described)
    columns["image"] = files.array(places, changed)
    if how.transform.resizes:
        for side, name in enumerate(_ORIGINAL_FIELDS):
            columns[name] = pa.array([size[side] for size in originals], pa.int64())
    if how.needs_sha256:
        columns["sha256"] = pa.array(files.sha256(places), pa.string())
    return pick(wanted, places), columns, described


def _description(headers: Sequence[Header | None]) -> dict[str, pa.Array]:
    known = [_UNKNOWN if header is None else header for header in headers]
    fields = dict(zip(Header._fields, zip(*known, strict=True), strict=True)) if known else {}
    return {name: pa.array(fields.get(name, ()), kind) for name, kind in _FIELDS.items()}


def _too_large(size: int, how: Reading) -> Fault:
    return Fault(
        "too-large",
        f"has {size:,} bytes, more than {how.max_bytes:,}: pass --max-bytes to allow it",
    )


def _checked(files: Files, index: int, how: Reading) -> _Checked:
    """Check an image, and change it if the options require that."""
    try:
        view = files.content(index)
    except FileNotFoundError:
        raise Fault("missing", "is missing") from None
    except OSError as error:
        raise Fault("unreadable", f"cannot be read ({error.strerror or error})") from error
    if len(view) > how.max_bytes:
        raise _too_large(len(view), how)
    try:
        header = describe(view, check_end=how.check != "none", max_pixels=how.max_pixels)
    except Fault as fault:
        is_accepted = how.check == "none" and how.transform.is_none
        if is_accepted and fault.code not in ("empty", "too-large"):
            return _Checked(None)
        raise
    changes = how.transform.changes(header)
    if how.check == "decode" and not changes:
        header = check_decode(view, header, max_pixels=how.max_pixels)
        changes = how.transform.changes(header)
    if not changes:
        return _Checked(header, None, (header.width, header.height))
    changed, header, size = transformed(view, header, how.transform, max_pixels=how.max_pixels)
    return _Checked(header, changed, size)


def _check_size(size: tuple[int | None, int | None], expected: tuple[int, int]) -> None:
    """Raise `Fault` if an image has another width and height than are expected, or unknown ones."""
    if size == expected:
        return
    found = "an unknown size" if None in size else f"{size[0]}x{size[1]} pixels"
    turned = ": pass --orient if they are of the upright image" if size == expected[::-1] else ""
    raise Fault(
        "other-size",
        f"has {found}, but annotations for {expected[0]}x{expected[1]} (width x height){turned}",
    )


def cut_by_bytes(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of indices of at most `most` files and about `BATCH_BYTES`."""
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
    """Yield the results of `function` in the order of the tasks, while threads work ahead."""
    waiting: collections.deque[Future[_Result]] = collections.deque()
    pool = ThreadPoolExecutor(threads, "images")
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def pick(values: Sequence[Any], indices: Sequence[int]) -> list[Any]:
    """Return the values at `indices`."""
    return [values[index] for index in indices]
