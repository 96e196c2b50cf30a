"""Rows become runs by either exchange: the shards that come of them are the same."""

import pytest

from beam_tfrecord.exchange import spill as module
from beam_tfrecord.exchange.spill import RUN_BYTES, BlockCutter, Spiller, sort_range
from beam_tfrecord.format.layout import Layout, ShardSpec, Splits
from beam_tfrecord.format.rejects import rejected_rows
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.rows.batch import Reject
from tests.exchange.making import batch_of, shards_of

HALVES = Splits((("a", 0.5), ("b", 0.5)))


def job_in(directory, layout):
    return Job(Target(str(directory)), str(directory), layout=layout)


def spill(directory, layout, batches, run_bytes=RUN_BYTES):
    spiller = Spiller(job_in(directory, layout), run_bytes=run_bytes)
    runs = [run for batch in batches for run in spiller.add(batch)]
    return [*runs, *spiller.end_task()]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("run_bytes", [2**26, 1000, 1])
@pytest.mark.parametrize("block_bytes", [2**24, 100])
def test_both_ways_of_the_exchange_give_the_same_shards(
    tmp_path, monkeypatch, run_bytes, block_bytes
):
    layout = Layout(splits=HALVES, shards=ShardSpec(total=4))
    batches = [batch_of([*range(i, i + 100)], first=i) for i in range(0, 1000, 100)]
    expected = shards_of(tmp_path, layout, spill(tmp_path, layout, batches))
    monkeypatch.setattr(module, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(module, "MAX_BLOCK_BYTES", block_bytes)
    cutter = BlockCutter(job_in(tmp_path, layout), range_bits=8)
    blocks = [one for batch in batches for one in cutter.add(batch)]
    blocks += cutter.end_task()
    assert cutter.take_tally().records == 1000
    by_key = {}
    for key, block in reversed(blocks):
        by_key.setdefault(key, []).append(block)
    runs = [
        run
        for (split, _), of_range in by_key.items()
        for run in sort_range(of_range, str(tmp_path), split)
    ]
    assert len(expected) == 4
    assert shards_of(tmp_path, layout, runs) == expected


def test_many_rejects_are_not_held_until_a_run_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_REJECTS", 2)
    spiller = Spiller(job_in(tmp_path, Layout()))
    for row in range(5):
        refused = Reject("u", row, "x", "bad-value", "m")
        assert list(spiller.add(batch_of([1]).replace(rejects=(refused,)))) == []
    assert len(list(tmp_path.glob("rejects-*"))) == 2
    assert len(list(spiller.end_task())) == 1
    tally = spiller.take_tally()
    assert [row["row"] for row in rejected_rows(tally.reject_files)] == [0, 1, 2, 3, 4]
    assert (tally.rows, tally.records, tally.rejects) == (10, 5, 5)
