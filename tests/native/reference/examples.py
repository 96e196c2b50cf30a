"""tf.train.Examples, in any form that protobuf accepts, back into columns or canonical bytes."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfrecord.native.values import (
    BYTES_KIND,
    FLOAT_KIND,
    INT64_KIND,
    KIND_NAMES,
    Column,
    Found,
)
from tests.native.reference import wire
from tests.native.reference.hashes import as_bytes, xxh64
from tests.native.reference.records import payload_of

_VARINT, _FIXED_64, _SPAN, _GROUP, _GROUP_END, _FIXED_32 = range(6)
_MAX_DEPTH = 100
_MAX_SPAN_BYTES = 2**31 - 1
# The last field of each message of an Example: Example, Features, map entry, Feature, list.
_LAST_FIELDS = (1, 1, 2, 3, 1)


class _MalformedError(Exception):
    """The bytes are no Example."""


class _Feature(NamedTuple):
    kind: int  # 0 where none is set
    values: list[bytes]  # raw bytes, four bytes of a float32, or a minimal varint


def canonicalize(payload):
    """Return the canonical bytes of an Example without its unknown fields; None if it is none."""
    try:
        features = parse_example(bytes(as_bytes(payload)))
    except _MalformedError:
        return None
    entries = (wire.feature_entry(name, *features[name]) for name in sorted(features))
    return wire.field(1, b"".join(entries))


def canonical_hashes(data, starts, seed):
    """Return XXH64 of each payload in canonical form, or as it is where it is no Example."""
    view, hashes = as_bytes(data), []
    for record in range(len(starts)):
        payload = bytes(payload_of(view, starts, record))
        canonical = canonicalize(payload)
        hashes.append(xxh64(payload if canonical is None else canonical, seed))
    return np.array(hashes, np.uint64)


def decode(data, starts, features):
    """Return the wanted features of the records, a column for each (name, kind).

    Kinds are 1 bytes, 2 float, 3 int64. A feature with its kind set and no value is present.

    Raises:
        ValueError: A record is no Example, or holds a feature of another kind.
    """
    if len({bytes(name) for name, _ in features}) != len(features):
        raise ValueError("a feature is asked for twice")
    for name, kind in features:
        if kind not in KIND_NAMES:
            raise ValueError(f"feature {name!r}: {kind} is no kind of feature")
    cells = [[] for _ in features]
    for record, example in enumerate(_parse_records(data, starts)):
        for column, (name, kind) in enumerate(features):
            found = example.get(bytes(name), _Feature(0, []))
            if found.kind not in (0, kind):
                raise ValueError(
                    f"record {record}: feature {bytes(name).decode()!r} holds "
                    f"{KIND_NAMES[found.kind]} values, not {KIND_NAMES[kind]}"
                )
            cells[column].append(found.values if found.kind else None)
    return [_column(kind, rows) for (_, kind), rows in zip(features, cells, strict=True)]


def discover(data, starts):
    """Return what features the records have, by name.

    Raises:
        ValueError: A record is no Example or has unknown fields, or two records have one feature
            in two kinds.
    """
    found = {}
    why = "not a plain tf.train.Example (a SequenceExample, or another message)"
    for record, example in enumerate(_parse_records(data, starts, is_example, why)):
        for name, (kind, values) in example.items():
            before = found.setdefault(name, Found(0, 0, 0, 0))
            if kind == 0:
                continue
            if before.kind not in (0, kind):
                raise ValueError(
                    f"record {record}: feature {name.decode()!r} is of another kind than before"
                )
            least = min(before.min_values, len(values)) if before.kind else len(values)
            most = max(before.max_values, len(values))
            found[name] = Found(kind, before.present_count + 1, least, most)
    return found


def is_example(payload):
    """Return whether bytes are an Example without unknown fields."""
    try:
        parse_example(bytes(as_bytes(payload)))
    except _MalformedError:
        return False
    return not _has_unknown(bytes(as_bytes(payload)), 0, 0)


def _has_unknown(message, level, kind):
    at = 0
    while at < len(message):
        number, wire_type, content, at = _take_field(message, at)
        if number > _LAST_FIELDS[level]:
            return True
        if wire_type != _SPAN:
            is_number = (kind, wire_type) in ((FLOAT_KIND, _FIXED_32), (INT64_KIND, _VARINT))
            if level < 4 or not is_number:
                return True
        elif level < 4 and (level, number) != (2, 1) and _has_unknown(content, level + 1, number):
            return True
    return False


def _parse_records(data, starts, is_good=lambda _: True, why="not a tf.train.Example"):
    view = as_bytes(data)
    for record in range(len(starts)):
        try:
            if wire.payload_at(view, int(starts[record])) is None:
                raise _MalformedError
            example = parse_example(payload := bytes(payload_of(view, starts, record)))
        except _MalformedError:
            example = None
        if example is None or not is_good(payload):
            raise ValueError(f"record {record}: {why}")
        yield example


def _column(kind, rows):
    counts = [len(row or ()) for row in rows]
    values = [value for row in rows for value in row or ()]
    present = np.array([row is not None for row in rows], np.uint8)
    row_offsets = np.cumsum([0, *counts], dtype=np.int64)
    value_offsets, numbers = None, _numbers(kind, values)
    if kind == BYTES_KIND:
        value_offsets = np.cumsum([0, *map(len, values)], dtype=np.int64)
    return Column(numbers, value_offsets, row_offsets, present)


def _numbers(kind: int, values: list[bytes]) -> npt.NDArray[Any]:
    if kind == INT64_KIND:
        unsigned = [take_varint(value, 0)[0] for value in values]
        return np.array(unsigned, np.uint64).view(np.int64)
    dtype = "<f4" if kind == FLOAT_KIND else np.uint8
    return np.frombuffer(b"".join(values), dtype).copy()


def parse_example(payload):
    """Return the features by name; of one name twice the last counts, as in any protobuf map."""
    features = {}
    for content in _spans(payload, 1):
        for entry in _spans(content, 1):
            name, feature = _parse_entry(entry)
            features.pop(name, None)
            features[name] = feature
    return features


def _parse_entry(entry):
    """Return name and feature; lists of one kind add up, one of another kind replaces them."""
    name, feature = b"", _Feature(0, [])
    for number, wire_type, content in _fields(entry):
        if (number, wire_type) == (1, _SPAN):
            name = content
            try:
                name.decode("utf-8", "strict")
            except UnicodeDecodeError:
                raise _MalformedError from None
        elif (number, wire_type) == (2, _SPAN):
            for kind, list_type, values in _fields(content):
                if kind in KIND_NAMES and list_type == _SPAN:
                    kept = feature.values if kind == feature.kind else []
                    feature = _Feature(kind, kept + _parse_list(kind, values))
    return name, feature


def _parse_list(kind, content):
    """Return the values of a BytesList, FloatList or Int64List, packed or not."""
    values = []
    for number, wire_type, piece in _fields(content):
        if number != 1:
            continue
        if kind == BYTES_KIND and wire_type == _SPAN:
            values.append(piece)
        elif kind == FLOAT_KIND and wire_type in (_SPAN, _FIXED_32):
            if len(piece) % 4:
                raise _MalformedError
            values += [piece[i : i + 4] for i in range(0, len(piece), 4)]
        elif kind == INT64_KIND and wire_type in (_SPAN, _VARINT):
            at = 0
            while at < len(piece):
                value, at = take_varint(piece, at)
                values.append(wire.varint(value))
    return values


def _spans(message, wanted):
    for number, wire_type, content in _fields(message):
        if (number, wire_type) == (wanted, _SPAN):
            yield content


def _fields(message):
    """Yield number, wire type and content of each field; groups are checked and left out."""
    at = 0
    while at < len(message):
        number, wire_type, content, at = _take_field(message, at)
        if wire_type == _GROUP_END:
            raise _MalformedError
        if wire_type == _GROUP:
            at = _skip_group(message, at, number)
        else:
            yield number, wire_type, content


def _skip_group(message, at, number):
    groups = [number]
    while groups:
        number, wire_type, _, at = _take_field(message, at)
        if wire_type == _GROUP:
            groups.append(number)
        elif wire_type == _GROUP_END and groups.pop() != number:
            raise _MalformedError
        if len(groups) > _MAX_DEPTH:
            raise _MalformedError
    return at


def _take_field(message, at):
    tag, after = take_varint(message, at)
    number, wire_type = tag >> 3, tag & 7
    if tag > 0xFFFFFFFF or after - at > 5 or number == 0 or wire_type > _FIXED_32:
        raise _MalformedError
    at = after
    if wire_type in (_GROUP, _GROUP_END):
        return number, wire_type, b"", at
    if wire_type == _VARINT:
        _, end = take_varint(message, at)
    elif wire_type == _SPAN:
        size, at = take_varint(message, at)
        if size > _MAX_SPAN_BYTES:
            raise _MalformedError
        end = at + size
    else:
        end = at + struct.calcsize("<Q" if wire_type == _FIXED_64 else "<I")
    if end > len(message):
        raise _MalformedError
    return number, wire_type, message[at:end], end


def take_varint(message, at):
    """Return the varint at a position, and the position behind it."""
    value = 0
    for i, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + i + 1
    raise _MalformedError
