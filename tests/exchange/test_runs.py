import json
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange.spill_files import BinCounts, count_bins, read_index
from tests.exchange.making import write_entries

ENTRIES = [
    ("a", 5, b"xx"),
    ("a", 6, b"y"),
    ("a", 300, b""),
    ("b", 5, b"zzz"),
    ("b", 2**64 - 1, b"w"),
]


def counts_of(counts):
    return list(zip(counts.bins.tolist(), counts.rows.tolist(), counts.bytes.tolist(), strict=True))


def test_the_file_is_as_documented(tmp_path):
    run = write_entries(tmp_path, ENTRIES, ["a", "b"], shift=8, name="run")
    data = Path(run.path).read_bytes()
    seal, text_bytes, magic = struct.unpack("<QQ8s", data[-24:])
    assert magic == b"BTFRUN\x00\x01"
    text = data[-24 - text_bytes : -24]
    assert json.loads(text) == {
        "shift": 8,
        "splits": [{"name": "a", "bins": 2}, {"name": "b", "bins": 2}],
        "records": 5,
        "arrays": 72,
    }
    arrays = data[-24 - text_bytes - 72 : -24 - text_bytes]
    assert seal == xxhash.xxh64_intdigest(arrays + text)
    # An entry is 8 bytes of place, 16 of framing, and the payload.
    assert struct.unpack("<4Q5q", arrays) == (0, 1, 0, 2**56 - 1, 0, 51, 75, 102, 127)
    assert data[51:59] == struct.pack("<Q", 300)


def test_counts_and_slices(tmp_path):
    run = write_entries(tmp_path, ENTRIES, ["a", "b", "unused"], shift=8, name="run")
    assert {name: counts_of(counts) for name, counts in run.counts.items()} == {
        "a": [(0, 2, 35), (1, 1, 16)],
        "b": [(0, 1, 19), (2**56 - 1, 1, 17)],
    }
    index = read_index(run.path)
    assert index.slice("a", 0, 255) == (0, 51)
    assert index.slice("a", 256, 511) == (51, 75)
    assert index.slice("a", 0, 2**64 - 1) == (0, 75)
    assert index.slice("a", 512, 2**64 - 1) == (75, 75)
    assert index.slice("b", 256, 2**64 - 1) == (102, 127)
    assert index.slice("unused", 0, 2**64 - 1) == (0, 0)


def test_a_run_without_records(tmp_path):
    run = write_entries(tmp_path, [], ["a"], shift=8, name="run")
    assert run.counts == {}
    assert read_index(run.path).slice("a", 0, 2**64 - 1) == (0, 0)


def test_every_damaged_byte_of_the_footer_is_noticed(tmp_path):
    path = Path(write_entries(tmp_path, ENTRIES, ["a", "b"], shift=8, name="run").path)
    good = path.read_bytes()
    for position in range(128, len(good)):  # after one byte of padding
        for change in (0x01, 0x0F, 0x10, 0x1D, 0x80, 0xFF):
            bad = bytearray(good)
            bad[position] ^= change
            path.write_bytes(bad)
            with pytest.raises(DataError, match="is not a complete run"):
                read_index(str(path))


def test_a_number_in_the_footer_may_become_anything(tmp_path):
    path = Path(write_entries(tmp_path, ENTRIES, ["a", "b"], shift=8, name="run").path)
    good = path.read_bytes()
    for number in (b"-2", b"99", b"2.", b"1e", b'""', b"[]", b"{}"):
        path.write_bytes(good.replace(b'"arrays": 72', b'"arrays": ' + number))
        with pytest.raises(DataError, match="is not a complete run"):
            read_index(str(path))


def test_every_cut_is_noticed(tmp_path):
    path = Path(write_entries(tmp_path, ENTRIES, ["a", "b"], shift=8, name="run").path)
    good = path.read_bytes()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(DataError, match="is not a complete run"):
            read_index(str(path))


def counts(shift, *bins):
    columns = np.array(bins, np.int64).reshape(-1, 3).T
    return BinCounts(columns[0].astype(np.uint64), columns[1], columns[2], shift)


def test_counts_of_different_bins_add_up_in_the_coarser_ones():
    fine = counts(1, (0, 1, 10), (1, 2, 20), (5, 3, 30))
    coarse = counts(2, (0, 7, 70), (9, 8, 80))
    for merged in (fine.merge(coarse), coarse.merge(fine)):
        assert counts_of(merged) == [(0, 10, 100), (2, 3, 30), (9, 8, 80)]
        assert merged.shift == 2
    assert counts_of(fine.coarsened(3)) == [(0, 3, 30), (1, 3, 30)]
    assert counts_of(fine.coarsened(1)) == counts_of(fine)


entries = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**64 - 1)), max_size=30)


@settings(deadline=None)
@given(entries, st.integers(0, 63))
def test_bins_hold_every_record_once(found, shift):
    found = sorted(found)
    splits = np.array(["abc".index(split) for split, _ in found], np.uint16)
    places = np.array([place for _, place in found], np.uint64)
    counts = count_bins(("a", "b", "c"), splits, places, np.full(len(found), 9), shift)
    expected = {}
    for split, place in found:
        of_split = expected.setdefault(split, {})
        of_split[place >> shift] = of_split.get(place >> shift, 0) + 1
    assert {name: counts_of(of) for name, of in counts.items()} == {
        name: [(number, rows, 9 * rows) for number, rows in sorted(of_split.items())]
        for name, of_split in expected.items()
    }
