"""Arrays in memory as a file that workers can read.

Arrays that were part of a pipeline would be pickled into it once for each step that knows the
source. Written to one uncompressed .npz file they are not, and workers read the rows they need.
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

from beam_tfrecord.contract.tensors import Array, dtype_name, is_foreign
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.numpy.columns import columns_of
from beam_tfrecord.sources.numpy.files import StoredArray

_HERE = InputFile("", "the arrays in memory", 0)


def named_arrays(arrays: Any) -> dict[str, Array]:
    """Return an array, or arrays by name, as arrays that can be stored.

    Raises:
        UsageError: There is none, or one cannot be stored.
    """
    if isinstance(arrays, np.ndarray):
        arrays = {"data": arrays}
    found = {}
    for name, array in arrays.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"{name!r} is no name of an array: name it with a text")
        if isinstance(array, np.ma.MaskedArray):
            raise UsageError(f"array {name!r} is masked: give array.filled(…) instead")
        found[name] = np.asarray(array)
    if not found:
        raise UsageError("there is no array: give at least one, as {'data': array}")
    try:
        columns_of(_described(found), _HERE, types={}, as_row=True)
    except DataError as error:
        raise UsageError(str(error)) from error
    return found


def _described(arrays: Mapping[str, Array]) -> list[StoredArray]:
    return [StoredArray(name, array.dtype, array.shape, False, 0) for name, array in arrays.items()]


def spill_arrays(arrays: Mapping[str, Array], temp_dir: str | None) -> tuple[str, dict[str, str]]:
    """Write arrays to a file that lasts as long as this process.

    Args:
        arrays: From `named_arrays`.
        temp_dir: Where to; every worker must see it. None: where this machine has such files.

    Returns:
        The path of the file, and the dtypes that it cannot tell, by column.
    """
    directory = tempfile.mkdtemp(prefix="beam_tfrecord-", dir=temp_dir)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "arrays.npz")
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                width = array.dtype.itemsize
                raw = array.view(f"V{width}") if is_foreign(array.dtype) else array
                np.lib.format.write_array(member, raw, allow_pickle=False)
    columns = columns_of(_described(arrays), _HERE, types={}, as_row=True)
    return path, {
        column.name: dtype_name(column.dtype) for column in columns if is_foreign(column.dtype)
    }
