"""Writes arrays in memory to an uncompressed .npz file that workers can read.

Arrays in the source itself would be pickled for every step of a pipeline that contains the source.
From a file, workers read only the rows that they need.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.tensors import Array, dtype_name, is_foreign
from beam_tfrecord.sources.numpy.columns import columns_of
from beam_tfrecord.sources.numpy.files import DIRECTORY_PREFIX, FILE_NAME, IN_MEMORY, StoredArray

# A zip archive stores the length of a name in two bytes.
_MAX_NAME_BYTES = 2**16 - 1


def named_arrays(arrays: Any) -> dict[str, Array]:
    """Check one array or a mapping of arrays, and return a mapping of arrays by name."""
    if isinstance(arrays, np.ndarray):
        arrays = {"data": arrays}
    found = {}
    for name, array in arrays.items():
        _check_name(name)
        if isinstance(array, np.ma.MaskedArray):
            raise UsageError(f"array {name!r} is masked: give array.filled(…) instead")
        found[name] = np.asarray(array)
    if not found:
        raise UsageError("there is no array: pass at least one, as {'data': array}")
    try:
        columns_of(_described(found), IN_MEMORY, types={}, as_row=False)
    except DataError as error:
        raise UsageError(str(error)) from error
    return found


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{name!r} is not an array name: pass a string")
    member = f"{name}.npy"
    try:
        is_long = len(member.encode()) > _MAX_NAME_BYTES
    except UnicodeEncodeError as error:
        raise UsageError(
            f"array name {name[:80]!r} is not valid Unicode: rename the array"
        ) from error
    if is_long:
        raise UsageError(
            f"array name {name[:80]!r}… has more than {_MAX_NAME_BYTES - len('.npy'):,} bytes: "
            "shorten it"
        )
    # zipfile changes some names: for example, it cuts them at the first NUL.
    if zipfile.ZipInfo(member).filename != member:
        raise UsageError(
            f"array name {name[:80]!r} has a character that no archive can hold: rename the array"
        )


def _described(arrays: Mapping[str, Array]) -> list[StoredArray]:
    return [StoredArray(name, array.dtype, array.shape, False, 0) for name, array in arrays.items()]


def spill_arrays(arrays: Mapping[str, Array], temp_dir: str | None) -> tuple[str, dict[str, str]]:
    """Write arrays to an .npz file that is removed at the end of this process."""
    directory = tempfile.mkdtemp(prefix=DIRECTORY_PREFIX, dir=temp_dir)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, FILE_NAME)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                width = array.dtype.itemsize
                raw = array.view(f"V{width}") if is_foreign(array.dtype) else array
                np.lib.format.write_array(member, raw, allow_pickle=False)
    columns = columns_of(_described(arrays), IN_MEMORY, types={}, as_row=False)
    return path, {
        column.name: dtype_name(column.dtype) for column in columns if is_foreign(column.dtype)
    }
