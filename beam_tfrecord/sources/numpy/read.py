"""Reading rows of arrays in .npy and .npz files, a range at a time."""

from __future__ import annotations

import io
import math
import zipfile
from typing import IO

import numpy as np

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.tensors import Array
from beam_tfrecord.hashes import STEP_BYTES, range_digest
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.numpy.files import DAMAGES, StoredArray, damaged


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
