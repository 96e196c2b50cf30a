"""Reads tables of metadata beside images, as Hugging Face's ``ImageFolder`` has them.

A directory of images, or a folder in it, has a table ``metadata.csv``, ``metadata.jsonl`` or
``metadata.parquet`` with a row for each image. The column ``file_name`` is its path, relative to
the table. Columns such as ``x_file_name``, of further images of the row, are refused. The rules:
https://huggingface.co/docs/datasets/image_dataset#imagefolder
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from typing import NamedTuple

from beam_tfrecord.errors import UsageError
from beam_tfrecord.images import Fault

PATH_COLUMN = "file_name"
_FURTHER = ("_file_name", "_file_names")


class Place(NamedTuple):
    """The place of an image that a row of a table names."""

    name: str | None
    path: str = ""
    fault: Fault | None = None


def place_of(name: str | None, base: str, folder: str | None) -> Place:
    """Return the place of an image, which has to be below `base` if there is a `folder`."""
    if not name or "\0" in name:
        return Place(name, fault=Fault("missing", "has no path"))
    if folder is None:
        return Place(name, os.path.join(base, name))
    inner = posixpath.normpath(name.replace("\\", "/"))
    if "://" in name or inner.startswith(("/", "../")) or inner in ("..", "."):
        fault = Fault("bad-path", "is not a path below its directory: correct it")
        return Place(name, fault=fault)
    return Place(posixpath.join(folder, inner), os.path.join(base, inner))


def refuse_further_images(columns: Iterable[str]) -> None:
    """Raise `UsageError` for columns that name further images of a row."""
    for name in columns:
        if name.endswith(_FURTHER):
            raise UsageError(
                f"column {name!r} names further images, and one image of each row is read: pass "
                "--columns without it, or with it to store its text"
            )


def size_of(path: str) -> int:
    """Return the bytes of a local file; 0 if they are unknown."""
    try:
        return os.stat(path).st_size if path else 0
    except (OSError, ValueError):
        return 0
