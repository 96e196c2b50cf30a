"""Decode, discover and canonicalize against protobuf, on good, odd and broken bytes."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from beam_tfrecord.native.kernel_types import Found
from tests.helpers.records import framed_records
from tests.helpers.tf_example import Example, Feature
from tests.native import wire
from tests.native.strategies import (
    RELAXED,
    batches,
    by_protobuf,
    canonical_forms,
    payloads,
    run_encode,
)


def canonical_by_protobuf(payload):
    """Return the canonical bytes as protobuf gives them, without unknown fields."""
    try:
        example = Example.FromString(payload)
    except DecodeError:
        return None
    example.DiscardUnknownFields()
    return by_protobuf(example)


VARINT, SPAN, WORD = 0, 2, 5
LISTS = {
    (kind, SPAN): {(1, SPAN): None, (1, wire_type): None}
    for kind, wire_type in ((1, SPAN), (2, WORD), (3, VARINT))
}
# Which fields each message has, by number and type on the wire; None stands for values.
FIELDS = {(1, SPAN): {(1, SPAN): {(1, SPAN): None, (2, SPAN): LISTS}}}


def known_part(message, fields=FIELDS):
    """Return an Example without its unknown fields, and whether it has any, at any depth."""
    out, has_unknown = b"", False
    for field in UnknownFieldSet(Empty.FromString(message)):
        number, wire_type, data = field.field_number, field.wire_type, field.data
        tag = wire.varint(number << 3 | wire_type)
        if (number, wire_type) not in fields:
            has_unknown = True
        elif wire_type == SPAN:
            inner = fields[number, wire_type]
            data, unknown_inside = (data, False) if inner is None else known_part(data, inner)
            out += wire.field(number, data)
            has_unknown |= unknown_inside
        else:
            out += tag + (struct.pack("<I", data) if wire_type == WORD else wire.varint(data))
    return out, has_unknown


def canonical_by_walk(payload):
    """Return the form that the kernel should give; None for no Example, or with unknown fields."""
    form = canonical_by_protobuf(payload)
    return None if form is None or known_part(payload)[1] else form


def expected_hash(payload, seed):
    """Return the hash of the known part's form, or of the payload if it is no Example."""
    if canonical_by_protobuf(payload) is not None:
        # Protobuf would leave out all of a map entry that has an unknown field.
        payload = canonical_by_protobuf(known_part(payload)[0])
    return xxhash.xxh64_intdigest(payload, seed)


def hashes_of(payloads, seed):
    return native.canonical_hashes(*framed_records(payloads), seed).tolist()


ODD_BYTES = [0, 1, 4, 10, 12, 18, 26, 127, 128, 255]


def lists(kind: int) -> st.SearchStrategy[bytes]:
    """Draw the message of a list of the kind: packed, unpacked, mixed, with unknown fields."""
    varints = st.integers(-(2**63), 2**63 - 1).map(wire.varint)
    packed = {
        1: st.binary(max_size=4).map(lambda v: wire.field(1, v)),
        2: st.one_of(
            st.binary(max_size=2).map(lambda v: wire.field(1, v * 4)),
            st.binary(min_size=4, max_size=4).map(lambda v: b"\x0d" + v),
        ),
        3: st.one_of(
            st.lists(varints, max_size=3).map(lambda v: wire.field(1, b"".join(v))),
            varints.map(lambda v: b"\x08" + v),
        ),
    }[kind]
    return st.lists(st.one_of(packed, packed, UNKNOWN), max_size=3).map(b"".join)


UNKNOWN = st.sampled_from(
    [
        b"\x38\x96\x01",
        b"\x39" + b"8" * 8,
        wire.field(7, b"seven"),
        b"\x3d" + b"4" * 4,
        b"\x3b\x08\x01\x3c",
        b"\x3b\x43\x44\x3c",
    ]
)
FEATURE = st.lists(
    st.one_of(UNKNOWN, *(lists(k).map(lambda v, k=k: wire.field(k, v)) for k in (1, 2, 3))),
    max_size=3,
).map(b"".join)
# No unknown fields here: upb then drops the whole entry, the C++ and Python runtimes do not.
KEY = st.sampled_from([b"a", b"b", b"", b"\xff"]).map(lambda k: wire.field(1, k))
ENTRY = st.lists(st.one_of(KEY, FEATURE.map(lambda v: wire.field(2, v))), max_size=3).map(b"".join)
FEATURES = st.lists(st.one_of(UNKNOWN, ENTRY.map(lambda v: wire.field(1, v))), max_size=4).map(
    b"".join
)
EXAMPLE = st.lists(st.one_of(UNKNOWN, FEATURES.map(lambda v: wire.field(1, v))), max_size=3).map(
    b"".join
)


@RELAXED
@given(st.lists(EXAMPLE, max_size=4))
def test_odd_forms_become_what_protobuf_makes_of_them(examples):
    assert canonical_forms(examples) == list(map(canonical_by_walk, examples))
    assert hashes_of(examples, 5) == [expected_hash(payload, 5) for payload in examples]


@RELAXED
@given(EXAMPLE, st.randoms(use_true_random=False))
def test_broken_bytes_are_told_as_protobuf_tells_them(payload, rng):
    broken = bytearray(payload)
    for _ in range(rng.randint(1, 3)):
        if broken:
            broken[rng.randrange(len(broken))] = rng.choice(ODD_BYTES)
    broken = bytes(broken[: rng.randint(0, len(broken))] if rng.random() < 0.3 else broken)
    assert canonical_forms([broken]) == [canonical_by_walk(broken)]
    assert hashes_of([broken], 5) == [expected_hash(broken, 5)]


def test_an_unknown_field_of_a_map_entry_is_kept_and_left_out_of_the_hash():
    entry = wire.field(1, b"\x38\x05" + wire.field(1, b"x") + wire.field(2, b"\x1a\x00"))
    assert canonical_forms([wire.field(1, entry)]) == [None]
    (form,) = canonical_forms([bytes.fromhex("0a090a070a017812021a00")])
    assert hashes_of([wire.field(1, entry)], 3) == [xxhash.xxh64_intdigest(form, 3)]


@RELAXED
@given(st.lists(EXAMPLE, max_size=4))
def test_decode_and_discover_equal_protobuf(examples):
    data, starts = framed_records(examples)
    wanted = [(b"a", 1), (b"b", 3), (b"", 2), (b"never", 2)]
    found = outcome(lambda: rows_of(native.decode(data, starts, wanted)))
    assert found == outcome(lambda: decoded(examples, wanted))
    hashes = np.zeros(len(examples), np.uint64)
    # Protobuf has the features of a message in any order.
    found = outcome(lambda: sorted(native.discover(data, starts, hashes, 7).items()))
    assert found == outcome(lambda: sorted(discovered(examples).items()))
    if not found.startswith("record"):
        assert hashes.tolist() == [expected_hash(payload, 7) for payload in examples]


SCALARS = {
    1: st.binary(max_size=3),
    2: st.binary(min_size=4, max_size=4),
    3: st.integers(-300, 300).map(wire.varint),
}
NAMED = st.sampled_from([(b"a", 1), (b"b", 3), (b"", 2), (b"ab", 3), (b"\xc3\xa9", 2), (b"z", 3)])
PLAIN_ENTRY = NAMED.flatmap(
    lambda named: st.lists(SCALARS[named[1]], max_size=2).map(
        lambda values: wire.feature_entry(*named, values)
    )
)


@st.composite
def nearly_canonical(draw):
    """Draw an Example as encoders write it, at times out of order or with one byte changed."""
    entries = draw(st.lists(PLAIN_ENTRY, max_size=6))
    if draw(st.integers(0, 3)):
        entries = list({key_of(entry): entry for entry in sorted(entries, key=key_of)}.values())
    payload = bytearray(wire.field(1, b"".join(entries)))
    if not draw(st.integers(0, 3)):
        payload[draw(st.integers(0, len(payload) - 1))] = draw(st.sampled_from(ODD_BYTES))
    return bytes(payload)


def key_of(entry: bytes) -> bytes:
    """Return the name in a map entry whose sizes take one byte each."""
    return entry[4 : 4 + entry[3]]


@RELAXED
@given(st.lists(nearly_canonical(), max_size=6))
def test_records_one_after_the_other_read_as_each_alone(examples):
    canonical = [form for payload in examples for form in canonical_forms([payload])]
    assert canonical_forms(examples) == canonical
    assert hashes_of(examples, 9) == [expected_hash(payload, 9) for payload in examples]
    good = [payload for payload, form in zip(examples, canonical, strict=True) if form is not None]
    data, starts = framed_records(good)
    wanted = [(b"a", 1), (b"b", 3), (b"z", 3), (b"", 2)]
    found = outcome(lambda: rows_of(native.decode(data, starts, wanted)))
    forms = [form for form in canonical if form is not None]
    assert found == outcome(lambda: decoded(forms, wanted))


@RELAXED
@given(
    st.lists(PLAIN_ENTRY, max_size=6, unique_by=key_of).flatmap(
        lambda entries: st.tuples(st.just(entries), st.permutations(entries), st.booleans())
    )
)
def test_the_order_of_features_changes_neither_form_nor_hash(drawn):
    entries, other, is_split = drawn
    one = wire.field(1, b"".join(entries))
    # Two Features messages are one.
    two = b"".join(wire.field(1, e) for e in other) if is_split else wire.field(1, b"".join(other))
    forms = canonical_forms([one, two])
    assert forms == [wire.field(1, b"".join(sorted(entries, key=key_of)))] * 2
    assert hashes_of([one, two], 4) == [xxhash.xxh64_intdigest(forms[0], 4)] * 2


@pytest.mark.parametrize(
    ("payload", "canonical"),
    [
        # names out of order; one name twice; a size in two bytes; 1 as two bytes; -1 with bits
        # beyond the 64th; numbers packed in no bytes; numbers packed in two pieces
        ("0a0e0a050a016212000a050a01611200", "0a0e0a050a016112000a050a01621200"),
        ("0a0e0a050a016112000a050a01611200", "0a070a050a01611200"),
        ("0a8d000a0b0a016912061a040a020500", "0a0d0a0b0a016912061a040a020500"),
        ("0a0d0a0b0a016912061a040a028100", "0a0c0a0a0a016912051a030a0101"),
        (
            "0a150a130a0169120e1a0c0a0affffffffffffffffff7f",
            "0a150a130a0169120e1a0c0a0affffffffffffffffff01",
        ),
        ("0a0b0a090a016912041a020a00", "0a090a070a016912021a00"),
        ("0a0f0a0d0a016912081a060a01050a0106", "0a0d0a0b0a016912061a040a020506"),
    ],
)
def test_what_is_nearly_canonical_hashes_as_its_canonical_form(payload, canonical):
    raw = bytes.fromhex(payload)
    data, starts = framed_records([raw, raw])
    digest = xxhash.xxh64_intdigest(bytes.fromhex(canonical), 2)
    assert native.canonical_hashes(data, starts, 2).tolist() == [digest, digest]


def outcome(run):
    """Return the result as text, in which one NaN equals another, or the record at fault."""
    try:
        return repr(run())
    except ValueError as error:
        return str(error).partition(":")[0]


KINDS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}


def decoded(payloads, wanted):
    """Return what protobuf reads: for each feature the values of each record, or None."""
    columns = [[] for _ in wanted]
    for record, payload in enumerate(payloads):
        try:
            features = Example.FromString(payload).features.feature
        except DecodeError:
            raise ValueError(f"record {record}: no Example") from None
        for rows, (name, kind) in zip(columns, wanted, strict=True):
            feature = features[name.decode()] if name.decode() in features else Feature()
            found = feature.WhichOneof("kind")
            if found and KINDS[found] != kind:
                raise ValueError(f"record {record}: of another kind")
            rows.append(list(getattr(feature, found).value) if found else None)
    return columns


def discovered(payloads):
    """Return kind, records, least and most values of each feature as protobuf reads them."""
    kinds, counts = {}, {}
    for record, payload in enumerate(payloads):
        if canonical_by_walk(payload) is None:
            raise ValueError(f"record {record}: not plain")
        for name, feature in Example.FromString(payload).features.feature.items():
            lengths = counts.setdefault(name.encode(), [])
            if found := feature.WhichOneof("kind"):
                if kinds.setdefault(name.encode(), found) != found:
                    raise ValueError(f"record {record}: of another kind")
                lengths.append(len(getattr(feature, found).value))
    return {
        name: Found(KINDS[kinds[name]], len(lengths), min(lengths), max(lengths))
        if lengths
        else Found(0, 0, 0, 0)
        for name, lengths in counts.items()
    }


def rows_of(columns):
    """Return for each column of the kernel the values of each record, or None."""
    found = []
    for values, value_offsets, row_offsets, present in columns:
        values = values.tolist() if value_offsets is None else cut(values.tobytes(), value_offsets)
        rows = cut(values, row_offsets)
        found.append(
            [row if row or here else None for row, here in zip(rows, present, strict=True)]
        )
    return found


def cut(values, offsets):
    return [values[start:stop] for start, stop in pairwise(offsets.tolist())]


@RELAXED
@given(batches())
def test_encoded_rows_are_canonical_and_decode_alike(batch):
    written = run_encode(batch)
    starts = np.array(written.starts, np.int64)
    assert canonical_forms(payloads(written)) == payloads(written)
    found = native.discover(written.data, starts)
    assert found == discovered(payloads(written))
    wanted = [(name, feature.kind) for name, feature in found.items()]
    columns = rows_of(native.decode(written.data, starts, wanted))
    assert repr(columns) == repr(decoded(payloads(written), wanted))


def test_faults_name_record_and_feature():
    data, starts = framed_records([b"\x0a\x00", wire.field(1, wire.feature_entry(b"x", 1, [b"v"]))])
    with pytest.raises(ValueError, match="record 1: feature 'x' holds bytes values, not int64"):
        native.decode(data, starts, [(b"x", 3)])
    data, starts = framed_records([b"\x0a\x00", b"\x0a\x05\x00"])
    with pytest.raises(ValueError, match="record 1: not a tf"):
        native.decode(data, starts, [(b"x", 3)])
    with pytest.raises(ValueError, match="record 1: not a plain tf"):
        native.discover(data, starts)
    mixed = [wire.field(1, wire.feature_entry(b"x", k, [])) for k in (1, 3)]
    data, starts = framed_records(mixed)
    with pytest.raises(ValueError, match="record 1: feature 'x' is of another kind than before"):
        native.discover(data, starts)
    data, starts = framed_records([*mixed, b"\x0a\x05\x00"])
    with pytest.raises(ValueError, match="record 1: feature 'x' is of another kind than before"):
        native.discover(data, starts)


def test_discover_refuses_hashes_for_other_records():
    data, starts = framed_records([b"\x0a\x00"])
    with pytest.raises(ValueError, match="2 hashes for 1 records"):
        native.discover(data, starts, np.zeros(2, np.uint64), 0)
