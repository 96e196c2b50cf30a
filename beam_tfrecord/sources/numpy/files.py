"""The .npy and .npz formats: parsing the headers, and reading ranges of rows.

The formats are those of `numpy.lib.format`: magic bytes, a version, and a Python literal with the
dtype, order and shape, followed by the values. An .npz file is a zip archive of .npy members.
This module never unpickles anything.
"""

from __future__ import annotations

import ast
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
from typing import IO, Any

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.tensors import Array
from beam_tfrecord.hashes import STEP_BYTES, range_digest
from beam_tfrecord.sources.base import InputFile

# The file that `memory` writes arrays of a pipeline to, and the name that messages show for it.
DIRECTORY_PREFIX = "beam_tfrecord-arrays-"
FILE_NAME = "arrays.npz"
IN_MEMORY = InputFile("", "the arrays in memory", 0)

# What Python raises where an archive is not whole, or of a method it does not know.
DAMAGES = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)

_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK"
# Every version has a length of its own width before the header, and the header's encoding.
_VERSIONS = {(1, 0): ("<H", "latin1"), (2, 0): ("<I", "latin1"), (3, 0): ("<I", "utf-8")}
_KEYS = {"descr", "fortran_order", "shape"}
# Parsing a literal of any length would let a broken file take all memory.
_MAX_HEADER_BYTES = 2**20
_MAX_REASON_CHARS = 200
_ENCRYPTED = 1


@dataclasses.dataclass(frozen=True)
class StoredArray:
    """An array in a file.

    Attributes:
        name: ``data`` in an .npy file, the name of its member in an .npz file.
        dtype: As the header says it, in whatever byte order.
        shape: Of the whole array.
        is_fortran: True where the first axis varies fastest.
        start: First byte of the values: in the file, or in the member where it is compressed.
        member: Name of the member of an archive that is compressed and so can only be streamed.
        is_alone: True for the one array of an .npy file.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    start: int
    member: str | None = None
    is_alone: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def has_rows(self) -> bool:
        """Whether the values of each row lie together in the file, one row behind the other."""
        return self.member is None and not (self.is_fortran and len(self.shape) > 1)

    def range_of(self, shape: tuple[int, ...], start: int, stop: int) -> tuple[int, int]:
        """Return where rows lie in the file, the array taken as one of `shape`."""
        row_bytes = math.prod(shape[1:]) * self.dtype.itemsize
        return self.start + start * row_bytes, self.start + stop * row_bytes


def stored_arrays(file: InputFile) -> list[StoredArray]:
    """Return the arrays of a file, in its order; only headers are read.

    Raises:
        DataError: It is no such file, it is cut off, or it holds Python objects.
        OSError: The system cannot read it.
    """
    with open(file.path, "rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        if raw.read(2) == _ZIP_MAGIC:
            return _members(raw, file)
        raw.seek(0)
        array = _described(raw, "data", file.name)
        _check_length(array, array.start + array.nbytes, size, file.name)
        return [dataclasses.replace(array, is_alone=True)]


def _described(stream: IO[bytes], name: str, where: str, *, start: int = 0) -> StoredArray:
    """Return what the header at the place of `stream` says; `start` is the byte it stands at."""
    head = stream.read(8)
    if not head:
        raise DataError(f"{where} is empty: write it anew, or leave it out")
    if head[:6] != _MAGIC or len(head) < 8:
        raise DataError(f"{where} is no array of NumPy (.npy, .npz): correct it, or leave it out")
    version = (head[6], head[7])
    if version not in _VERSIONS:
        raise DataError(
            f"{where} is of version {version[0]}.{version[1]} of the .npy format, which is not "
            "known: save it again with np.save"
        )
    width, encoding = _VERSIONS[version]
    length_bytes = stream.read(struct.calcsize(width))
    if len(length_bytes) < struct.calcsize(width):
        raise _cut_off(where)
    (length,) = struct.unpack(width, length_bytes)
    if length > _MAX_HEADER_BYTES:
        raise DataError(f"{where} has a header of {length:,} bytes: save it again with np.save")
    text = stream.read(length)
    if len(text) < length:
        raise _cut_off(where)
    dtype, is_fortran, shape = _parsed(text, encoding, where)
    at = start + len(head) + len(length_bytes) + length
    return StoredArray(name, dtype, shape, is_fortran, at)


def _parsed(text: bytes, encoding: str, where: str) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    try:
        header = ast.literal_eval(text.decode(encoding).strip())
        if not isinstance(header, dict) or set(header) != _KEYS:
            raise ValueError("other keys are there than descr, fortran_order and shape")
        shape, is_fortran = header["shape"], header["fortran_order"]
        sizes = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        if not sizes or not isinstance(is_fortran, bool):
            raise ValueError(f"its shape is {reprlib.repr(shape)}")
        # ml_dtypes saves float8_e5m2 under a name that NumPy does not know: raw bytes, then.
        descr: Any = "|V1" if header["descr"] == "<f1" else header["descr"]
        dtype = np.lib.format.descr_to_dtype(descr)
        if dtype.subdtype is not None:
            raise ValueError("its dtype has a shape of its own")
        check_shape(shape, dtype)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{where} has a header that cannot be read ({reason[:_MAX_REASON_CHARS]}): "
            "save it again with np.save"
        ) from error
    return dtype, is_fortran, shape


def check_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Check that NumPy can have an array of a shape, without making it.

    Raises:
        ValueError: It has too many axes or bytes.
    """
    # How many axes there may be differs from version to version.
    np.empty((0,) * len(shape))
    # NumPy counts the bytes as if no size were 0.
    if math.prod(filter(None, shape)) * max(1, dtype.itemsize) > sys.maxsize:
        raise ValueError(f"its shape is {reprlib.repr(shape)}")


def _members(raw: IO[bytes], file: InputFile) -> list[StoredArray]:
    try:
        with zipfile.ZipFile(raw) as archive:
            infos = archive.infolist()
            arrays = [_member(archive, raw, info, file) for info in infos]
    except DAMAGES as error:
        raise damaged(file, error) from error
    if not arrays:
        raise DataError(f"{file.name} holds no array: leave it out")
    names = [array.name for array in arrays]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise DataError(f"{file.name} has two arrays named {min(doubled)!r}: save it again")
    return arrays


def _member(
    archive: zipfile.ZipFile, raw: IO[bytes], info: zipfile.ZipInfo, file: InputFile
) -> StoredArray:
    where = f"{info.filename!r} of {file.name}"
    if not info.filename.endswith(".npy"):
        raise DataError(f"{where} is no array of NumPy (.npy): take it out of the archive")
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{where} is encrypted: save it without a password")
    name = info.filename.removesuffix(".npy")
    if info.compress_type != zipfile.ZIP_STORED:
        with archive.open(info) as stream:
            array = _described(stream, name, where)
        _check_length(array, array.start + array.nbytes, info.file_size, where)
        return dataclasses.replace(array, member=info.filename)
    start = _first_byte(raw, info, file)
    raw.seek(start)
    array = _described(raw, name, where, start=start)
    _check_length(array, array.start + array.nbytes - start, info.file_size, where)
    return array


def _first_byte(raw: IO[bytes], info: zipfile.ZipInfo, file: InputFile) -> int:
    """Return where the bytes of a member begin.

    Before them stands a local header of 30 bytes, the last four the lengths of a name and of an
    extra field (APPNOTE.TXT of the zip format, 4.3.7); its lengths differ from the directory's.
    """
    raw.seek(info.header_offset)
    head = raw.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise damaged(file, ValueError(f"no member begins at byte {info.header_offset}"))
    name_bytes, extra_bytes = struct.unpack("<HH", head[26:])
    return info.header_offset + len(head) + int(name_bytes) + int(extra_bytes)


def _check_length(array: StoredArray, needed: int, there: int, where: str) -> None:
    # The bytes of Python objects are a pickle of any length; such an array is refused elsewhere.
    if array.dtype.hasobject or there == needed:
        return
    if there < needed:
        raise DataError(
            f"{where} is cut off: it has {there:,} bytes but its header says {needed:,}: "
            "write it anew, or leave it out"
        )
    raise DataError(f"{where} has {there - needed:,} bytes behind its array: save one array a file")


def _cut_off(where: str) -> DataError:
    return DataError(f"{where} is cut off in its header: write it anew, or leave it out")


def damaged(file: InputFile, error: Exception, *, name: str | None = None) -> DataError:
    """Return the error for an archive that cannot be read."""
    what = file.name if name is None else f"array {name!r} of {file.name}"
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"cannot read {what} ({reason}): write the file anew, or leave it out")


class ArrayReader:
    """Reads ranges of rows of one stored array, each after the one before.

    What is not compressed is copied a range at a time, so that neither the file nor a unit of it
    is ever held. It is not mapped: rows would change with the file, and where that is cut the
    process would be killed.

    Args:
        file: The file.
        array: Where it lies there.
        as_row: Take the whole array as one row.
    """

    def __init__(self, file: InputFile, array: StoredArray, *, as_row: bool) -> None:
        self._file = file
        self._array = array
        self._as_row = as_row
        shape = (1, *array.shape) if as_row else array.shape
        self._shape = shape
        self._row_bytes = math.prod(shape[1:]) * array.dtype.itemsize
        self._digest: native.XXH64 | None = None
        self._raw: io.FileIO | None = None
        self._archive: zipfile.ZipFile | None = None
        self._stream: IO[bytes] | None = None
        self._whole: Array | None = None

    def rows(self, start: int, stop: int) -> Array:
        """Return the rows `start` to `stop`, shape ``[stop - start, …]``; it may not be in C order.

        Raises:
            DataError: The file is damaged, or not as long as it was.
        """
        if self._array.member is not None:
            return self._streamed(start, stop)
        array = self._array
        if not array.has_rows:
            return self._columns(start, stop)
        first, end = array.range_of(self._shape, start, stop)
        data = np.empty(end - first, np.uint8)
        self._copy(data, first)
        return data.view(array.dtype).reshape(stop - start, *self._shape[1:])

    def begin_hash(self, name: str, start: int, stop: int) -> None:
        """Hash the rows `start` to `stop`, which come next, all of them and in order."""
        self._digest = range_digest(name, *self._array.range_of(self._shape, start, stop))

    def hash_of_range(self) -> int:
        """Return the hash of all rows since `begin_hash`."""
        assert self._digest is not None
        return int(self._digest.intdigest())

    def close(self) -> None:
        """Close the file."""
        for opened in (self._stream, self._archive, self._raw):
            if opened is not None:
                opened.close()

    def _columns(self, start: int, stop: int) -> Array:
        """Return rows of an array whose first axis varies fastest: a piece of each column."""
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
        if self._raw is None:
            self._raw = io.FileIO(self._file.path)
        self._raw.seek(at)
        view, filled = out.data, 0
        while filled < len(out):
            # What is hashed is best still in the cache of this core.
            step = view[filled:] if self._digest is None else view[filled : filled + STEP_BYTES]
            count = self._raw.readinto(step)
            if not count:
                raise DataError(f"{self._file.name} became shorter while it was read: start again")
            if self._digest is not None:
                self._digest.update(step[:count])
            filled += count

    def _streamed(self, start: int, stop: int) -> Array:
        if self._stream is None:
            self._open_member()
        array = self._array
        try:
            if not array.is_fortran:
                data = self._read((stop - start) * self._row_bytes)
                if stop == self._shape[0]:
                    # Only a read that meets the end checks the member's CRC.
                    self._read_end()
                return data.view(array.dtype).reshape(stop - start, *self._shape[1:])
            if self._whole is None:
                data = self._read(array.nbytes).view(array.dtype)
                self._read_end()
                self._whole = data.reshape(array.shape, order="F")
            return self._whole[None] if self._as_row else self._whole[start:stop]
        except DAMAGES as error:
            raise damaged(self._file, error, name=array.name) from error

    def _open_member(self) -> None:
        assert self._array.member is not None
        try:
            self._archive = zipfile.ZipFile(self._file.path)
            self._stream = self._archive.open(self._array.member)
            self._stream.read(self._array.start)
        except (*DAMAGES, KeyError) as error:
            raise damaged(self._file, error, name=self._array.name) from error

    def _read(self, nbytes: int) -> Array:
        assert self._stream is not None
        data = np.empty(nbytes, np.uint8)
        view, filled = data.data, 0
        while filled < nbytes:
            count = self._stream.readinto(view[filled:])  # type: ignore[attr-defined]
            if not count:
                raise EOFError("it ends too early")
            filled += count
        return data

    def _read_end(self) -> None:
        assert self._stream is not None
        if self._stream.read(1):
            raise zipfile.BadZipFile("it ends too late")


def is_in_memory(file: InputFile) -> bool:
    """Return whether a file holds arrays from memory, written by `memory.spill_arrays`."""
    directory, name = os.path.split(file.path)
    return name == FILE_NAME and os.path.basename(directory).startswith(DIRECTORY_PREFIX)


def shown_file(file: InputFile) -> InputFile:
    """Return the file that messages name, which for arrays from memory is not their file."""
    return IN_MEMORY if is_in_memory(file) else file
