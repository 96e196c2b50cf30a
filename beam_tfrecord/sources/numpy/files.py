"""Parses the headers of .npy and .npz files, and reads ranges of their rows.

`numpy.lib.format` documents the formats: magic bytes, a version, and a Python literal with the
dtype, order and shape, followed by the values. An .npz file is a zip archive of .npy members. This
module never unpickles anything.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import lzma
import math
import os
import reprlib
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.tensors import Array
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.tables import repeated

# Directory of the file to which `memory` writes arrays, and the name of that file in messages.
DIRECTORY_PREFIX = "beam_tfrecord-arrays-"
FILE_NAME = "arrays.npz"
IN_MEMORY = InputFile("", "the arrays in memory", 0)

# Exceptions of Python for an archive that is damaged or has an unknown compression method.
_DAMAGES = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)

_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK"
# Format of the header's length, and the header's encoding, by version.
_VERSIONS = {(1, 0): ("<H", "latin1"), (2, 0): ("<I", "latin1"), (3, 0): ("<I", "utf-8")}
_KEYS = {"descr", "fortran_order", "shape"}
# Parsing a literal of any length could use all memory for a broken file.
_MAX_HEADER_BYTES = 2**20
_MAX_REASON_CHARS = 200
_ENCRYPTED = 1


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array in a file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    start: int
    member: str | None = None
    is_alone: bool = False

    @property
    def nbytes(self) -> int:
        """Number of bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def has_rows(self) -> bool:
        """Whether the rows are contiguous in the file, in order and not compressed."""
        return self.member is None and not (self.is_fortran and len(self.shape) > 1)

    def range_of(self, shape: tuple[int, ...], start: int, stop: int) -> tuple[int, int]:
        """Return the byte range of rows in the file, for an array with the shape `shape`."""
        row_bytes = math.prod(shape[1:]) * self.dtype.itemsize
        return self.start + start * row_bytes, self.start + stop * row_bytes


def stored_arrays(file: InputFile) -> list[StoredArray]:
    """Return the arrays of a file, in its order; only headers are read."""
    with open(file.path, "rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        if raw.read(2) == _ZIP_MAGIC:
            return _members(raw, file)
        raw.seek(0)
        array = _described(raw, "data", file.name)
        _check_length(array, array.start + array.nbytes, size, file.name)
        return [dataclasses.replace(array, is_alone=True)]


def _described(stream: IO[bytes], name: str, shown: str, *, start: int = 0) -> StoredArray:
    """Parse the header at the position of `stream`, which is byte `start`."""
    head = stream.read(8)
    if not head:
        raise DataError(f"{shown} is empty: write it again, or leave it out")
    if head[:6] != _MAGIC or len(head) < 8:
        raise DataError(f"{shown} is not a NumPy array (.npy, .npz): correct it, or leave it out")
    version = (head[6], head[7])
    if version not in _VERSIONS:
        raise DataError(
            f"{shown} is of version {version[0]}.{version[1]} of the .npy format, which is not "
            "known: save it again with np.save"
        )
    width, encoding = _VERSIONS[version]
    length_bytes = stream.read(struct.calcsize(width))
    if len(length_bytes) < struct.calcsize(width):
        raise _cut_off(shown)
    (length,) = struct.unpack(width, length_bytes)
    if length > _MAX_HEADER_BYTES:
        raise DataError(f"{shown} has a header of {length:,} bytes: save it again with np.save")
    text = stream.read(length)
    if len(text) < length:
        raise _cut_off(shown)
    dtype, is_fortran, shape = _parsed(text, encoding, shown)
    at = start + len(head) + len(length_bytes) + length
    return StoredArray(name, dtype, shape, is_fortran, at)


def _parsed(text: bytes, encoding: str, shown: str) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    try:
        header = ast.literal_eval(text.decode(encoding).strip())
        if not isinstance(header, dict) or set(header) != _KEYS:
            raise ValueError("its keys are not descr, fortran_order and shape")
        shape, is_fortran = header["shape"], header["fortran_order"]
        is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        if not is_shape or not isinstance(is_fortran, bool):
            raise ValueError(f"its shape is {reprlib.repr(shape)}")
        # ml_dtypes saves float8_e5m2 under a name that NumPy does not know.
        descr: Any = "|V1" if header["descr"] == "<f1" else header["descr"]
        dtype = np.lib.format.descr_to_dtype(descr)
        if dtype.subdtype is not None:
            raise ValueError("its dtype has a shape of its own")
        check_shape(shape, dtype)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{shown} has a header that cannot be read ({reason[:_MAX_REASON_CHARS]}): "
            "save it again with np.save"
        ) from error
    return dtype, is_fortran, shape


def check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check that NumPy supports arrays of a shape."""
    # The largest number of axes depends on NumPy's version.
    np.empty((0,) * len(shape))
    # NumPy ignores sizes of 0 when it checks the number of bytes.
    if math.prod(filter(None, shape)) * max(1, dtype.itemsize) > sys.maxsize:
        raise ValueError(f"its shape is {reprlib.repr(shape)}")


def _members(raw: IO[bytes], file: InputFile) -> list[StoredArray]:
    try:
        with zipfile.ZipFile(raw) as archive:
            infos = archive.infolist()
            arrays = [_member(archive, raw, info, file) for info in infos]
    except _DAMAGES as error:
        raise _damaged(file, error) from error
    if not arrays:
        raise DataError(f"{file.name} holds no array: leave it out")
    if doubled := repeated(array.name for array in arrays):
        raise DataError(f"{file.name} has two arrays named {doubled[0]!r}: save it again")
    return arrays


def _member(
    archive: zipfile.ZipFile, raw: IO[bytes], info: zipfile.ZipInfo, file: InputFile
) -> StoredArray:
    shown = f"{info.filename!r} of {file.name}"
    if not info.filename.endswith(".npy"):
        raise DataError(f"{shown} is not a NumPy array (.npy): remove it from the archive")
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{shown} is encrypted: save it without a password")
    name = info.filename.removesuffix(".npy")
    if info.compress_type != zipfile.ZIP_STORED:
        with archive.open(info) as stream:
            array = _described(stream, name, shown)
        _check_length(array, array.start + array.nbytes, info.file_size, shown)
        return dataclasses.replace(array, member=info.filename)
    start = _first_byte(raw, info, file)
    raw.seek(start)
    array = _described(raw, name, shown, start=start)
    _check_length(array, array.start + array.nbytes - start, info.file_size, shown)
    return array


def _first_byte(raw: IO[bytes], info: zipfile.ZipInfo, file: InputFile) -> int:
    """Return the position of the first byte of a member.

    A local header of 30 bytes, a name and an extra field precede it. The last four bytes of the
    header are the lengths of the two (APPNOTE.TXT of the zip format, 4.3.7), which may differ from
    the lengths in the directory of the archive.
    """
    raw.seek(info.header_offset)
    head = raw.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise _damaged(file, ValueError(f"no member begins at byte {info.header_offset}"))
    name_bytes, extra_bytes = struct.unpack("<HH", head[26:])
    return info.header_offset + len(head) + int(name_bytes) + int(extra_bytes)


def _check_length(array: StoredArray, needed: int, found: int, shown: str) -> None:
    # Python objects are a pickle of any length; `columns` refuses such an array.
    if array.dtype.hasobject or found == needed:
        return
    if found < needed:
        raise DataError(
            f"{shown} is cut off: it has {found:,} bytes but its header says {needed:,}: "
            "write it again, or leave it out"
        )
    raise DataError(
        f"{shown} has {found - needed:,} bytes after its array: save one array per file"
    )


def _cut_off(shown: str) -> DataError:
    return DataError(f"{shown} is cut off in its header: write it again, or leave it out")


def _damaged(file: InputFile, error: Exception, *, name: str | None = None) -> DataError:
    """Return the error for an archive that cannot be read."""
    what = file.name if name is None else f"array {name!r} of {file.name}"
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"cannot read {what} ({reason}): write the file again, or leave it out")


class ArrayReader:
    """Reads ranges of rows of one stored array, in order.

    Values that are not compressed are copied one range at a time, so that a complete file or unit
    is never in memory. Files are not mapped into memory, because rows would change with the file,
    and a file that became shorter would kill the process.
    """

    def __init__(self, file: InputFile, array: StoredArray, *, as_row: bool) -> None:
        self._file, self._array, self._as_row = file, array, as_row
        self._shape = (1, *array.shape) if as_row else array.shape
        self._fortran_array: Array | None = None
        with contextlib.ExitStack() as stack:
            if array.member is None:
                self._stream: Any = stack.enter_context(io.FileIO(file.path))
            else:
                with self._as_data_errors():
                    archive = stack.enter_context(zipfile.ZipFile(file.path))
                    self._stream = stack.enter_context(archive.open(array.member))
                    self._stream.read(array.start)
            self._opened = stack.pop_all()

    def rows(self, start: int, stop: int) -> Array:
        """Return the rows `start` to `stop`, shape ``[stop - start, …]``, in C order or not."""
        array = self._array
        if array.member is not None:
            with self._as_data_errors():
                return self._streamed(start, stop)
        if not array.has_rows:
            return self._columns(start, stop)
        first, end = array.range_of(self._shape, start, stop)
        data = np.empty(end - first, np.uint8)
        self._copy(data, first)
        return data.view(array.dtype).reshape(stop - start, *self._shape[1:])

    def close(self) -> None:
        """Close the file."""
        self._opened.close()

    def _columns(self, start: int, stop: int) -> Array:
        """Return rows of an array in Fortran order, copied from one byte range for each column."""
        array = self._array
        if self._as_row:
            start, stop = 0, array.shape[0]
        rows, item = array.shape[0], array.dtype.itemsize
        count, nbytes = math.prod(array.shape[1:]), (stop - start) * item
        data = np.empty(count * nbytes, np.uint8)
        if stop - start == rows:
            self._copy(data, array.start)
        else:
            for column in range(count):
                piece = data[column * nbytes : (column + 1) * nbytes]
                self._copy(piece, array.start + (column * rows + start) * item)
        block = data.view(array.dtype).reshape(stop - start, *array.shape[1:], order="F")
        return block[None] if self._as_row else block

    def _copy(self, out: Array, at: int) -> None:
        """Fill `out`, bytes, from byte `at` of the file."""
        self._stream.seek(at)
        try:
            self._fill(out)
        except EOFError as error:
            name = self._file.name
            raise DataError(f"{name} became shorter while it was read: start again") from error

    def _fill(self, out: Array) -> None:
        """Fill `out`, bytes, with the next bytes of the file or the member."""
        view, filled = out.data, 0
        while filled < len(out):
            count = self._stream.readinto(view[filled:])
            if not count:
                raise EOFError("it ends too early")
            filled += count

    def _streamed(self, start: int, stop: int) -> Array:
        """Return rows of a compressed array; one in Fortran order is read at once."""
        array = self._array
        if not array.is_fortran:
            data = np.empty(
                math.prod(self._shape[1:]) * array.dtype.itemsize * (stop - start), "u1"
            )
            self._fill(data)
            if stop == self._shape[0]:
                self._check_end()
            return data.view(array.dtype).reshape(stop - start, *self._shape[1:])
        if self._fortran_array is None:
            data = np.empty(array.nbytes, np.uint8)
            self._fill(data)
            self._check_end()
            self._fortran_array = data.view(array.dtype).reshape(array.shape, order="F")
        return self._fortran_array[None] if self._as_row else self._fortran_array[start:stop]

    def _check_end(self) -> None:
        # zipfile checks the CRC of a member only when it is read at its end.
        if self._stream.read(1):
            raise zipfile.BadZipFile("it ends too late")

    @contextlib.contextmanager
    def _as_data_errors(self) -> Iterator[None]:
        try:
            yield
        except (*_DAMAGES, KeyError) as error:
            raise _damaged(self._file, error, name=self._array.name) from error


def is_in_memory(file: InputFile) -> bool:
    """Return whether a file contains arrays from memory, written by `memory.spill_arrays`."""
    directory, name = os.path.split(file.path)
    return name == FILE_NAME and os.path.basename(directory).startswith(DIRECTORY_PREFIX)


def shown_file(file: InputFile) -> InputFile:
    """Return the file to name in messages, which for arrays from memory is only a placeholder."""
    return IN_MEMORY if is_in_memory(file) else file
