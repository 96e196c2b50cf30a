"""Columns as memory-mapped arrays: written once, then opened at no cost."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from beam_tfrecord.dataset.values import arrays_of, check_defaults
from beam_tfrecord.errors import DataError, UsageError

if TYPE_CHECKING:
    from beam_tfrecord.dataset.load import Dataset

# Written last: without it the files are not whole.
_MARK = "memmap.json"
_BATCH_ROWS = 65_536


def memory_mapped(
    dataset: Dataset, directory: str | os.PathLike[str], defaults: Mapping[str, Any]
) -> dict[str, npt.NDArray[Any]]:
    """Return every column as a read-only memory-mapped array, shape `[rows, …]`.

    Args:
        dataset: From `load`.
        directory: Where the files are, or will be: ``<column number>.npy``.
        defaults: What replaces missing values, by column.

    Raises:
        UsageError: Values of a column have no fixed width, or are missing without a default.
        DataError: The dataset was replaced, or another process writes other rows there.
    """
    path = os.fspath(directory)
    check_defaults(dataset.schema, defaults)
    wanted = {
        "rows": len(dataset),
        "content": dataset.content,
        "columns": list(dataset.schema.names),
        "defaults": {name: repr(value) for name, value in sorted(defaults.items())},
    }
    if (arrays := _mapped(path, wanted)) is None:
        os.makedirs(path, exist_ok=True)
        _write_columns(dataset, path, defaults, wanted)
        arrays = _mapped(path, wanted)
    if arrays is None:
        raise DataError(
            f"{path!r} was changed while it was written: give each dataset a directory of its own"
        )
    return arrays


def _mapped(path: str, wanted: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]] | None:
    """Return the columns; None where the files are not there, not whole, or of other rows."""
    try:
        arrays = {
            name: np.load(_file(path, number), mmap_mode="r")
            for number, name in enumerate(wanted["columns"])
        }
        # Looked at last: what is mapped by now stays as it is, whatever another process writes.
        with open(os.path.join(path, _MARK), encoding="utf-8") as file:
            is_same = json.load(file) == {**wanted, "files": _file_states(path, len(arrays))}
    except (OSError, ValueError):
        return None
    return arrays if is_same else None


def _file(path: str, number: int) -> str:
    return os.path.join(path, f"{number}.npy")


def _file_states(path: str, count: int) -> list[list[int]]:
    """Return size and modification time in ns of every column's file."""
    states = (os.stat(_file(path, number)) for number in range(count))
    return [[state.st_size, state.st_mtime_ns] for state in states]


def _write_columns(
    dataset: Dataset, path: str, defaults: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    # Renamed when they are whole: others may have the files mapped that these replace.
    with tempfile.TemporaryDirectory(dir=path, prefix=".part-") as temporary:
        _fill(dataset, temporary, defaults)
        mark = os.path.join(path, _MARK)
        with contextlib.suppress(FileNotFoundError):
            os.remove(mark)
        for number in range(len(wanted["columns"])):
            os.replace(_file(temporary, number), _file(path, number))
        text = json.dumps({**wanted, "files": _file_states(path, len(wanted["columns"]))})
        written = os.path.join(temporary, _MARK)
        with open(written, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(written, mark)


def _fill(dataset: Dataset, path: str, defaults: Mapping[str, Any]) -> None:
    rows, at = len(dataset), 0
    files: dict[str, npt.NDArray[Any]] = {}
    for batch in dataset.batches(_BATCH_ROWS):
        arrays = arrays_of(batch, dataset.schema, defaults)
        for number, (name, values) in enumerate(arrays.items()):
            if values.dtype == object:
                raise UsageError(
                    f"values of column {name!r} have no fixed width: leave it out with "
                    "load(columns=[…])"
                )
            if name not in files:
                shape = (rows, *values.shape[1:])
                files[name] = np.lib.format.open_memmap(
                    _file(path, number), "w+", values.dtype, shape
                )
            files[name][at : at + len(values)] = values
        at += batch.num_rows
    for values in files.values():
        values.flush()  # type: ignore[attr-defined]
    if not files:
        # No row tells a type; an empty array cannot be mapped either.
        for number, values in enumerate(dataset.numpy(defaults=defaults).values()):
            np.save(_file(path, number), values)
