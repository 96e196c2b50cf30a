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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

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


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of an image that a row of a table names."""

    name: str | None
    path: str = ""
    fault: Fault | None = None


PlaceOf = Callable[[str | None], Place]


def place_of(name: str | None, base: str, folder: str | None) -> Place:
    """Return the place of an image."""
    if not name or "\0" in name:
        return Place(name, fault=Fault("missing", "has no path"))
    if folder is None:
        return Place(name, os.path.join(base, name))
    inner = posixpath.normpath(name.replace("\\", "/"))
    if "://" in name or inner.startswith(("/", "../")) or inner in ("..", "."):
        fault = Fault("bad-path", "is not a path below its directory: correct it")
        return Place(name, fault=fault)
    return Place(posixpath.join(folder, inner), os.path.join(base, inner))


def with_images(fields: Sequence[pa.Field]) -> Iterator[pa.Field]:
    """Yield the columns of a table, with columns of images in place of those that name them."""
    names = {field.name for field in fields}
    naming = {field.name for field in naming_fields(fields)}
    for field in fields:
        made = _column_of(field.name)
        if made is None or field.name not in naming:
            yield field
            continue
        if made in names:
            raise UsageError(
                f"column {field.name!r} of the table names images for the column {made!r}, which "
                "it has too: rename one of them in the table"
            )
        yield pa.field(made, pa.binary() if is_text(field.type) else pa.list_(pa.binary()))


def naming_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return the columns of a table that name further images, by their names and types."""
    return [
        field
        for field in fields
        if (field.name.endswith(_ONE) and is_text(field.type))
        or (
            field.name.endswith(_SEVERAL) and is_list(field.type) and is_text(field.type.value_type)
        )
    ]


def naming_columns(schema: pa.Schema, names: Collection[str]) -> dict[str, str]:
    """Return the columns of a table that name further images, by the columns of these images."""
    found = {made: name for name in names if (made := _column_of(name)) and made not in names}
    return {name: found[name] for name in schema.names if name in found}


def _column_of(name: str) -> str | None:
    for ending in (_ONE, _SEVERAL):
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending)
    return None


def text_type(column: str) -> pa.DataType:
    """Return the type as which to read a column that names images."""
    return pa.string() if column.endswith(_ONE) else pa.list_(pa.string())


def further_bytes(column: pa.Array, place: PlaceOf) -> list[int]:
    """Return the bytes of the images that each row of a column names."""
    sizes = [0] * len(column)
    for row, name in _names_in(column):
        sizes[row] += size_of(place(name).path)
    return sizes


def further_images(
    name: str, column: pa.Array, place: PlaceOf, faults: dict[int, Fault], how: Reading
) -> pa.Array:
    """Read the images that a column names."""
    named = list(_names_in(column))
    places = [place(text) for _, text in named]
    own = {at: one.fault for at, one in enumerate(places) if one.fault is not None}
    paths = [one.path for one in places]
    how = dataclasses.replace(how, needs_sha256=False)
    images = read_images(paths, list(map(size_of, paths)), own, how)
    data = pa.array([image.data for image in images.values()], pa.binary())
    for at, fault in own.items():
        row, text = named[at]
        reason = f"names {text!r} in {name}, which {fault.reason}"
        faults.setdefault(row, Fault(fault.code, reason))
    found = {at: number for number, at in enumerate(images)}
    if pa.types.is_list(column.type):
        taken = data.take(pa.array(map(found.get, range(len(named))), pa.int64()))
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        ends = pc.cumulative_sum(lengths)
        offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
        return pa.ListArray.from_arrays(offsets, taken, mask=column.is_null())
    numbers = {row: found.get(at) for at, (row, _) in enumerate(named)}
    return data.take(pa.array(map(numbers.get, range(len(column))), pa.int64()))


def _names_in(column: pa.Array) -> Iterator[tuple[int, str | None]]:
    """Yield the row and the text of each path; a text alone is no path if it is null."""
    if pa.types.is_list(column.type):
        rows = pc.list_parent_indices(column).to_pylist()
        yield from zip(rows, column.flatten().to_pylist(), strict=True)
        return
    for row, text in enumerate(column.to_pylist()):
        if text is not None:
            yield row, text


def size_of(path: str) -> int:
    """Return the bytes of a local file; 0 if they are unknown."""
    try:
        return os.stat(path).st_size if path else 0
    except (OSError, ValueError):
        return 0


def images_without_row(tree: Tree, named: Iterable[str]) -> tuple[int, str]:
    """Return the number of images that no row names, and the path of the first."""
    # Hashes, because there may be millions of paths.
    known = np.unique(np.fromiter(map(name_hash, named), np.uint64))
    count, first = 0, ""
    for found in list_tree(tree):
        if isinstance(found, str):
            continue
        name = found.name.decode("utf-8", "backslashreplace")
        hashed = np.uint64(name_hash(name))
        at = np.searchsorted(known, hashed)
        if at == len(known) or known[at] != hashed:
            count, first = count + 1, first or name
    return count, first
