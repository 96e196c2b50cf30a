"""Functions for many small files at once, in C; they release the GIL for all of the files."""

import numpy as np
import numpy.typing as npt

_Bytes = npt.NDArray[np.uint8]
_Int64s = npt.NDArray[np.int64]

OTHER_SIZE: int
"""Status of a file that has more or fewer bytes than expected."""

def read_files(paths: list[bytes], sizes: _Int64s, out: _Bytes) -> npt.NDArray[np.int32]:
    """Read files of known sizes, one after the other.

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
        The digests, one after the other, 32 bytes each; None if the function failed.

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
