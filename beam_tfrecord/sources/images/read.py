"""Reads the files of many images in threads, and checks, describes, changes and hashes them."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from beam_tfrecord import storage
from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import DataError
from beam_tfrecord.images import Header, ImageError, refused_in
from beam_tfrecord.images.decode import Transform, check_decode, transformed
from beam_tfrecord.images.headers import describe
from beam_tfrecord.rows.batch import MAX_VALUE_CHARS, Batch, Reject

CHECKS = ("header", "decode", "none")
_FIELDS = {
    "width": pa.int64(),
    "height": pa.int64(),
    "channels": pa.int64(),
    "format": pa.string(),
    "orientation": pa.int64(),
}
_ORIGINAL_FIELDS = {"original_width": pa.int64(), "original_height": pa.int64()}

# Small enough that the batches of all threads, and some finished batches, need little memory.
BATCH_BYTES = 8 * 2**20
BATCH_FILES = 256
# Remote requests take long and need little CPU, so there are many small batches at a time.
REMOTE_BATCH_FILES = 32
REMOTE_THREADS = 32
# The number of cores. Beam reads other tasks at the same time, which use the CPU while
# these threads wait for a disk.
THREADS = max(2, min(16, os.cpu_count() or 1))

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")
_Size = tuple[int | None, int | None]


def image_fields(*, resizes: bool) -> dict[str, pa.DataType]:
    """Return the types of the columns that describe an image, by name."""
    return _FIELDS | (_ORIGINAL_FIELDS if resizes else {})


@dataclasses.dataclass(frozen=True)
class ReadSettings:
    """The settings of reading images."""

    check: str
    transform: Transform
    max_pixels: int
    max_bytes: int
    needs_sha256: bool
    is_remote: bool = False

    @property
    def limits(self) -> tuple[int, int]:
        """Largest number of files of a batch, and of threads, and so of batches at a time."""
        return (REMOTE_BATCH_FILES, REMOTE_THREADS) if self.is_remote else (BATCH_FILES, THREADS)


class ReadImage(NamedTuple):
    """What is known of an image that passed the check, in the form to store, and of its file."""

    header: Header | None
    original_size: _Size
    sha256: str | None


@dataclasses.dataclass(frozen=True)
class ImageRows:
    """Rows whose images are to be read.

    Attributes:
        batch: The columns that do not come from the image files, such as ``path``, and the
            origin.
        paths: Path or URL of the image of each row.
        sizes: Expected number of bytes of each image.
        faults: Faults that are already known, by index; images with a fault are not read.
        addresses: Unit and row of each reject.
        expected: Width and height of each image before resizing but after any rotation; None means
            any.
        more: Function that returns further columns, given the indices of the accepted rows and the
            columns of their images.
    """

    batch: Batch
    paths: Sequence[str]
    sizes: Sequence[int]
    faults: dict[int, ImageError]
    addresses: Sequence[tuple[str, int]]
    expected: Sequence[tuple[int, int]] | None = None
    more: Callable[[list[int], dict[str, pa.Array]], dict[str, pa.Array]] | None = None


def add_images(rows: ImageRows, schema: pa.Schema, how: ReadSettings) -> Batch:
    """Read, check, describe and hash images, and add them to their rows."""
    names = rows.batch.data.column("path").to_pylist()
    images, stored = read_images(rows.paths, rows.sizes, rows.faults, how, expected=rows.expected)
    accepted, columns = list(images), {**_columns(list(images.values()), how), "image": stored}
    if rows.more is not None:
        columns |= rows.more(accepted, columns)
    batch = rows.batch.take(np.array(accepted, np.int64)) if rows.faults else rows.batch
    rejects = []
    for row, fault in sorted(rows.faults.items()):
        name, (unit, number) = names[row], rows.addresses[row]
        message, value = f"{name} {fault.reason}", name[:MAX_VALUE_CHARS]
        rejects.append(Reject(unit, number, "image", fault.code, message, value, name))
    refused = None
    if "image" in schema.names:
        refused = refused_in((names[index], image.header) for index, image in images.items())
    return batch.replace(
        data=_with_columns(batch, columns, schema),
        rejects=(*rows.batch.rejects, *rejects),
        refused=refused,
    )


def _with_columns(batch: Batch, more: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` from a batch and from `more`."""
    columns = dict(zip(batch.data.schema.names, batch.data.columns, strict=True)) | dict(more)
    if missing := [name for name in schema.names if name not in columns]:
        of = batch.origin.unit if batch.origin is not None else "the input"
        raise DataError(not_found(missing[0], columns, of="the schema", where=of))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _columns(images: Sequence[ReadImage], how: ReadSettings) -> dict[str, pa.Array]:
    """Return the columns that describe images."""
    fields = {name: [getattr(image.header, name, None) for image in images] for name in _FIELDS}
    for side, name in enumerate(_ORIGINAL_FIELDS):
        fields[name] = [image.original_size[side] for image in images]
    types = image_fields(resizes=how.transform.resize is not None)
    return {
        **{name: pa.array(fields[name], kind) for name, kind in types.items()},
        "sha256": pa.array([image.sha256 for image in images], pa.string()),
    }


def read_images(
    paths: Sequence[str],
    sizes: Sequence[int],
    faults: dict[int, ImageError],
    how: ReadSettings,
    *,
    expected: Sequence[tuple[int, int]] | None = None,
) -> tuple[dict[int, ReadImage], pa.Array]:
    """Return the images without fault by their indices, and their bytes.

    The other faults are added to `faults`.
    """
    images, ends = {}, [0]
    # Read into one piece of memory, because much time goes into that of single images.
    stored = bytearray(sum(size for size in sizes if size <= how.max_bytes))
    for index, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        if index in faults:
            continue
        start = ends[-1]
        try:
            end, image = _read_image(path, size, how, stored, start)
            if expected is not None:
                _check_size(image.original_size, expected[index])
        except ImageError as fault:
            faults[index] = fault
            continue
        images[index] = image
        ends.append(end)
    buffers = [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(stored)]
    return images, pa.Array.from_buffers(pa.binary(), len(images), buffers)


def _read_image(
    path: str, size: int, how: ReadSettings, stored: bytearray, start: int
) -> tuple[int, ReadImage]:
    """Read an image into `stored`, check it, and change it if the options require that.

    Return where it ends.
    """
    end = _read_content(path, size, how, stored, start)
    sha256 = hashlib.sha256(memoryview(stored)[start:end]).hexdigest() if how.needs_sha256 else None
    is_checked, most = how.check != "none", how.max_pixels
    try:
        header = describe(stored, start, end, check_end=is_checked, max_pixels=most)
    except ImageError as fault:
        is_accepted = not is_checked and how.transform.is_none
        if is_accepted and fault.code not in ("empty", "too-large"):
            return end, ReadImage(None, (None, None), sha256)
        raise
    original_size = header.width, header.height
    if how.transform.changes(header):
        data = bytes(stored[start:end])
        data, header, original_size = transformed(data, header, how.transform, max_pixels=most)
        end = start + len(data)
        stored[start:end] = data
    elif how.check == "decode":
        check_decode(bytes(stored[start:end]), header, max_pixels=most)
    return end, ReadImage(header, original_size, sha256)


def _read_content(path: str, size: int, how: ReadSettings, stored: bytearray, start: int) -> int:
    """Read a file into `stored`, which grows if need be, and return where it ends."""
    try:
        if size <= how.max_bytes:
            if how.is_remote:
                data = storage.read_bytes(path)
                end = start + len(data)
                stored[start:end] = data
            else:
                end = _read_local(path, stored, start)
            size = end - start
    except FileNotFoundError:
        raise ImageError("missing", "is missing") from None
    except OSError as error:
        raise ImageError("unreadable", f"cannot be read ({error.strerror or error})") from error
    if size > how.max_bytes:
        raise ImageError(
            "too-large",
            f"has {size:,} bytes, more than {how.max_bytes:,}: pass --max-bytes to allow it",
        )
    return end


def _read_local(path: str, stored: bytearray, start: int) -> int:
    # Python's file objects would take longer than the system's calls.
    file = os.open(path, os.O_RDONLY)
    try:
        with memoryview(stored) as room:
            while count := os.readv(file, [room[start:]]):
                start += count
        while more := start == len(stored) and os.read(file, 2**20):  # it has grown
            stored += more
            start += len(more)
    finally:
        os.close(file)
    return start


def _check_size(size: _Size, expected: tuple[int, int]) -> None:
    """Raise `ImageError` if an image has another size than expected, or an unknown one."""
    if size == expected:
        return
    found = "an unknown size" if None in size else f"{size[0]}x{size[1]} pixels"
    turned = ": pass --orient if they are of the upright image" if size == expected[::-1] else ""
    raise ImageError(
        "other-size",
        f"has {found}, but annotations for {expected[0]}x{expected[1]} (width x height){turned}",
    )


def cut_by_bytes(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of indices of at most `most` files and about `BATCH_BYTES`; of none, one."""
    start, held = 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most or held + size > BATCH_BYTES):
            yield start, index
            start, held = index, 0
        held += size
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
