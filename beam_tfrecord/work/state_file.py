"""Saves typed values in a file for the next attempt of a job, and loads them, by `msgspec`.

Others may write to the directory of such a file. So the reader says which type it expects, and the
file names no classes and no code: `load` returns a value whose fields all have their types, or
None. The file is the XXH64 of the value's MessagePack, and the MessagePack.
"""

from __future__ import annotations

import contextlib
import logging
import typing
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.storage import WholeFile, read_bytes

_LOGGER = logging.getLogger(__name__)

# Files of another format are not read: an attempt that finds one begins from the start.
FORMAT = 3
_SEAL_BYTES = 8

T = TypeVar("T")


def save(path: str, value: Any) -> None:
    """Store a value in a file, which need not outlast a crash of the machine."""
    data = msgspec.msgpack.encode(value, enc_hook=_encoded)
    with WholeFile(path, outlasts=False) as file:
        file.write(_seal(data))
        file.write(data)


def load(path: str, kind: type[T]) -> T | None:
    """Return the value of type `kind` that `save` stored; None if there is no such file."""
    try:
        stored = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    data = stored[_SEAL_BYTES:]
    if stored[:_SEAL_BYTES] == _seal(data):
        # No error matters: without the file, the job only does some work again.
        with contextlib.suppress(Exception):
            try:
                return msgspec.msgpack.decode(data, type=kind, dec_hook=_decoded)
            except msgspec.ValidationError as error:
                _LOGGER.debug("%s is not used: %s", path, error)
    return None


def _seal(data: bytes) -> bytes:
    return native.xxh64(data, FORMAT).to_bytes(_SEAL_BYTES, "little")


def _encoded(value: Any) -> Any:
    """Return a value of NumPy or Arrow as one of MessagePack."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1:
        return value.dtype.str, value.tobytes()
    if isinstance(value, pa.DataType):
        return _encoded(pa.schema([pa.field("", value)]))
    if isinstance(value, pa.Schema):
        return value.serialize().to_pybytes()
    raise TypeError(f"a {type(value).__qualname__} cannot be stored for a job's next attempt")


def _decoded(kind: Any, value: Any) -> Any:
    """Return the value of type `kind` for what `_encoded` returned."""
    origin = typing.get_origin(kind) or kind
    if origin is np.ndarray:
        dtype, data = value
        (scalar,) = typing.get_args(typing.get_args(kind)[1])
        if np.dtype(dtype).type is not scalar:
            raise ValueError(f"an array of {dtype}")
        return np.frombuffer(data, dtype)
    if origin in (pa.Schema, pa.DataType):
        schema = pa.ipc.read_schema(pa.py_buffer(value))
        return schema if origin is pa.Schema else schema.field(0).type
    raise TypeError(f"a {origin.__qualname__} is not stored")
