from __future__ import annotations

import numpy as np
import pytest
from apache_beam.io.filebasedsink import FileBasedSink
from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord.errors import UsageError
from beam_tfrecord.format.layout import apportion, cut_bins, fill_template, make_shard_spec


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60), st.integers(1, 80))
def test_cuts_are_contiguous_whole_and_balanced(nbytes, count):
    sizes = np.array(nbytes, np.int64)
    rows = np.arange(1, len(sizes) + 1, dtype=np.int64)
    bins = np.arange(len(sizes), dtype=np.uint64) * np.uint64(7)
    cuts = cut_bins(bins, rows, sizes, count)
    covered = [number for c in cuts for number in range(c.first, c.last + 1, 7)]
    assert covered == bins.tolist()
    assert 1 <= len(cuts) <= count
    assert all(c.rows > 0 for c in cuts)
    assert sum(c.rows for c in cuts) == rows.sum()
    assert sum(c.bytes for c in cuts) == sizes.sum()
    # Either end of a range is at most half a bin from where it should be.
    assert max(c.bytes for c in cuts) <= sizes.sum() / count + sizes.max() + 1e-3


@pytest.mark.parametrize(
    ("total", "split_bytes", "counts"),
    [
        (10, {"train": 90, "test": 10}, {"train": 9, "test": 1}),
        (10, {"train": 99, "test": 1}, {"train": 9, "test": 1}),
        (100, {"train": 800, "val": 101, "test": 99}, {"train": 80, "val": 10, "test": 10}),
        (3, {"a": 1, "b": 1}, {"a": 2, "b": 1}),
        (2, {"a": 1, "b": 10**30}, {"a": 1, "b": 1}),
        (5, {"a": 10**30 + 1, "b": 10**30, "c": 1}, {"a": 2, "b": 2, "c": 1}),
        (7, {}, {}),
    ],
)
def test_shards_are_divided_by_bytes(total, split_bytes, counts):
    assert apportion(total, split_bytes) == counts


@given(
    st.dictionaries(st.text(max_size=3), st.integers(1, 10**15), min_size=1, max_size=8),
    st.integers(0, 1000),
)
def test_every_split_gets_a_shard_and_nearly_its_share(split_bytes, more):
    total = len(split_bytes) + more
    counts = apportion(total, split_bytes)
    assert list(counts) == list(split_bytes)
    assert sum(counts.values()) == total
    assert min(counts.values()) >= 1
    whole = sum(split_bytes.values())
    for name, nbytes in split_bytes.items():
        # Rounded up at most; what tiny splits get beyond their share, all others pay.
        assert counts[name] <= max(1, -(-total * nbytes // whole))


def test_counts_as_given():
    spec = make_shard_spec("train=64, test=8", None)
    assert spec.counts({"train": 5, "test": 0}) == {"train": 64}
    with pytest.raises(
        UsageError, match="split 'val' has no number of shards: --shards names 'vla', which"
    ):
        make_shard_spec("train=6,vla=2", None).check(["train", "val"])
    with pytest.raises(UsageError, match="split 'data' has no number of shards: pass --split"):
        make_shard_spec("train=6,val=2", None).check(["data"])
    with pytest.raises(UsageError, match="split 'val' has no number of shards: add it to --shards"):
        make_shard_spec("train=6", None).counts({"train": 5, "val": 5})
    assert make_shard_spec(6, None).counts({"train": 2, "test": 1}) == {"train": 4, "test": 2}
    assert make_shard_spec("6", None) == make_shard_spec(6, None)
    assert make_shard_spec({"train": 64, "test": 8}, None) == spec


@pytest.mark.parametrize(
    ("shards", "size", "message"),
    [
        ("x", None, "cannot read shards 'x': write 64 or train=64,test=8"),
        ("train=x", None, "cannot read shards 'train=x'"),
        ("a=1,a=2", None, "cannot read shards 'a=1,a=2'"),
        (0, None, "the number of shards must be at least 1, not 0"),
        ({"a": -1}, None, "the number of shards must be at least 1, not -1"),
    ],
)
def test_wrong_numbers_of_shards_are_refused(shards, size, message):
    with pytest.raises(UsageError, match=message):
        make_shard_spec(shards, size)


@pytest.mark.parametrize("template", ["-SSSSS-of-NNNNN", "", "S", "-S-NNN", "_SSof", "-NNSS"])
def test_templates_are_filled_as_beam_does(template):
    beam = FileBasedSink._template_to_format(template)
    for number, count in ((0, 1), (7, 12), (123456, 200000)):
        expected = beam % {"shard_num": number, "num_shards": count} if template else ""
        assert fill_template(template, number, count) == expected
