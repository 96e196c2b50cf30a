"""Reading rows of arrays in .npy and .npz files, a range at a time."""

from __future__ import annotations

import math
import os
import zipfile
from typing import IO

import numpy as np

from beam_tfrecord.contract.tensors import Array
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.numpy.files import DAMAGES, StoredArray, damaged


class ArrayReader:
    """Reads ranges of rows of one stored array, each after the one before.

    What is not compressed is mapped into memory, a range at a time, so that neither the file nor
    a unit of it is ever held.

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
        if array.is_fortran and len(array.shape) > 1:
            data = self._mapped(array.start, array.nbytes)
            whole = data.view(array.dtype).reshape(array.shape, order="F")
            return whole[None] if self._as_row else whole[start:stop]
        data = self._mapped(array.start + start * self._row_bytes, (stop - start) * self._row_bytes)
        return data.view(array.dtype).reshape(stop - start, *self._shape[1:])

    def close(self) -> None:
        """Close the archive."""
        for opened in (self._stream, self._archive):
            if opened is not None:
                opened.close()

    def _mapped(self, start: int, nbytes: int) -> Array:
        with open(self._file.path, "rb") as raw:
            # Behind the end of a file its map cannot be read: the process would be killed.
            if os.fstat(raw.fileno()).st_size < start + nbytes:
                raise DataError(f"{self._file.name} became shorter while it was read: start again")
            if not nbytes:
                return np.empty(0, np.uint8)
            return np.memmap(raw, np.uint8, "r", start, (nbytes,))

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
