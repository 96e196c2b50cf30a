from __future__ import annotations

from pathlib import Path

import pytest

from beam_tfrecord.exchange import spill
from beam_tfrecord.exchange.merge import Merger
from beam_tfrecord.exchange.plan import plan_merges
from beam_tfrecord.exchange.spill import BlockCutter, Spiller, sort_range
from beam_tfrecord.exchange.spill_files import merge_counts
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.layout import Layout, ShardSpec, Splits
from beam_tfrecord.workdir.job import Job
from beam_tfrecord.workdir.target import Target
from tests.exchange.making import batch_of, payloads

LAYOUT = Layout(splits=Splits((("a", 0.5), ("b", 0.5))), shards=ShardSpec(total=4))
BATCHES = [batch_of([*range(i, i + 100)], first=i) for i in range(0, 1000, 100)]
Key = tuple[str, int]


def job_in(directory):
    return Job(Target(str(directory)), str(directory), layout=LAYOUT)


def cut(directory: Path) -> tuple[list[tuple[Key, bytes]], Tally]:
    cutter = BlockCutter(job_in(directory))
    blocks = [one for batch in BATCHES for one in cutter.add(batch)]
    blocks += cutter.end_group()
    return blocks, cutter.take_tally()


def sort(directory, blocks):
    by_key = {}
    for key, block in blocks:
        by_key.setdefault(key, []).append(block)
    return [
        run
        for (split, _), of_range in by_key.items()
        for run in sort_range(of_range, str(directory), split)
    ]


def shards(directory, runs):
    merger = Merger(LAYOUT, str(directory))
    return [
        payloads(piece.path)
        for windows in plan_merges(merge_counts(*(run.counts for run in runs)), LAYOUT)
        for piece in merger.merge(windows, [run.path for run in runs])
    ]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("run_bytes", [2**26, 1000, 1])
@pytest.mark.parametrize("block_bytes", [2**24, 100])
def test_both_ways_of_the_exchange_give_the_same_shards(
    tmp_path, monkeypatch, run_bytes, block_bytes
):
    spiller = Spiller(job_in(tmp_path))
    runs = [run for batch in BATCHES for run in spiller.add(batch)]
    expected = shards(tmp_path, [*runs, *spiller.end_group()])
    monkeypatch.setattr(spill, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(spill, "MAX_BLOCK_BYTES", block_bytes)
    blocks, tally = cut(tmp_path)
    assert (tally.rows, tally.records) == (1000, 1000)
    assert len(expected) == 4
    assert shards(tmp_path, sort(tmp_path, blocks[::-1])) == expected
