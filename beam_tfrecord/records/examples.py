"""Puts serialized examples into canonical form, and finds the types of those without a schema."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.native.kernel_types import BYTES_KIND, KIND_NAMES, Int64Array, UInt64Array

_KIND_TYPES = {1: pa.binary(), 2: pa.float32(), 3: pa.int64()}


class ForeignRecord(ValueError):
    """A record that is not an example, or does not fit the records before it."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(index, reason)
        self.index, self.reason = index, reason


@dataclasses.dataclass(frozen=True)
class Discovered:
    """The kind and the value counts of one feature, found in examples that have no schema."""

    kind: int
    present: int
    least: int
    most: int
    is_text: bool | None = None
    file: str = ""

    def merge(self, other: Discovered) -> Discovered:
        """Return the counts of two parts of the data together."""
        both = (self.is_text, other.is_text)
        return Discovered(
            max(self.kind, other.kind),
            self.present + other.present,
            min(self.least, other.least),
            max(self.most, other.most),
            None if None in both else all(both),
            min(self.file, other.file),
        )


def canonical_examples(serialized: Sequence[bytes]) -> pa.Array:
    """Return serialized examples in canonical form; what has no such form stays as it is.

    Protobuf's own serialization may differ between processes. An example with unknown fields has no
    canonical form.
    """
    data, offsets, _ = native.canonicalize(pa.array(serialized, pa.large_binary()))
    return _binary(data, offsets)


def discovered_in(
    data: Any, starts: Int64Array, hashes: UInt64Array | None = None, seed: int = 0
) -> dict[str, Discovered]:
    """Return the features of framed examples, by name; `hashes` receives their canonical hashes."""
    facts = native.discover(data, starts, hashes, seed)
    return {name.decode(): Discovered(*found) for name, found in facts.items()}


def types_in(
    data: Any, starts: Int64Array, file: str, hashes: UInt64Array | None = None, seed: int = 0
) -> dict[str, Discovered]:
    """Return the features of framed examples by name, and which bytes are text.

    A feature without a kind counts as missing.
    """
    try:
        facts = discovered_in(data, starts, hashes, seed)
    except ValueError as error:
        number, _, reason = str(error).removeprefix("record ").partition(": ")
        raise ForeignRecord(int(number), reason) from None
    typed = {name: dataclasses.replace(of, file=file) for name, of in facts.items() if of.kind}
    for name, seen in typed.items():
        if seen.kind == BYTES_KIND:
            (column,) = native.decode(data, starts, [(name.encode(), BYTES_KIND)])
            is_text = _is_text(column.values, column.value_offsets)
            typed[name] = dataclasses.replace(seen, is_text=is_text)
    return typed


def _is_text(values: Any, offsets: Any) -> bool:
    try:
        _binary(values, offsets).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _binary(values: Any, offsets: Any) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def merge_discovered(
    one: Mapping[str, Discovered], other: Mapping[str, Discovered]
) -> dict[str, Discovered]:
    """Return the features of two parts of the data together."""
    merged = dict(one)
    for name, found in other.items():
        known = merged.get(name)
        if known is not None and known.kind != found.kind and known.kind and found.kind:
            raise DataError(_two_kinds(name, known, found))
        merged[name] = found if known is None else known.merge(found)
    return merged


def _two_kinds(name: str, one: Discovered, other: Discovered) -> str:
    kinds = sorted((KIND_NAMES.get(of.kind, "none"), of.file) for of in (one, other))
    if not one.file:
        listed = ", ".join(kind for kind, _ in kinds)
        return f"feature {name!r} has values of two kinds in the examples: {listed}"
    (kind, file), (other_kind, other_file) = kinds
    return (
        f"feature {name!r} is {kind} in {file} but {other_kind} in {other_file}: write these files "
        "as datasets of their own, or convert one of them with --map"
    )


def schema_of_discovered(discovered: Mapping[str, Discovered]) -> Schema:
    """Return a schema for examples; a feature with one value in each is a scalar, else a list.

    If the values were looked at, bytes that are all UTF-8 are text, and lists that all have the
    same length have a fixed size.
    """
    fields = []
    for name in sorted(discovered, key=str.encode):
        found = discovered[name]
        if found.kind:
            fields.append(pa.field(name, _type_of(found)))
    return Schema.from_arrow(pa.schema(fields))


def _type_of(found: Discovered) -> pa.DataType:
    value = pa.string() if found.is_text else _KIND_TYPES[found.kind]
    if found.least == found.most == 1:
        return value
    if found.file and found.least == found.most > 0:
        return pa.list_(value, found.most)
    return pa.list_(value)
