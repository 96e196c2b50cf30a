"""CRC-32C and XXH64 against known vectors and other implementations."""

import google_crc32c
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native
from beam_tfrecord.native import _records
from tests.native.strategies import RELAXED

SIZES = [0, 1, 7, 8, 31, 32, 33, 63, 383, 384, 385, 3071, 3072, 3500, 9999]
SEEDS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("size", SIZES)
def test_every_way_agrees_at_the_edges_of_lanes_and_stripes(size):
    data = np.random.default_rng(size).bytes(size)
    crc = google_crc32c.value(data)
    assert native.crc32c(data) == _records.crc32c_portable(data) == crc
    expected = xxhash.xxh64_intdigest(data, 77)
    assert native.xxh64(data, 77) == expected


def test_masked_crc_is_the_one_in_tfrecord_files():
    # le64 of 8, as in the head of every record with a payload of eight bytes
    crc = google_crc32c.value(bytes([8, 0, 0, 0, 0, 0, 0, 0]))
    expected = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert native.masked_crc32c(bytes([8, 0, 0, 0, 0, 0, 0, 0])) == expected


@RELAXED
@given(pieces=st.lists(st.binary(max_size=80), max_size=6), seed=SEEDS)
def test_streaming_equals_one_shot(pieces, seed):
    state = native.XXH64(seed)
    whole = b""
    for piece in pieces:
        state.update(piece)
        whole += piece
        assert state.intdigest() == xxhash.xxh64_intdigest(whole, seed)


def test_hash_origins_hashes_three_words():
    rows, sub = np.array([0, -1, 2**40]), np.array([5, 6, 7])
    words = [(9, 0, 5), (9, 2**64 - 1, 6), (9, 2**40, 7)]
    expected = [
        xxhash.xxh64_intdigest(b"".join(w.to_bytes(8, "little") for w in three), 3)
        for three in words
    ]
    assert native.hash_origins(9, rows, sub, 3).tolist() == expected
    zeros = native.hash_origins(9, rows, np.zeros(3, np.int64), 3)
    assert native.hash_origins(9, rows, None, 3).tolist() == zeros.tolist()
    with pytest.raises(ValueError, match="2 sub-indices for 3 rows"):
        native.hash_origins(9, rows, sub[:2], 3)
