"""Lists of every Arrow layout as offsets and values, and encodings of values undone."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Layer(NamedTuple):
    """One level of lists: int64 offsets `[n + 1]` into the values, and which lists are null."""

    offsets: Int64Array
    missing: BoolArray | None


def bare_array(array: pa.Array) -> pa.Array:
    """Return `array` without dictionary or run-end encoding."""
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def missing_of(array: pa.Array) -> BoolArray | None:
    """Return which values of `array` are null; None where none is."""
    if not array.null_count:
        return None
    missing: BoolArray = pc.is_null(array).to_numpy(zero_copy_only=False)
    return missing


def null_positions(array: pa.Array) -> Int64Array:
    """Return the indices of the nulls of `array`."""
    return np.flatnonzero(pc.is_null(array).to_numpy(zero_copy_only=False))


def open_list(array: pa.Array) -> tuple[Layer, pa.Array]:
    """Return the lists of an array, and their values without what a slice leaves out."""
    missing = missing_of(array)
    if pa.types.is_list_view(array.type) or pa.types.is_large_list_view(array.type):
        return _open_list_view(array, missing)
    if pa.types.is_fixed_size_list(array.type):
        size, rows = array.type.list_size, len(array)
        values = array.values.slice(array.offset * size, rows * size)
        return Layer(np.arange(rows + 1, dtype=np.int64) * size, missing), values
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    return Layer(offsets - offsets[0], missing), values


def _open_list_view(array: pa.Array, missing: BoolArray | None) -> tuple[Layer, pa.Array]:
    sizes = array.sizes.to_numpy().astype(np.int64)
    if missing is not None:
        sizes[missing] = 0
    first = array.offsets.to_numpy().astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    lists = np.flatnonzero(sizes)
    if not len(lists):
        return Layer(offsets, missing), array.values.slice(0, 0)
    # Views may overlap or stand in any order; mostly they follow one another.
    start = first[lists[0]]
    if np.array_equal(first[lists], start + offsets[lists]):
        return Layer(offsets, missing), array.values.slice(start, offsets[-1])
    places = np.repeat(first - offsets[:-1], sizes) + np.arange(offsets[-1])
    return Layer(offsets, missing), take_values(array.values, pa.array(places))


def take_values(values: pa.Array, places: pa.Array) -> pa.Array:
    """Return the values at `places`, null where a place is."""
    try:
        return values.take(places)
    except pa.ArrowNotImplementedError:
        # Arrow takes no views, nor anything they lie in, but it joins slices.
        pass
    wanted = pc.fill_null(places, -1).to_numpy()
    if not len(wanted):
        return values.slice(0, 0)
    follows = (np.diff(wanted) == 1) & (wanted[:-1] >= 0)
    cuts = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(wanted)]
    return pa.concat_arrays(
        pa.nulls(1, values.type) if wanted[start] < 0 else values.slice(wanted[start], stop - start)
        for start, stop in itertools.pairwise(cuts)
    )


def open_map(array: pa.Array) -> tuple[Layer, pa.Array, pa.Array]:
    """Return the lists of a map array, its keys and its values."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    first, count = offsets[0], offsets[-1] - offsets[0]
    layer = Layer(offsets - first, missing_of(array))
    return layer, array.keys.slice(first, count), array.items.slice(first, count)


def make_list(layer: Layer, values: pa.Array) -> pa.Array:
    """Build a large list array from offsets and values."""
    mask = None if layer.missing is None else pa.array(layer.missing)
    return pa.LargeListArray.from_arrays(pa.array(layer.offsets), values, mask=mask)
