"""Slices merged in small steps: the same order as all at once, and damage that is told."""

import itertools
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange import merge
from beam_tfrecord.exchange.merge import Slice, merged_entries
from tests.exchange.making import write_entries
from tests.helpers.effort import examples

# Few places, so that many records have the same one; payloads beyond a step of 40 bytes.
entry = st.tuples(st.just("a"), st.integers(0, 4), st.binary(max_size=60))
many_runs = st.lists(st.lists(entry, min_size=1, max_size=20), min_size=1, max_size=5)


def entries_in(lot):
    """Return place and payload of every entry of a lot."""
    data = bytes(lot)
    found, at = [], 0
    while at < len(data):
        place, length = struct.unpack_from("<QQ", data, at)
        found.append((place, data[at + 20 : at + 20 + length]))
        at += 24 + length
    return found


@settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(runs=many_runs)
def test_lots_are_all_entries_and_do_not_overlap(tmp_path_factory, runs):
    directory = tmp_path_factory.mktemp("runs")
    written = [
        write_entries(directory, entries, ["a"], shift=0, name=f"run-{number}")
        for number, entries in enumerate(runs)
    ]
    slices = [
        Slice(run.path, 0, sum(24 + len(payload) for _, _, payload in entries))
        for run, entries in zip(written, runs, strict=True)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "STEP_BYTES", 40)
        found = [entries_in(lot) for lot in merged_entries(slices, by_bytes=True)]
    together = sorted((place, payload) for run in runs for _, place, payload in run)
    assert sorted(one for lot in found for one in lot) == together
    for before, after in itertools.pairwise(found):
        last, first = max(before), min(after)
        assert last[0] < first[0] or last <= first


def test_what_is_held_does_not_grow_with_the_slices(tmp_path):
    entries = [("a", place << 40, b"x" * 100) for place in range(40_000)]
    runs = [
        write_entries(tmp_path, entries[number::2], ["a"], shift=48, name=f"run-{number}")
        for number in range(2)
    ]
    slices = [Slice(run.path, 0, 20_000 * 124) for run in runs]
    sizes = [len(lot) for lot in merged_entries(slices, by_bytes=True)]
    assert sum(sizes) == 40_000 * 124
    assert max(sizes) <= 2 * 2 * 2**20


def test_a_torn_slice_is_told(tmp_path):
    run = write_entries(tmp_path, [("a", 1, b"abc"), ("a", 2, b"de")], ["a"], shift=0, name="run")
    with pytest.raises(DataError, match="is damaged: it ends too early"):
        list(merged_entries([Slice(run.path, 0, 50)], by_bytes=True))
