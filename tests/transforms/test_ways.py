"""Rows of several readers, or of several mappings of one, in one dataset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.transforms.graph import MAX_STEP_PATHS, step_paths_to
from beam_tfrecord.transforms.reading import ReadBatches
from tests.helpers.datasets import read_examples, shard_hashes

ROWS = 500
SCHEMA = pa.schema([("from", pa.string()), ("row", pa.int64())])

Build = Callable[[beam.Pipeline, Path], Sequence[beam.PCollection]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return a directory of directories, each with a file of the same name."""
    directory = tmp_path_factory.mktemp("inputs")
    for name in ("x", "y"):
        (directory / name).mkdir()
        lines = "".join(f"{name},{row}\n" for row in range(ROWS))
        (directory / name / "a.csv").write_text(f"from,row\n{lines}")
    return directory


def read(p, inputs, name, label=None):
    return p | (label or name) >> bt.ReadFromCsv(str(inputs / name / "a.csv"))


def moved(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "from": "m"}


def batch_moved(data: pa.RecordBatch) -> pa.RecordBatch:
    return data.set_column(0, "from", pa.array(["m"] * data.num_rows))


def two_readers(p, inputs):
    return read(p, inputs, "x"), read(p, inputs, "y")


def applied_in_another_order(p, inputs):
    y = read(p, inputs, "y")
    return read(p, inputs, "x"), y


def one_input_twice(p, inputs):
    return read(p, inputs, "x"), read(p, inputs, "x", "again")


def a_row_function(p, inputs):
    x = read(p, inputs, "x")
    return x, x | bt.MapRows(moved)


def a_batch_function(p, inputs):
    x = read(p, inputs, "x")
    return x, x | bt.MapBatches(batch_moved)


def flattened_before(p, inputs):
    both = two_readers(p, inputs) | "First" >> beam.Flatten()
    return (both | bt.MapRows(moved, schema=SCHEMA), read(p, inputs, "x", "again"))


def rows_of_other_code(p, inputs):
    rows = p | beam.Create([{"from": "r", "row": row} for row in range(ROWS)])
    return rows | bt.BatchRows(SCHEMA), read(p, inputs, "x")


def given(p, name, rows):
    """Return batches that come as a side input of other code."""
    return (
        p
        | f"Begin{name}" >> beam.Create([0])
        | f"Give{name}"
        >> beam.FlatMap(lambda _, them: list(them), beam.pvalue.AsIter(rows)).with_output_types(
            bt.Batch
        )
    )


def side_inputs(p, inputs):
    return tuple(given(p, name, read(p, inputs, name)) for name in ("x", "y"))


def side_inputs_of_both(p, inputs):
    both = two_readers(p, inputs) | "First" >> beam.Flatten()
    moved_too = given(p, "both", both) | bt.MapBatches(batch_moved)
    return moved_too, read(p, inputs, "x", "again")


BUILDS = (
    two_readers,
    applied_in_another_order,
    one_input_twice,
    a_row_function,
    a_batch_function,
    flattened_before,
    rows_of_other_code,
    side_inputs,
    side_inputs_of_both,
)


def write(build, inputs, out, **options):
    with bt.pipeline("FnApiRunner") as p:
        build(p, inputs) | beam.Flatten() | bt.WriteToTFRecord(f"{out}/", **options)
    return [
        (
            example.features.feature["from"].bytes_list.value[0].decode(),
            example.features.feature["row"].int64_list.value[0],
        )
        for example in read_examples(out)
    ]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("build", BUILDS)
def test_inputs_are_shuffled_apart(inputs, tmp_path, build):
    found = write(build, inputs, tmp_path)
    copies = len(found) // ROWS
    assert sorted(row for _, row in found) == sorted(list(range(ROWS)) * copies)
    adjacent = sum(one[1] == other[1] for one, other in itertools.pairwise(found))
    # Expected of independent orders: copies - 1; a common order would give nearly all rows.
    assert adjacent < 15


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS)
def test_source_order_keeps_inputs_apart(inputs, tmp_path, build):
    found = write(build, inputs, tmp_path, shuffle=False, shards=3)
    parts = [found[at : at + ROWS] for at in range(0, len(found), ROWS)]
    for part in parts:
        assert len({name for name, _ in part}) == 1
        numbers = [row for _, row in part]
        assert sorted(numbers) == list(range(ROWS))
        if part[0][0] != "r":
            assert numbers == list(range(ROWS))
    first = [part[0][0] for part in parts]
    assert (
        first
        == {
            two_readers: ["x", "y"],
            applied_in_another_order: ["x", "y"],
            one_input_twice: ["x", "x"],
            a_row_function: ["x", "m"],
            a_batch_function: ["x", "m"],
            flattened_before: ["m", "m", "x"],
            rows_of_other_code: ["r", "x"],
            side_inputs: ["x", "y"],
            side_inputs_of_both: ["m", "m", "x"],
        }[build]
    )


@pytest.mark.slow
def test_the_order_of_application_leaves_no_trace(inputs, tmp_path):
    write(two_readers, inputs, tmp_path / "a")
    write(applied_in_another_order, inputs, tmp_path / "b")
    assert shard_hashes(tmp_path / "a") == shard_hashes(tmp_path / "b")


@pytest.mark.slow
def test_a_reader_alone_is_written_as_ever(inputs, tmp_path):
    """Neither another reader of the pipeline nor the label of this one changes a dataset."""
    bt.write(inputs / "x", tmp_path / "a")
    with bt.pipeline("FnApiRunner") as p:
        read(p, inputs, "y") | "Y" >> bt.WriteToTFRecord(f"{tmp_path / 'y'}/")
        read(p, inputs, "x", "label") | "X" >> bt.WriteToTFRecord(f"{tmp_path / 'b'}/")
    a, b = shard_hashes(tmp_path / "a"), shard_hashes(tmp_path / "b")
    shard = "data-00000-of-00001.tfrecord"
    assert a[shard] == b[shard]


def test_a_stage_keeps_inputs_apart(inputs, tmp_path):
    with bt.pipeline("FnApiRunner") as p:
        two_readers(p, inputs) | beam.Flatten() | bt.ExtractToParquet(tmp_path)
    rows = [row for batch in bt.ReadFromParquet(str(tmp_path)).batches() for row in batch.rows()]
    assert [(row["from"], row["row"]) for row in rows] == [
        (name, row) for name in ("x", "y") for row in range(ROWS)
    ]


def test_ways_in_the_graph(inputs):
    p = bt.pipeline("FnApiRunner")
    x = read(p, inputs, "x")
    assert step_paths_to(x) == (("x",),)
    mapped = x | "Map" >> bt.MapRows(moved, schema=SCHEMA)
    both = (mapped, x, x) | beam.Flatten() | beam.Reshuffle()
    assert step_paths_to(both) == (("x", "Map"), ("x",))
    split = both | "Split" >> bt.AssignSplits({"a": 0.5, "b": 0.5})
    assert step_paths_to(split) == (("x", "Map", "Split"), ("x", "Split"))
    assert step_paths_to(p | beam.Create([1])) == ((),)


def test_side_inputs_of_our_steps_give_no_rows(inputs):
    """Types that are found in a pass of their own travel so."""
    p = bt.pipeline("FnApiRunner")
    mapped = read(p, inputs, "x") | "Map" >> bt.MapRows(moved)
    assert step_paths_to(mapped) == (("x", "Map"),)
    told = mapped | beam.Map(lambda batch, _: batch, beam.pvalue.AsIter(read(p, inputs, "y")))
    assert step_paths_to(told) == (("x", "Map"), ("y",))


def test_too_many_ways_are_refused(inputs):
    p = bt.pipeline("FnApiRunner")
    rows = read(p, inputs, "x")
    for number in range(13):
        mapped = rows | f"Map{number}" >> bt.MapRows(moved, schema=SCHEMA)
        rows = (rows, mapped) | f"Both{number}" >> beam.Flatten()
    with pytest.raises(bt.BeamTFRecordError, match=f"more than {MAX_STEP_PATHS:,} paths"):
        step_paths_to(rows)


@pytest.mark.slow
def test_rows_of_many_groups_share_runs(inputs, tmp_path):
    """Behind a Reshuffle of the user's, nearly every batch is of another group than the last."""
    for number in range(20):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number:02d}.csv").write_text("row\n1\n2\n")
    reader = ReadBatches(bt.ReadFromCsv(str(tmp_path / "in")).source, group_bytes=1)
    p = bt.pipeline("FnApiRunner")
    p | reader | beam.Reshuffle() | bt.WriteToTFRecord(f"{tmp_path / 'out'}/")
    result = p.run()
    result.wait_until_finish()
    runs = result.metrics().query(beam.metrics.MetricsFilter().with_name("write-runs"))["counters"]
    assert sum(counter.committed for counter in runs) < 5
    assert bt.Manifest.load(tmp_path / "out").examples == 40
