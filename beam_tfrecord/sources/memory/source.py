"""The sources of input in memory: their files are temporary, so a hash of the rows identifies them.

`on_disk` writes the input to a file, so that workers read only the rows that they need, and memory
stays flat.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import itertools
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, ClassVar

import numpy as np

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.tensors import dtype_name, is_foreign
from beam_tfrecord.format.hashes import file_hash
from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.sources.files import FileSource
from beam_tfrecord.sources.memory.rows import next_of
from beam_tfrecord.sources.memory.spool import spool
from beam_tfrecord.sources.memory.tables import is_table, stream_of
from beam_tfrecord.sources.numpy.columns import checked_columns, columns_of
from beam_tfrecord.sources.numpy.files import StoredArray
from beam_tfrecord.sources.numpy.source import Numpy

_NAME = "data in memory"
# A zip archive stores the length of a name in two bytes.
_MAX_NAME_BYTES = 2**16 - 1


@dataclasses.dataclass(frozen=True)
class _Temporary(FileSource):
    """A source of one temporary file."""

    digest: str = dataclasses.field(default="", kw_only=True)

    def files(self) -> Iterator[InputFile]:
        for file in super().files():
            # A hash of the content in place of the name and the times.
            yield dataclasses.replace(
                file, name=_NAME, version=self.digest, state="", digest=self.digest
            )


@dataclasses.dataclass(frozen=True)
class Memory(_Temporary, Arrow):
    """A table or rows in memory, in a temporary Arrow file."""

    kind: ClassVar[str] = "memory"


@dataclasses.dataclass(frozen=True)
class Arrays(_Temporary, Numpy):
    """NumPy arrays in memory, in a temporary .npz file."""


@dataclasses.dataclass(frozen=True)
class OnDisk:
    """Files, and the source that can read them."""

    source: type[Source]
    paths: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def source_of(self, **options: Any) -> Source:
        """Return the source of the files, with options that the user chose."""
        # Any, because the base class lacks the fields: every source is a dataclass that begins with
        # `paths`.
        source: Any = self.source
        made: Source = source(self.paths, **self.options, **options)
        return made


@contextlib.contextmanager
def on_disk(inputs: Any, temp_dir: str | None = None) -> Iterator[Any]:
    """Yield paths as they are; write other input to a file that lives until the context ends."""
    inputs, are_paths = _looked_at(inputs)
    if are_paths:
        yield inputs
        return
    directory = tempfile.mkdtemp(prefix="beam_tfrecord-rows-", dir=temp_dir)
    try:
        yield _written(inputs, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def until_exit(inputs: Any, temp_dir: str | None = None) -> Any:
    """Return what `on_disk` yields, for as long as this process runs."""
    stack = contextlib.ExitStack()
    readable = stack.enter_context(on_disk(inputs, temp_dir))
    atexit.register(stack.close)
    return readable


def _looked_at(inputs: Any) -> tuple[Any, bool]:
    """Return an input that can still be read, and whether it is paths."""
    if isinstance(inputs, str | os.PathLike):
        return inputs, True
    if is_table(inputs) or not isinstance(inputs, Iterable):
        return inputs, False
    if isinstance(inputs, Sized) and not len(inputs):
        # The choice of the source refuses it.
        return (), True
    # An iterator can be read only once.
    iterator = iter(inputs)
    first = next_of(iterator, 1, 0)
    rest = itertools.chain(first, iterator)
    if first and isinstance(first[0], str | os.PathLike):
        return tuple(rest), True
    return rest, False


def _written(inputs: Any, directory: str) -> OnDisk:
    if _are_arrays(inputs):
        path, types = _write_arrays(inputs, directory)
        return OnDisk(Arrays, (path,), {"types": types or None, "digest": file_hash(path)})
    path, digest = spool(*stream_of(inputs), directory)
    return OnDisk(Memory, (path,), {"digest": digest})


def _are_arrays(inputs: Any) -> bool:
    found = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    return any(isinstance(value, np.ndarray) for value in found)


def _write_arrays(arrays: Any, directory: str) -> tuple[str, dict[str, str]]:
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
