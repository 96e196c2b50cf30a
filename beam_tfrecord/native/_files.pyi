"""Functions for many small files at once, in C; they release the GIL for all of the files."""

from typing import Any

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

OTHER_SIZE: int
"""Status of a file that has more or fewer bytes than expected."""

STUB_FAULTS: dict[int, str]
"""Faults of stubs by their number: "damaged", "size" or "bytes"."""

def read_files(paths: list[bytes], sizes: _Int64s, out: _Bytes) -> npt.NDArray[np.int32]:
    """Read files of known sizes, one behind the other.

    Args:
        paths: Their names.
        sizes: Bytes expected of each; int64, shape `[len(paths)]`.
        out: Room for all of them and one more byte.

    Returns:
        The status of each, int32: 0 if it was read, `OTHER_SIZE`, or the error number. Files that
        were not read leave no gap.

    Raises:
        ValueError: `out` is too short, or the counts differ.
        MemoryError: There is no memory for the names.
    """

def hash_files(function: int, data: _Bytes, starts: _Int64s, sizes: _Int64s) -> _Bytes | None:
    """Hash ranges of some data.

    Args:
        function: Address of a function with the signature of OpenSSL's SHA256.
        data: The bytes of the files.
        starts: Position of each file; int64, shape `[n]`.
        sizes: Bytes of each file, likewise.

    Returns:
        The digests, one behind the other, 32 bytes each; None if the function failed.

    Raises:
        ValueError: A range lies outside of the data, or the counts differ.
    """

def describe_jpegs(
    data: _Bytes, starts: _Int64s, sizes: _Int64s, max_pixels: int
) -> npt.NDArray[np.int32]:
    """Describe the plain JPEGs among some files.

    Args:
        data: The bytes of the files.
        starts: Position of each file; int64, shape `[n]`.
        sizes: Bytes of each file, likewise.
        max_pixels: Largest accepted width times height.

    Returns:
        Width, height and channels of each; int32, shape `[n, 3]`. Zeros if the file is not a JPEG
        that is certainly good: `beam_tfrecord.images.describe` then says what it is.

    Raises:
        ValueError: A range lies outside of the data, or the counts differ.
    """

def make_stubs(
    data: _Bytes, starts: _Int64s, key: bytes, paths: list[bytes | None], least_bytes: int
) -> tuple[_Bytes, _Int64s]:
    """Take files out of framed records.

    Args:
        data: Records as the encoder writes them.
        starts: Position of each record; int64, shape `[n]`.
        key: Name of the feature whose only value is the content of a file.
        paths: File of each record; None if it has none.
        least_bytes: Size of the smallest file that is taken out.

    Returns:
        The framed stubs, uint8, and the position of each, int64, shape `[n]`.

    Raises:
        ValueError: A record does not lie inside the data, or the counts differ.
        MemoryError: There is no memory for the stubs.
    """

def whole_sizes(data: _Bytes, starts: _Int64s) -> _Int64s:
    """Return the bytes of the framed record that each stub stands for, int64, shape `[n]`.

    Raises:
        ValueError: A record is not a stub.
    """

def make_whole(
    data: _Bytes, starts: _Int64s, order: _Int64s, out: _Bytes
) -> tuple[int, Any] | None:
    """Write the framed records that stubs stand for, reading their files.

    Args:
        data: Framed stubs.
        starts: Position of each stub; int64, shape `[n]`.
        order: Numbers of those to write, in order.
        out: Receives the records; exactly as long as all of them.

    Returns:
        None, or the number of the first stub that failed and the reason: one of the values of
        `STUB_FAULTS`, or an error number of the system.

    Raises:
        ValueError: One is not in the data or not a stub, or `out` has another length.
    """

def stub_path(data: _Bytes, start: int) -> bytes:
    """Return the file name of the stub at `start`; empty if it has none."""
