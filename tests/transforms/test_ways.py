"""Rows of several readers, or of several mappings of one, in one dataset."""

from __future__ import annotations

import itertools
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.transforms.steps import MAX_STEP_PATHS, step_paths_to
from tests.helpers.datasets import read_examples, shard_hashes

ROWS = 500
SCHEMA = pa.schema([("from", pa.string()), ("row", pa.int64())])


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


BUILDS = (
    two_readers,
    applied_in_another_order,
    one_input_twice,
    a_row_function,
    flattened_before,
    rows_of_other_code,
    side_inputs,
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


@pytest.mark.slow
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
            flattened_before: ["m", "m", "x"],
            rows_of_other_code: ["r", "x"],
            side_inputs: ["x", "y"],
        }[build]
    )


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


@pytest.mark.slow
def test_a_stage_keeps_inputs_apart(inputs, tmp_path):
    with bt.pipeline("FnApiRunner") as p:
        two_readers(p, inputs) | beam.Flatten() | bt.ExtractToParquet(tmp_path)
    rows = [row for batch in bt.ReadFromParquet(str(tmp_path)).batches() for row in batch.rows()]
    assert [(row["from"], row["row"]) for row in rows] == [
        (name, row) for name in ("x", "y") for row in range(ROWS)
    ]


def test_too_many_ways_are_refused(inputs):
    p = bt.pipeline("FnApiRunner")
    rows = read(p, inputs, "x")
    for number in range(13):
        mapped = rows | f"Map{number}" >> bt.MapRows(moved, schema=SCHEMA)
        rows = (rows, mapped) | f"Both{number}" >> beam.Flatten()
    with pytest.raises(bt.BeamTFRecordError, match=f"more than {MAX_STEP_PATHS:,} paths"):
        step_paths_to(rows)
