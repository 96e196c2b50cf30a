"""Bounded rows in windows, and under triggers, in every step that gathers rows."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.transforms import trigger, window

import beam_tfrecord as bt
from tests.helpers.datasets import ids

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = 60
# How often an element is written: once for each window that it is in.
WINDOWS = {
    "fixed": ({"windowfn": window.FixedWindows(10)}, 1),
    "sliding": ({"windowfn": window.SlidingWindows(10, 5)}, 2),
    "sessions": ({"windowfn": window.Sessions(3)}, 1),
    "trigger": (
        {
            "windowfn": window.GlobalWindows(),
            "trigger": trigger.Repeatedly(trigger.AfterCount(7)),
            "accumulation_mode": trigger.AccumulationMode.ACCUMULATING,
        },
        1,
    ),
}


def at_time(number):
    return window.TimestampedValue({"id": number}, number)


def windowed(p, name, kind=dict):
    return (
        p
        | beam.Create(range(ROWS))
        | beam.Map(at_time).with_output_types(kind)
        | beam.WindowInto(**WINDOWS[name][0])
    )


def expected(name):
    return sorted(list(range(ROWS)) * WINDOWS[name][1])


@pytest.mark.parametrize("kind", [dict, Any], ids=["dict", "any"])
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("exchange", ["files", "runner"])
@pytest.mark.parametrize("name", WINDOWS)
def test_a_dataset_and_a_stage(tmp_path, name, kind, exchange):
    with bt.pipeline("FnApiRunner") as p:
        rows = windowed(p, name, kind)
        rows | bt.WriteToTFRecord(f"{tmp_path}/out/", exchange=exchange, shards=2)
        rows | bt.ExtractToParquet(tmp_path / "stage")
    assert sorted(ids(tmp_path / "out")) == expected(name)
    batches = bt.ReadFromParquet(tmp_path / "stage").batches()
    assert sorted(row["id"] for batch in batches for row in batch.rows()) == expected(name)


def doubled(row: dict[str, int]) -> dict[str, float]:
    return {"id": row["id"], "half": row["id"] / 2}


@pytest.mark.slow
@pytest.mark.parametrize("name", WINDOWS)
def test_every_transform(tmp_path, name):
    """Types are found, and rows mapped, gathered and split, whatever the windows are."""
    with bt.pipeline("FnApiRunner") as p:
        (
            windowed(p, name)
            | bt.BatchRows(SCHEMA)
            | "Again" >> beam.WindowInto(window.FixedWindows(10))
            | bt.MapRows(doubled)
            | bt.MapBatches(lambda data: data)
            | bt.AssignSplits({"a": 0.5, "b": 0.5})
            | bt.WriteToTFRecord(f"{tmp_path}/", shuffle=False)
        )
    assert sorted(ids(tmp_path)) == expected(name)
    manifest = bt.Manifest.load(tmp_path)
    assert set(manifest.splits) == {"a", "b"}
    assert manifest.schema.names == ("half", "id") or manifest.schema.names == ("id", "half")
