"""Matrices of embeddings: ``.npy`` files, one row an index."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from beam_tfrecord.errors import UsageError

# The matrix becomes a constant of the saved function, whose file cannot exceed 2 GiB.
MAX_BYTES = 2**30
_READ_BYTES = 2**20


def check_matrix(path: str, *, column: str, width: int | None, rows: int | None) -> None:
    """Check a matrix by its header.

    Args:
        path: The file.
        column: Column whose values are its row numbers, for messages.
        width: Numbers of a row that are wanted; None: any.
        rows: Rows that the column's values can ask for, where that is known.

    Raises:
        UsageError: It is no matrix of numbers, or of another size.
    """
    matrix = open_matrix(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise UsageError(
            f"matrix {path!r} for column {column!r} has shape {matrix.shape} of {matrix.dtype}: "
            "give two axes of numbers"
        )
    if width is not None and matrix.shape[1] != width:
        raise UsageError(
            f"matrix {path!r} for column {column!r} is {matrix.shape[1]} wide, not {width}: "
            "give another matrix, or correct width"
        )
    if rows is not None and matrix.shape[0] < rows:
        raise UsageError(
            f"matrix {path!r} has {matrix.shape[0]} rows but column {column!r} can have {rows} "
            "indices: give a row for each, those out of the vocabulary included"
        )
    if 4 * matrix.size > MAX_BYTES:
        raise UsageError(
            f"matrix {path!r} takes {4 * matrix.size:,} bytes: at most {MAX_BYTES:,} fit into the "
            "saved function: write the index and look it up in the model"
        )


def open_matrix(path: str) -> npt.NDArray[np.generic]:
    """Open a matrix without reading it.

    Raises:
        UsageError: It is not there, or not a ``.npy`` file.
    """
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read matrix {path!r}: {reason}") from error
    except ValueError as error:
        raise UsageError(f"matrix {path!r} is not a .npy file of numbers") from error


def matrix_sha256(path: str) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()
