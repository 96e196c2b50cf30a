"""Source order of elements of every kind: those that have an order, and those that have none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.exchange.merge_plan import plan_merges
from beam_tfrecord.format.layout import Layout, ShardSpec
from beam_tfrecord.job_state import run_files as spill_files
from beam_tfrecord.job_state.run_files import BinCounts
from tests.helpers.datasets import ids, sample_table, write_parquet
from tests.whole.combinations import ELEMENTS, even_batch

IN_MEMORY = ("FnApiRunner", [])


def write(elements: Iterable[Any], path: Path, mode: tuple[str, list[str]], **options: Any) -> None:
    with bt.pipeline(mode[0], options=mode[1]) as p:
        p | beam.Create(elements, reshuffle=False) | bt.WriteToTFRecord(f"{path}/", **options)


@pytest.mark.slow_after(1)
@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize("kind", ["dict", "NamedTuple", "Row", "Example", "bytes"])
@pytest.mark.parametrize("rows", [4, 0])
def test_elements_without_an_order_are_all_there(tmp_path, kind, rows):
    row = {"x": 0.5, "name": "a", "part": "b"}
    elements = [ELEMENTS[kind]({"id": number, **row}) for number in range(rows)]
    write(elements, tmp_path, IN_MEMORY, shuffle=False, shards=2)
    assert sorted(ids(tmp_path)) == list(range(rows))
    manifest = bt.Manifest.load(tmp_path)
    assert len(manifest.shards) == min(rows, 2)
    if rows:
        assert (manifest.order, manifest.place) == ("source", "bytes")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["multi_threading", "multi_processing"])
def test_every_local_mode_gives_them_one_order(tmp_path, mode):
    rows = [{"id": number} for number in range(1000)]
    options = {"shuffle": False, "splits": {"a": 0.5, "b": 0.5}, "compression_type": "gzip"}
    write(rows[::-1], tmp_path / "here", IN_MEMORY, **options)
    workers = [f"--direct_running_mode={mode}", "--direct_num_workers=2"]
    write(rows, tmp_path / "there", ("direct", workers), **options)
    assert sorted(ids(tmp_path / "there")) == list(range(1000))
    assert ids(tmp_path / "there") == ids(tmp_path / "here")


def twice(data: pa.RecordBatch) -> pa.RecordBatch:
    return data.take(pa.array(np.repeat(np.arange(data.num_rows), 2)))


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("function", [even_batch, twice])
@pytest.mark.parametrize("batch_rows", [7, 1000])
def test_a_batch_function_that_keeps_no_rows_keeps_the_order(tmp_path, function, batch_rows):
    parquet = write_parquet(tmp_path / "in", sample_table(600), files=2)
    with bt.pipeline("FnApiRunner") as p:
        (
            p
            | bt.ReadFromParquet(parquet, batch_rows=batch_rows)
            | bt.MapBatches(function, keeps_rows=False)
            | bt.WriteToTFRecord(f"{tmp_path / 'out'}/", shuffle=False, shards=3)
        )
    expected = {even_batch: range(0, 600, 2), twice: [i // 2 for i in range(1200)]}[function]
    assert ids(tmp_path / "out") == list(expected)
    manifest = bt.Manifest.load(tmp_path / "out")
    assert manifest.place == "bytes"
    assert len(manifest.shards) == 3


def places(count, seed=0):
    found = np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)
    # The ends of the range are where an overflow would show.
    return np.unique(np.concatenate([found, np.array([0, 2**64 - 1], np.uint64)]))


@pytest.mark.parametrize("shift", [0, 3, 10])
def test_sections_cover_places_of_all_64_bits(shift):
    found = places(500)
    bins = np.unique(found >> np.uint64(shift))
    ones = np.ones(len(bins), np.int64)
    layout = Layout(shuffle=False, shards=ShardSpec(total=7))
    planned = plan_merges({"data": BinCounts(bins, ones, 10 * ones, shift)}, layout)
    sections = [section for task in planned for section in task]
    assert len(sections) == 7
    assert sum(section.records or 0 for section in sections) == len(bins)
    covered = [
        sum(section.first_key <= place <= section.last_key for place in found.tolist())
        for section in sections
    ]
    assert sum(covered) == len(found)
    assert [section.bytes for section in sections] == [10 * (w.records or 0) for w in sections]


def test_many_bins_are_joined_whatever_the_order_of_merging(monkeypatch):
    monkeypatch.setattr(spill_files, "MOST_BINS", 100)
    runs = []
    for seed in range(4):
        bins = places(200, seed)
        ones = np.ones(len(bins), np.int64)
        runs.append(BinCounts(bins, ones, 3 * ones, 0))
    merged = []
    for order in itertools.permutations(runs):
        total = order[0]
        for run in order[1:]:
            total = total.merge(run)
        merged.append((total.shift, total.bins.tolist(), total.rows.tolist()))
        assert total.bytes.sum() == 3 * sum(len(run.bins) for run in runs)
    assert all(one == merged[0] for one in merged)
    assert 50 < len(merged[0][1]) <= 100
