"""What the Example of a value is, read off the type contract value by value.

Nothing of the package is used here: neither its walk through types nor its kernels. Floats are
given as the bytes of a float32, so that every bit counts.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import pyarrow as pa

INT, FLOAT, BYTES = "int64_list", "float_list", "bytes_list"
Features = dict[str, tuple[str, list[Any]]]


@dataclasses.dataclass
class _Flat:
    """Values of one feature with the lengths of the lists in the outermost one, by level."""

    kind: str
    values: list[Any]
    lengths: list[list[int]]
    is_dense: bool = True


def features_of(scalar, arrow, name, store="auto"):
    """Return the features that one value of a column gives; none where it is null."""
    scalar, arrow = _bare(scalar, arrow)
    if pa.types.is_struct(arrow):
        found = {}
        for index, field in enumerate(arrow):
            below = list(scalar.values())[index] if scalar.is_valid else pa.scalar(None, field.type)
            found |= features_of(below, field.type, f"{name}/{field.name}", store)
        return found
    if not scalar.is_valid:
        return {}
    if not _is_list(arrow):
        kind, value = stored(scalar, arrow, store)
        return {name: (kind, [value])}
    found = {}
    for leaf, flat in _flat([scalar], arrow, name, store).items():
        found[leaf] = flat.kind, flat.values
        if not flat.is_dense:
            for level, lengths in enumerate(flat.lengths[1:], start=1):
                found[f"{leaf}/row_lengths_{level}"] = INT, lengths
    return found


def stored(scalar, arrow, store="auto"):
    """Return kind and stored form of one plain value."""
    types = pa.types
    if isinstance(arrow, pa.UuidType):
        return BYTES, str(scalar.as_py()).encode()
    if types.is_float64(arrow) and store == "bytes":
        return BYTES, struct.pack("<d", scalar.as_py())
    if types.is_floating(arrow):
        return FLOAT, np.array([scalar.as_py()], np.float64).astype(np.float32).tobytes()
    if types.is_temporal(arrow):
        return INT, scalar.value
    if types.is_decimal(arrow):
        if arrow.scale <= 0 and arrow.precision - arrow.scale <= 18:
            return INT, int(scalar.as_py())
        return FLOAT, np.float32(float(scalar.as_py())).tobytes()
    if types.is_integer(arrow) or types.is_boolean(arrow):
        return INT, int(scalar.as_py())
    value = scalar.as_py()
    return BYTES, value.encode() if isinstance(value, str) else value


def _bare(scalar, arrow):
    if pa.types.is_dictionary(arrow):
        return scalar.value if scalar.is_valid else scalar, arrow.value_type
    if isinstance(arrow, pa.UuidType):
        return scalar, arrow
    if isinstance(arrow, pa.BaseExtensionType):
        return scalar.value if scalar.is_valid else scalar, arrow.storage_type
    return scalar, arrow


def _is_list(arrow):
    types = pa.types
    asked = (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_map)
    return any(is_kind(arrow) for is_kind in asked)


def _flat(lists, arrow, name, store):
    """Return the leaves below lists of one level, which hold no nulls."""
    lengths = [len(one.values) for one in lists]
    items = [item for one in lists for item in one.values]
    if pa.types.is_map(arrow):
        parts = [("/key", arrow.key_type, 0), ("/value", arrow.item_type, 1)]
        found = {}
        for suffix, part_type, index in parts:
            part = [list(item.values())[index] for item in items]
            found |= _leaves(part, part_type, name + suffix, store)
    else:
        found = _leaves(items, arrow.value_type, name, store)
    for flat in found.values():
        flat.lengths.insert(0, lengths)
        flat.is_dense &= pa.types.is_fixed_size_list(arrow)
    return found


def _leaves(items, arrow, name, store):
    bare = [_bare(item, arrow)[0] for item in items]
    arrow = _bare(pa.scalar(None, arrow), arrow)[1]
    if pa.types.is_struct(arrow):
        found = {}
        for index, field in enumerate(arrow):
            of_field = [list(item.values())[index] for item in bare]
            found |= _leaves(of_field, field.type, f"{name}/{field.name}", store)
        return found
    if _is_list(arrow):
        return _flat(bare, arrow, name, store)
    kind = _kind(arrow, store)
    return {name: _Flat(kind, [stored(item, arrow, store)[1] for item in bare], [])}


def _kind(arrow, store):
    types = pa.types
    if types.is_floating(arrow):
        return BYTES if types.is_float64(arrow) and store == "bytes" else FLOAT
    if types.is_decimal(arrow):
        return INT if arrow.scale <= 0 and arrow.precision - arrow.scale <= 18 else FLOAT
    is_int = types.is_integer(arrow) or types.is_boolean(arrow) or types.is_temporal(arrow)
    return INT if is_int else BYTES
