"""Reads tables of metadata beside images, as Hugging Face's ``ImageFolder`` has them.

A directory of images, or a folder in it, has a table ``metadata.csv``, ``metadata.jsonl`` or
``metadata.parquet`` with a row for each image. The column ``file_name`` is its path, relative to
the table. A column ``x_file_name`` names a further image of the row, and ``x_file_names`` a list of
them: both become the column ``x``. The rules:
https://huggingface.co/docs/datasets/image_dataset#imagefolder
"""

from __future__ import annotations

import dataclasses
import os
import posixpath
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_list
from beam_tfrecord.hashes import name_hash
from beam_tfrecord.images import Fault
from beam_tfrecord.sources.images.labels import is_text
from beam_tfrecord.sources.images.listing import Tree, list_tree
from beam_tfrecord.sources.images.read import Reading, read_images

PATH_COLUMN = "file_name"
_ONE, _SEVERAL = "_file_name", "_file_names"
_NAMING_KEY = b"beam_tfrecord.named_by"


class Place(NamedTuple):
    """The place of an image that a row of a table names."""

    name: str | None
    path: str = ""
    fault: Fault | None = None


PlaceOf = Callable[[str | None], Place]


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


def images_named_in(fields: Iterable[pa.Field]) -> dict[str, pa.Field]:
    """Return the columns of images that columns of a table name, by the names of these."""
    found = {}
    for field in fields:
        has_lists = is_list(field.type)
        ending = _SEVERAL if has_lists else _ONE
        made, kind = field.name.removesuffix(ending), field.type
        if made not in ("", field.name) and is_text(kind.value_type if has_lists else kind):
            images = pa.list_(pa.binary()) if has_lists else pa.binary()
            found[field.name] = pa.field(made, images, metadata={_NAMING_KEY: field.name})
    return found


def with_images(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Return the columns of a table, with columns of images in place of those that name them."""
    named = images_named_in(fields)
    for name, made in named.items():
        if made.name in {field.name for field in fields}:
            raise UsageError(
                f"column {name!r} of the table names images for the column {made.name!r}, which "
                "it has too: rename one of them in the table"
            )
    return [named.get(field.name, field) for field in fields]


def naming_column(field: pa.Field) -> str | None:
    """Return the column of the table that names the images of a column; None for other columns."""
    name = (field.metadata or {}).get(_NAMING_KEY)
    return None if name is None else name.decode()


def as_read(field: pa.Field) -> pa.Field:
    """Return a column as the source of the rows reads it: a column of images as their paths."""
    name = naming_column(field)
    if name is None:
        return field
    return pa.field(name, pa.list_(pa.string()) if is_list(field.type) else pa.string())


def further_images(
    name: str, named: pa.Array, place: PlaceOf, faults: dict[int, Fault], how: Reading
) -> pa.Array:
    """Read the images that a column names; only a null outside of a list names none."""
    has_lists = pa.types.is_list(named.type)
    rows = pc.list_parent_indices(named).to_pylist() if has_lists else range(len(named))
    texts = (named.flatten() if has_lists else named).to_pylist()
    wanted = [at for at, text in enumerate(texts) if has_lists or text is not None]
    places = [place(texts[at]) for at in wanted]
    paths = [one.path for one in places]
    own = {index: one.fault for index, one in enumerate(places) if one.fault is not None}
    how = dataclasses.replace(how, needs_sha256=False)
    images = read_images(paths, list(map(size_of, paths)), own, how)
    for index, fault in own.items():
        at = wanted[index]
        reason = f"names {texts[at]!r} in {name}, which {fault.reason}"
        faults.setdefault(rows[at], Fault(fault.code, reason))
    contents: list[bytes | None] = [None] * len(texts)
    for index, image in images.items():
        contents[wanted[index]] = image.data
    if not has_lists:
        return pa.array(contents, pa.binary())
    lengths = pc.fill_null(pc.list_value_length(named), 0).to_numpy()
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.array(contents, pa.binary()), mask=named.is_null())


def size_of(path: str) -> int:
    """Return the bytes of a local file; 0 if they are unknown."""
    try:
        return os.stat(path).st_size if path else 0
    except (OSError, ValueError):
        return 0


def images_without_row(tree: Tree, named: Iterable[str]) -> tuple[int, str]:
    """Return the number of images that no row names, and the path of the first."""
    # Hashes, because there may be millions of paths.
    known = set(map(name_hash, named))
    count, first = 0, ""
    for found in list_tree(tree):
        if not isinstance(found, str) and name_hash(found.name) not in known:
            count, first = count + 1, first or found.name
    return count, first
