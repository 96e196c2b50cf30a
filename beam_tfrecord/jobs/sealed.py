"""Values that a job keeps for its next attempt: pickled, sealed with a hash, and read with care.

A file of them may lie in a directory that others write to as well, and a plain unpickler would run
whatever it is told to. Only the package's own dataclasses and named tuples are made, and the plain
data in them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import pickle
from typing import Any

from beam_tfrecord import native
from beam_tfrecord.storage import WholeFile, read_bytes

_MAGIC = b"BTFKEPT\x01"
_HEAD_BYTES = len(_MAGIC) + 8

_PLAIN = {
    "builtins": {"frozenset", "set", "slice", "complex", "bytearray", "range"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "uuid": {"UUID"},
    "collections": {"OrderedDict"},
    "numpy": {"dtype", "ndarray"},
    # Where these are differs between the versions 1 and 2 of NumPy.
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy._core.numeric": {"_frombuffer"},
    "pyarrow.lib": {
        *("schema", "field", "type_for_alias", "binary", "timestamp", "decimal32", "decimal64"),
        *("decimal128", "decimal256", "dictionary", "struct", "map_", "list_", "large_list"),
        *("list_view", "large_list_view", "run_end_encoded", "fixed_shape_tensor", "bool8"),
        *("uuid", "json_", "opaque"),
    },
}


def save(path: str, value: Any) -> None:
    """Keep a value in a file, which need not outlast a crash of the machine: a hash seals it."""
    payload = pickle.dumps(value, protocol=5)
    with WholeFile(path, outlasts=False) as file:
        file.write(_MAGIC + native.xxh64(payload, 0).to_bytes(8, "little"))
        file.write(payload)


def load(path: str) -> Any:
    """Return what `save` kept; None where there is nothing, or nothing whole."""
    with contextlib.suppress(FileNotFoundError):
        data = read_bytes(path)
        payload = memoryview(data)[_HEAD_BYTES:]
        seal = native.xxh64(payload, 0).to_bytes(8, "little")
        if data[:_HEAD_BYTES] == _MAGIC + seal:
            # Whatever goes wrong, the work is done again: it is kept to save time alone.
            with contextlib.suppress(Exception):
                return _Reader(io.BytesIO(payload)).load()
    return None


class _Reader(pickle.Unpickler):
    """An unpickler that makes plain data only."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function that may be used.

        Raises:
            UnpicklingError: It may not.
        """
        if name in _PLAIN.get(module, ()):
            return super().find_class(module, name)
        # To import a program would run it.
        if module.startswith("beam_tfrecord.") and not module.endswith(".__main__"):
            found = getattr(importlib.import_module(module), name, None)
            if isinstance(found, type) and _is_plain(found):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def _is_plain(kind: type) -> bool:
    """Tell whether a class of ours holds values and nothing else."""
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return dataclasses.is_dataclass(kind) or is_named_tuple
