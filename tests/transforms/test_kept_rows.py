"""Rows of unknown types: functions run once a row, and the types follow from all rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, TypedDict

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.runner import PipelineRunner
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from tests.helpers.datasets import ids, shard_hashes
from tests.helpers.records import example
from tests.helpers.repository import load_recipe
from tests.helpers.tf_example import Example

ROWS = 50


@pytest.fixture
def parquet(tmp_path):
    pq.write_table(pa.table({"id": range(ROWS)}), tmp_path / "in.parquet", row_group_size=20)
    return str(tmp_path / "in.parquet")


@pytest.fixture
def calls(tmp_path):
    """Return a function that notes a call, in any process; its `count` is that of the calls."""

    def note():
        with open(tmp_path / "calls", "ab") as file:
            file.write(b".")

    note.count = lambda: os.path.getsize(tmp_path / "calls")
    return note


def map_rows(p, parquet, function):
    return p | bt.ReadFromParquet(parquet) | bt.MapRows(function)


def dataset(directory):
    """Return all of a dataset but its times."""
    return {name: one for name, one in shard_hashes(directory).items() if ".tfrecord" in name}


def test_a_row_function_is_called_once_a_row(parquet, tmp_path, calls):
    def function(row):
        calls()
        return [None, {"id": row["id"]}, []][row["id"] % 3]

    with bt.pipeline() as p:
        map_rows(p, parquet, function) | bt.WriteToTFRecord(f"{tmp_path}/out/")
    assert sorted(ids(tmp_path / "out")) == list(range(1, ROWS, 3))
    assert calls.count() == ROWS
    bt.write(parquet, tmp_path / "job", map=function)
    assert calls.count() == 2 * ROWS
    assert dataset(tmp_path / "out") == dataset(tmp_path / "job")
    assert sorted(name for name in os.listdir(tmp_path) if name.startswith(".tmp")) == []


def test_row_functions_in_a_chain_are_called_once_a_row_each(parquet, tmp_path, calls):
    def function(row):
        calls()
        return {"id": row["id"] + 1}

    with bt.pipeline() as p:
        rows = p | bt.ReadFromParquet(parquet)
        for number in range(7):
            rows = rows | f"Map{number}" >> bt.MapRows(function)
        rows | bt.WriteToTFRecord(f"{tmp_path}/out/")
    assert calls.count() == 7 * ROWS
    assert sorted(ids(tmp_path / "out")) == list(range(7, ROWS + 7))


def test_a_dofn_yields_its_rows_once(parquet, tmp_path, calls):
    class Rows(beam.DoFn):
        def process(self, row):
            calls()
            yield {**row, "half": row["id"] / 2}

    with bt.pipeline() as p:
        made = p | bt.ReadFromParquet(parquet) | bt.ToRows() | beam.ParDo(Rows())
        made | bt.WriteToTFRecord(f"{tmp_path}/out/")
    assert calls.count() == ROWS
    assert bt.Manifest.load(tmp_path / "out").schema.names == ("id", "half")


class Row(TypedDict):
    id: int
    text: str


def test_bytes_are_those_with_a_return_hint(parquet, tmp_path):
    def plain(row):
        return [{"id": row["id"], "text": "x" * copy} for copy in range(row["id"] % 3)]

    def hinted(row) -> Row:
        return plain(row)

    for name, function in (("plain", plain), ("hinted", hinted)):
        bt.write(parquet, tmp_path / name, map=function, splits={"a": 0.5, "b": 0.5})
    assert dataset(tmp_path / "plain") == dataset(tmp_path / "hinted")


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("most", "last", "type_"),
    [
        (1, 0.1, "double"),
        (None, 300, "int64"),
        ([1], [2.5], "list<item: double>"),
        (None, [None, "x"], "list<item: string>"),
    ],
    ids=str,
)
def test_the_last_row_may_change_the_types(parquet, tmp_path, most, last, type_):
    def function(row):
        return {"x": last if row["id"] == ROWS - 1 else most}

    with bt.pipeline() as p:
        map_rows(p, parquet, function) | bt.ExtractToParquet(tmp_path / "out")
    (batch, *_) = bt.ReadFromParquet(str(tmp_path / "out")).batches()
    assert str(batch.data.schema.field("x").type) == type_


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ({"x": 1}, {"x": "a"}, "column 'x' has values of two types"),
        ({"x": 1}, example(x=1), "the row function returns rows and examples: return one kind"),
    ],
    ids=["types", "kinds"],
)
def test_rows_that_contradict_each_other_are_refused(parquet, tmp_path, first, last, message):
    def function(row):
        return last if row["id"] == ROWS - 1 else first

    with pytest.raises(BeamTFRecordError, match=message):
        bt.write(parquet, tmp_path / "out", map=function)
    with pytest.raises(BeamTFRecordError, match=message), bt.pipeline() as p:
        map_rows(p, parquet, function) | bt.WriteToTFRecord(f"{tmp_path}/out/")


def test_what_cannot_be_stored_is_refused(parquet, tmp_path):
    class Odd(dict):
        def __reduce_ex__(self, _):
            raise TypeError("it has a lock")

    with pytest.raises(
        BeamTFRecordError, match=r"cannot be stored \(it has a lock\): pass a schema"
    ):
        bt.write(parquet, tmp_path / "out", map=lambda row: {"x": Odd(row)})


def test_several_sinks_or_none_may_follow(parquet, tmp_path, calls):
    def function(row):
        calls()
        return {"id": row["id"]}

    with bt.pipeline() as p:
        rows = map_rows(p, parquet, function)
        rows | bt.WriteToTFRecord(f"{tmp_path}/1/")
        rows | bt.ExtractToParquet(tmp_path / "2")
    assert calls.count() == ROWS
    assert sorted(ids(tmp_path / "1")) == list(range(ROWS))
    with bt.pipeline() as p:
        found = map_rows(p, parquet, function) | bt.ToRows() | beam.Map(lambda row: row["id"])
        assert_that(found, equal_to(list(range(ROWS))))


def test_runners_on_other_machines_need_the_directory_of_one_sink(parquet, tmp_path):
    p = bt.pipeline()
    local, p.runner = p.runner, PipelineRunner()
    rows = map_rows(p, parquet, dict)
    p.runner = local
    with pytest.raises(UsageError, match="and 0 come after them: pass a schema, or give the row"):
        p.run()
    rows | "1" >> bt.WriteToTFRecord(f"{tmp_path}/1/")
    with pytest.raises(UsageError, match="and 2 come after them"):
        rows | "2" >> bt.WriteToTFRecord(f"{tmp_path}/2/")


def test_large_rows_make_small_batches():
    rows = [{"image": bytes(2**20)}] * 12
    batches = rows | bt.BatchRows(pa.schema({"image": pa.binary()}))
    assert sum(batch.num_rows for batch in batches) == 12
    assert max(batch.num_rows for batch in batches) < 12


class Hinted(beam.DoFn):
    """Beam does not resolve its hint, which is text."""

    def process(self, row: dict[str, Any]) -> Iterator[Example]:
        yield Example.FromString(example(id=row["id"]))


class Lying(beam.DoFn):
    def process(self, row: dict[str, Any]) -> Iterator[Example]:
        yield row


class Plain(beam.DoFn):
    def process(self, row):
        yield Example.FromString(example(id=row["id"]))


def steps(p):
    """Return the labels of the steps of a pipeline that a runner executes."""
    return [
        one.unique_name
        for one in p.to_runner_api().components.transforms.values()
        # Beam also has steps that only pass their input on.
        if not one.subtransforms and set(one.outputs.values()) - set(one.inputs.values())
    ]


@pytest.mark.parametrize("function", [Hinted, Plain])
def test_a_dofn_of_examples_makes_few_steps(parquet, tmp_path, function):
    p = bt.pipeline()
    made = p | bt.ReadFromParquet(parquet) | bt.ToRows() | beam.ParDo(function())
    made | "Write" >> bt.WriteToTFRecord(f"{tmp_path}/out/")
    found = steps(p)
    assert len(found) <= (58 if function is Hinted else 62), found
    assert ("Write/TypeRows" in found) == (function is Plain)
    p.run()
    assert sorted(ids(tmp_path / "out")) == list(range(ROWS))


@pytest.mark.xdist_group("tensorflow")
def test_the_recipe_of_a_dofn_makes_few_steps(monkeypatch, tmp_path, parquet):
    pytest.importorskip("tensorflow")
    recipe = load_recipe(monkeypatch, "parquet_to_tfrecord")
    p = bt.pipeline()
    arguments = {"input": parquet, "output": f"{tmp_path}/out/part", "num_shards": 1}
    recipe.build(p, type("Arguments", (), arguments))
    assert len(steps(p)) <= 58, steps(p)


def test_a_hint_that_is_wrong_is_refused(parquet, tmp_path):
    p = bt.pipeline()
    made = p | bt.ReadFromParquet(parquet) | bt.ToRows() | beam.ParDo(Lying())
    made | bt.WriteToTFRecord(f"{tmp_path}/out/")
    with pytest.raises(Exception, match="yields examples, but it yields dict: correct the hint"):
        p.run()
