"""Finds the arrays in .npy and .npz files by their headers, and reads ranges of their rows.

`numpy.lib.format` parses the headers. Nothing is ever unpickled. Files are not mapped into memory,
because rows would change with the file, and a file that became shorter would kill the process.
"""

from __future__ import annotations

import dataclasses
import functools
import lzma
import math
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.tensors import Array
from beam_tfrecord.sources.base import InputFile

_ZIP_MAGIC = b"PK"
# Parsing a literal of any length could use all memory for a broken file.
_MAX_HEADER_BYTES = 2**20
# What NumPy and `zipfile` raise for damage, encryption and unknown methods of compression.
FAULTS = (
    *(ArithmeticError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, SystemError),
    *(TypeError, ValueError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array in a file, whose values begin at byte `start` of the file or the member."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    start: int
    member: str | None = None
    is_alone: bool = False

    @property
    def is_one_unit(self) -> bool:
        """Whether it can only be read from its start, or its rows have no bytes of their own."""
        return self.member is not None or self.is_fortran

    @property
    def row_bytes(self) -> int:
        """Number of bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Number of bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def stored_arrays(raw: pa.NativeFile, file: InputFile) -> list[StoredArray]:
    """Return the arrays of a file, in its order; only headers are read."""
    if raw.read(len(_ZIP_MAGIC)) != _ZIP_MAGIC:
        raw.seek(0)
        array = _described(raw, "data")
        _check_length(array, raw.size() - array.start, file.name)
        return [dataclasses.replace(array, is_alone=True)]
    with zipfile.ZipFile(raw) as archive:
        arrays = [_member(archive, raw, info, file) for info in archive.infolist()]
    if not arrays:
        raise ValueError("it holds no array")
    return arrays


def _member(
    archive: zipfile.ZipFile, raw: pa.NativeFile, info: zipfile.ZipInfo, file: InputFile
) -> StoredArray:
    name, shown = info.filename, f"{info.filename!r} of {file.name}"
    with archive.open(info) as member:
        if info.compress_type != zipfile.ZIP_STORED:
            array = _described(member, name.removesuffix(".npy"))
            _check_length(array, info.file_size - array.start, shown)
            return dataclasses.replace(array, member=name)
        # The archive has just read what precedes the first byte of the member.
        first = raw.tell()
        array = _described(raw, name.removesuffix(".npy"))
        _check_length(array, first + info.file_size - array.start, shown)
        return array


def _described(stream: Any, name: str) -> StoredArray:
    """Parse the header at the position of `stream`."""
    read = np.lib.format.read_array_header_2_0
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        read = np.lib.format.read_array_header_1_0
    try:
        shape, is_fortran, dtype = read(stream, max_header_size=_MAX_HEADER_BYTES)
    except (MemoryError, SystemError) as error:
        raise ValueError("its header has no end, or odd characters") from error
    # The function for version 3 is private; the one for version 2 mistakes its UTF-8.
    if version > (3, 0) or (version == (3, 0) and not repr(dtype).isascii()):
        raise ValueError("its version, or its names of fields beyond Latin-1, are not read")
    if dtype.subdtype is not None or any(size < 0 for size in shape):
        raise ValueError("a dtype with a shape, or a negative size, is not read")
    has_columns = is_fortran and len(shape) > 1 and math.prod(shape) > 0
    return StoredArray(name, dtype, shape, has_columns, stream.tell())


def _check_length(array: StoredArray, found: int, shown: str) -> None:
    # Python objects are a pickle of any length; `columns` refuses such an array.
    if found != array.nbytes and not array.dtype.hasobject:
        raise DataError(
            f"{shown} has {found:,} bytes of values but its header says {array.nbytes:,}: write it "
            "again, or leave it out"
        )


class ArrayReader:
    """Reads ranges of rows of one stored array, in order."""

    def __init__(self, raw: pa.NativeFile, array: StoredArray) -> None:
        self._raw, self._array = raw, array

    def rows(self, start: int, stop: int) -> Array:
        """Return the rows `start` to `stop`, shape ``[stop - start, …]``, in C order or not."""
        array = self._array
        if array.is_fortran:
            return self._whole[start:stop]
        data = self._bytes(start * array.row_bytes, stop * array.row_bytes)
        return np.ndarray((stop - start, *array.shape[1:]), array.dtype, data)

    @functools.cached_property
    def _stream(self) -> Any:
        return zipfile.ZipFile(self._raw).open(self._array.member or "")

    @functools.cached_property
    def _whole(self) -> Array:
        data = self._bytes(0, self._array.nbytes)
        return np.ndarray(self._array.shape, self._array.dtype, data, order="F")

    def _bytes(self, start: int, stop: int) -> bytes:
        first, size = self._array.start + start, stop - start
        if self._array.member is None:
            data: bytes = self._raw.read_at(size, first)
        else:
            self._stream.seek(first)
            data = self._stream.read(size)
            if stop == self._array.nbytes:
                self._stream.read(1)  # `zipfile` compares the CRC at the end of a member.
        if len(data) < size:
            raise EOFError("it is cut off")
        return data
