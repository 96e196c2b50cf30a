"""`fitting_records` and `find_frame`: cases written out, and protobuf."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from beam_tfrecord.native.kernel_types import BYTES_KIND, FLOAT_KIND, INT64_KIND, FitRule
from tests.helpers.records import framed, framed_records
from tests.helpers.tf_example import Example
from tests.native import wire
from tests.native.strategies import RELAXED, canonical_forms

# Canonical: {"i": int64 5}, {"s": bytes "é"}, {"f": float 1.5}; and both of the first.
I5 = bytes.fromhex("0a0c0a0a0a016912051a030a0105")
S = bytes.fromhex("0a0d0a0b0a017312060a040a02c3a9")
BOTH = bytes.fromhex("0a19") + I5[2:] + S[2:]
INT, TEXT = FitRule(b"i", INT64_KIND), FitRule(b"s", BYTES_KIND)
RULES = [FitRule(b"f", FLOAT_KIND), INT, TEXT]


def test_records_are_counted_up_to_the_first_that_is_not_sure():
    data, starts = framed_records([I5, BOTH, S, b"x", I5])
    assert native.fitting_records(data, starts, RULES) == 3
    assert native.fitting_records(data, starts[:2], RULES) == 2
    assert native.fitting_records(data, starts[:0], RULES) == 0
    assert native.fitting_records(data, np.array([0, len(data)], np.int64), RULES) == 1


NAMES = [b"", b"a", b"ab", b"abcdefgh", b"abcdefghi", b"b", "é".encode(), b"x" * 130]
LOWS, HIGHS = st.sampled_from([-(2**63), -1, 0]), st.sampled_from([0, 1, 127, 2**63 - 1])


@st.composite
def rule_sets(draw):
    names = sorted(draw(st.lists(st.sampled_from(NAMES), unique=True)))
    return [
        FitRule(
            name=name,
            kind=draw(st.sampled_from([1, 2, 3])),
            required=draw(st.integers(0, 5)) == 0,
            min_values=draw(st.sampled_from([0, 0, 1])),
            max_values=draw(st.sampled_from([2**63 - 1, 1, 2])),
            low=draw(LOWS),
            high=draw(HIGHS),
            is_text=draw(st.booleans()),
            value_bytes=draw(st.sampled_from([-1, -1, 0, 2])),
        )
        for name in names
    ]


@st.composite
def examples_of(draw, rules):
    """Draw canonical examples that mostly are as the rules say, some with a byte changed."""
    entries = b""
    for rule in rules:
        if draw(st.integers(0, 3)) == 0:
            continue
        if rule.kind == INT64_KIND:
            numbers = st.integers(max(rule.low, -3), min(rule.high, 200)) | st.integers(
                -(2**63), 2**63 - 1
            )
            values = draw(st.lists(numbers.map(lambda x: wire.varint(x % 2**64)), max_size=3))
        elif rule.kind == FLOAT_KIND:
            values = draw(st.lists(st.binary(min_size=4, max_size=4), max_size=3))
        else:
            values = draw(
                st.lists(st.sampled_from([b"", b"ab", b"\xff\xff", b"y" * 140]), max_size=2)
            )
        entries += wire.feature_entry(rule.name, rule.kind, values)
    payload = bytearray(wire.field(1, entries))
    if draw(st.integers(0, 3)) == 0:
        payload[draw(st.integers(0, len(payload) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(payload)


def fits(payload, rules):
    """Return what protobuf and the rules say of a record that the kernel calls canonical."""
    if canonical_forms([payload]) != [payload]:
        return False
    features = Example.FromString(payload).features.feature
    of_name = {rule.name.decode(): rule for rule in rules}
    required = {name for name, rule in of_name.items() if rule.required}
    if not required <= set(features) <= set(of_name):
        return False
    return all(feature_fits(feature, of_name[name]) for name, feature in features.items())


def feature_fits(feature, rule):
    kinds = {"bytes_list": BYTES_KIND, "float_list": FLOAT_KIND, "int64_list": INT64_KIND}
    kind = feature.WhichOneof("kind")
    if kinds.get(kind) != rule.kind:
        return False
    values = getattr(feature, kind).value
    if not rule.min_values <= len(values) <= rule.max_values:
        return False
    if rule.kind == INT64_KIND:
        return all(rule.low <= value <= rule.high for value in values)
    return rule.kind == FLOAT_KIND or all(
        rule.value_bytes in (-1, len(value))
        and not (rule.is_text and "\ufffd" in value.decode(errors="replace"))
        for value in values
    )


@RELAXED
@given(st.data())
def test_the_kernel_and_protobuf_agree(data):
    rules = data.draw(rule_sets())
    payloads = data.draw(st.lists(examples_of(rules), max_size=4))
    framed_bytes, starts = framed_records(payloads)
    fitting = [fits(payload, rules) for payload in payloads]
    expected = [*fitting, False].index(False)
    assert native.fitting_records(framed_bytes, starts, rules) == expected


def test_the_next_record_is_found_behind_anything():
    data = b"junk" + framed(b"abc") + b"\0" * 20 + framed(b"")
    assert [native.find_frame(data, start) for start in (0, 4, 5, 43, 44, 99)] == [
        *(4, 4, 43, 43, len(data), len(data))
    ]
    broken = bytearray(data)
    broken[4 + 12] ^= 1
    assert native.find_frame(bytes(broken), 0) == 43


@RELAXED
@given(st.binary(max_size=60), st.binary(max_size=5), st.integers(0, 70))
def test_the_record_that_is_found_is_the_next_that_is_whole(junk, payload, start):
    data = junk + framed(payload) + junk[::-1]
    whole = (at for at in range(start, len(data)) if len(native.scan_frames(data[at:]).starts))
    assert native.find_frame(data, start) == next(whole, len(data))
