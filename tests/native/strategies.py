"""Random batches of every type that the kernel encodes, and helpers that run the encoder."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from beam_tfrecord import native
from beam_tfrecord.native.kernel_types import Encoded
from tests.helpers.effort import examples
from tests.helpers.tf_example import Features
from tests.native import wire

# `scripts/prove/run properties` runs all the properties again with many more examples than these.
RELAXED = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=int(os.environ.get("BEAM_TFRECORD_EXAMPLES", examples(150))),
)

INT_TYPES = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()]
INT_TYPES += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOAT_TYPES = [pa.float16(), pa.float32(), pa.float64()]
TEXT_TYPES = [pa.string(), pa.large_string(), pa.string_view()]
BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)]
SCALAR_TYPES = INT_TYPES + FLOAT_TYPES + TEXT_TYPES + BINARY_TYPES
LIST_MAKERS = [pa.list_, pa.large_list, lambda item: pa.list_(item, 2)]

_BINARY_OF_TEXT = dict(zip(TEXT_TYPES, BINARY_TYPES, strict=False))


def flat_array(draw, arrow_type, size):
    """Draw an array of the type; bits are random, so NaN payloads and bad UTF-8 occur too."""
    valid = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=size, max_size=size))
    mask = np.array([not ok for ok in valid], bool)
    if pa.types.is_boolean(arrow_type):
        values = draw(st.lists(st.booleans(), min_size=size, max_size=size))
        return pa.array(values, arrow_type, mask=mask)
    if arrow_type in INT_TYPES + FLOAT_TYPES:
        width = arrow_type.bit_width // 8
        special = st.sampled_from(
            [b"\0" * 8, b"\xff" * 8, struct.pack("<d", 1e300), b"\1" + b"\0" * 7]
        )
        words = st.one_of(
            special.map(lambda w: w[-width:]), st.binary(min_size=width, max_size=width)
        )
        memory = b"".join(draw(st.lists(words, min_size=size, max_size=size)))
        bits = pa.array(valid, pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(arrow_type, size, [bits, pa.py_buffer(memory)])
    if pa.types.is_fixed_size_binary(arrow_type):
        item = st.binary(min_size=3, max_size=3)
    elif arrow_type in BINARY_TYPES:
        item = st.binary(max_size=20)
    else:
        good = st.text(max_size=20).map(str.encode)
        item = st.one_of(
            good, good, st.sampled_from([b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x82"])
        )
    values = draw(st.lists(item, min_size=size, max_size=size))
    if arrow_type not in TEXT_TYPES:
        return pa.array(values, arrow_type, mask=mask)
    binary = pa.array(values, _BINARY_OF_TEXT[arrow_type], mask=mask)
    return pa.Array.from_buffers(arrow_type, size, binary.buffers())


def list_array(draw, arrow_type, size):
    """Draw a list array whose values may hold nulls."""
    valid = draw(st.lists(st.sampled_from([True, True, False]), min_size=size, max_size=size))
    mask = pa.array([not ok for ok in valid], pa.bool_())
    if pa.types.is_fixed_size_list(arrow_type):
        values = flat_array(draw, arrow_type.value_type, 2 * size)
        return pa.FixedSizeListArray.from_arrays(values, 2, mask=mask)
    counts = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    offsets = np.cumsum([0, *counts])
    values = flat_array(draw, arrow_type.value_type, int(offsets[-1]))
    kind = pa.LargeListArray if pa.types.is_large_list(arrow_type) else pa.ListArray
    return kind.from_arrays(
        pa.array(offsets, pa.int32() if kind is pa.ListArray else pa.int64()), values, mask=mask
    )


@st.composite
def batches(draw, max_rows=12):
    """Draw a batch of any types and nulls, often a slice of a longer one."""
    rows = draw(st.integers(0, max_rows))
    names = draw(st.lists(st.text(max_size=5), max_size=4, unique=True))
    columns = []
    for _ in names:
        arrow_type = draw(st.sampled_from(SCALAR_TYPES))
        if draw(st.booleans()):
            arrow_type = draw(st.sampled_from(LIST_MAKERS))(arrow_type)
            columns.append(list_array(draw, arrow_type, rows))
        else:
            columns.append(flat_array(draw, arrow_type, rows))
    schema = pa.schema([pa.field(n, c.type) for n, c in zip(names, columns, strict=True)])
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    first = draw(st.integers(0, batch.num_rows))
    return batch.slice(first, draw(st.integers(0, batch.num_rows - first)))


def by_protobuf(example):
    """Return protobuf's bytes of the Example with the features in byte order of their names.

    Each feature is serialized alone: of two names where one begins the other, the upb runtime of
    protobuf puts the longer first, its C++ and Python runtimes the shorter.
    """
    entries = b""
    for name in sorted(example.features.feature, key=str.encode):
        one = Features(feature={name: example.features.feature[name]})
        entries += one.SerializeToString(deterministic=True)
    return wire.field(1, entries)


class Written(NamedTuple):
    """All that one call of encode gave."""

    data: bytes
    starts: list[int]
    rows: list[int]
    encoded: Encoded


def run_encode(batch, at=0, skip=None):
    """Encode behind `at` bytes of 0xEE, which must stay as they are."""
    starts, rows = np.zeros((2, batch.num_rows), np.int64)
    for doublings in itertools.count():
        out = np.full(at + (256 << doublings), 0xEE, np.uint8)
        with contextlib.suppress(BufferError):
            encoded = native.encode(batch, out, at, starts, rows, skip)
            break
    assert out[:at].tobytes() == b"\xee" * at
    count = encoded.records
    data = out[at : at + encoded.size].tobytes()
    return Written(data, starts[:count].tolist(), rows[:count].tolist(), encoded)


def payloads(written, at=0):
    """Cut the records by their lengths alone."""
    found = []
    for start in written.starts:
        (length,) = struct.unpack_from("<Q", written.data, start - at)
        found.append(written.data[start - at + 12 : start - at + 12 + length])
    return found


def canonical_forms(values):
    """Return the canonical form of each value by the kernel; None for what has none."""
    data, offsets, has_form = native.canonicalize(pa.array(values, pa.large_binary()))
    forms = [data[start:stop].tobytes() for start, stop in itertools.pairwise(offsets.tolist())]
    assert offsets[-1] == len(data)
    kept = [form for form, has in zip(forms, has_form, strict=True) if not has]
    assert kept == [value for value, has in zip(values, has_form, strict=True) if not has]
    return [form if has else None for form, has in zip(forms, has_form, strict=True)]
