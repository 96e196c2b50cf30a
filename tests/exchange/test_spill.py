from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from beam_tfrecord.batch import Batch, Reject
from beam_tfrecord.exchange import spill as module
from beam_tfrecord.exchange.merge import Merger
from beam_tfrecord.exchange.plan import plan_merges
from beam_tfrecord.exchange.spill import RUN_BYTES, Spiller
from beam_tfrecord.exchange.spill_files import Run, merge_counts
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.layout import Layout, ShardSpec, Splits
from beam_tfrecord.rejects import merge_rejects
from beam_tfrecord.workdir.job import Job
from beam_tfrecord.workdir.target import Target
from tests.exchange.making import batch_of, payloads

HALVES = Splits((("a", 0.5), ("b", 0.5)))


def spill(
    directory: Path, layout: Layout, batches: Sequence[Batch], run_bytes: int = RUN_BYTES
) -> tuple[list[Run], Tally]:
    job = Job(Target(str(directory)), str(directory), layout=layout)
    spiller = Spiller(job, run_bytes=run_bytes)
    runs = [run for batch in batches for run in spiller.add(batch)]
    runs += spiller.end_group()
    return runs, spiller.take_tally()


def shards(directory, layout, runs):
    merger = Merger(layout, str(directory))
    return [
        payloads(piece.path)
        for windows in plan_merges(merge_counts(*(run.counts for run in runs)), layout)
        for piece in merger.merge(windows, [run.path for run in runs])
    ]


def value(payload):
    """Return a small ``x`` of an example: its last byte."""
    return payload[-1]


@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "source"])
def test_shards_do_not_depend_on_batches_or_runs(tmp_path, shuffle):
    layout = Layout(splits=HALVES, shuffle=shuffle, shards=ShardSpec(total=5))
    values = list(range(100))
    whole, _ = spill(tmp_path, layout, [batch_of(values)])
    assert len(whole) == 1
    expected = shards(tmp_path, layout, whole)
    assert len(expected) == 5
    for step in (1, 7, 30):
        parts = [batch_of(values[i : i + step], first=i) for i in range(0, 100, step)]
        runs, _ = spill(tmp_path, layout, parts, run_bytes=300)
        assert len(runs) > 3
        assert shards(tmp_path, layout, runs[::-1] if shuffle else runs) == expected


def test_shards_in_source_order_do_not_depend_on_how_full_runs_are(tmp_path):
    layout = Layout(shuffle=False, shards=ShardSpec(total=3))
    values = [i % 100 for i in range(5000)]
    whole, _ = spill(tmp_path, layout, [batch_of(values)])
    parts = [batch_of(values[i : i + 500], first=i) for i in range(0, 5000, 500)]
    runs, _ = spill(tmp_path, layout, parts, run_bytes=1)
    assert len(runs) == 10
    assert shards(tmp_path, layout, runs) == shards(tmp_path, layout, whole)


def test_many_rejects_are_not_held_until_a_run_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_REJECTS", 2)
    spiller = Spiller(Job(Target(str(tmp_path)), str(tmp_path)))
    for row in range(5):
        refused = Reject("u", row, "x", "bad-value", "m")
        assert list(spiller.add(batch_of([1]).replace(rejects=(refused,)))) == []
    assert len(list(tmp_path.glob("rejects-*"))) == 2
    assert len(list(spiller.end_group())) == 1
    tally = spiller.take_tally()
    assert [row["row"] for row in merge_rejects(tally.reject_files)] == [0, 1, 2, 3, 4]
    assert (tally.rows, tally.records, tally.rejects) == (10, 5, 5)
