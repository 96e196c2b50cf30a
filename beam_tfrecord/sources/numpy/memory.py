"""Writes arrays in memory to an uncompressed .npz file that workers can read.

Arrays in the source itself would be pickled for every step of a pipeline that contains the source.
From a file, workers read only the rows that they need.
"""

from __future__ import annotations

import os
import zipfile
from typing import Any

import numpy as np

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.tensors import dtype_name, is_foreign
from beam_tfrecord.sources.numpy.columns import checked_columns, columns_of
from beam_tfrecord.sources.numpy.files import StoredArray

# A zip archive stores the length of a name in two bytes.
_MAX_NAME_BYTES = 2**16 - 1


def spill_arrays(arrays: Any, directory: str) -> tuple[str, dict[str, str]]:
    """Write one array, or a mapping of arrays by name, to an .npz file.

    Return its path, and the dtypes of the columns that it holds as raw bytes.
    """
    if isinstance(arrays, np.ndarray):
        arrays = {"data": arrays}
    for name, array in arrays.items():
        if not (isinstance(name, str) and name and _is_kept(f"{name}.npy")):
            raise UsageError(
                f"{str(name)[:80]!r} cannot be the name of an array: pass a short text"
            )
        if isinstance(array, np.ma.MaskedArray):
            raise UsageError(f"array {name!r} is masked: give array.filled(…) instead")
    held = {name: np.asarray(array) for name, array in arrays.items()}
    stored = (StoredArray(name, of.dtype, of.shape, False, 0) for name, of in held.items())
    columns = (column for array in stored for column in columns_of(array))
    dtypes = {
        name: column.dtype
        for name, column in checked_columns(columns, "the arrays in memory", {}).items()
    }
    path = os.path.join(directory, "arrays.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in held.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                raw = array.view(f"V{array.itemsize}") if is_foreign(array.dtype) else array
                np.lib.format.write_array(member, raw, allow_pickle=False)
    return path, {name: dtype_name(dtype) for name, dtype in dtypes.items() if is_foreign(dtype)}


def _is_kept(member: str) -> bool:
    """Return whether zipfile writes a member under exactly this name: it cuts some at a NUL."""
    written = zipfile.ZipInfo(member).filename.encode(errors="replace")
    return written.decode() == member and len(written) <= _MAX_NAME_BYTES
