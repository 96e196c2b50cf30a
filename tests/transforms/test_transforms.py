"""The Beam chain as people write it, by hand and with their own DoFns."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import NamedTuple, TypedDict

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, RejectedRows, SchemaConflict, UsageError
from beam_tfrecord.rows.batch import Batch
from tests.helpers.datasets import ids, read_examples, sample_table, shard_hashes, write_parquet
from tests.helpers.records import example, read_records
from tests.helpers.tf_example import OTHER_MESSAGES, Example, SequenceExample
from tests.native import wire

# An Example with a second field: feature_lists.
SEQUENCE = example(n=1) + wire.field(2, wire.field(1, wire.field(1, b"l")))


SPLITS = {"train": 0.8, "test": 0.2}


def test_a_step_that_takes_rows_says_that_it_got_a_batch(tmp_path):
    write_parquet(tmp_path / "a.parquet", sample_table(3))
    with pytest.raises(RuntimeError, match=r"put bt\.ToRows\(\) before"), bt.pipeline() as p:
        p | bt.ReadFromParquet(str(tmp_path / "a.parquet")) | beam.Map(lambda row: row["id"])


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    return write_parquet(tmp_path_factory.mktemp("input"), sample_table(300), files=2)


def pipeline():
    return bt.pipeline("FnApiRunner")


# The features out of order, which is an Example but not in canonical form.
ODD_EXAMPLE = bytes.fromhex("0a0e0a050a016212000a050a01611200")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("records", "coder"),
    [
        ([*[example(x=i) for i in range(50)], b"", ODD_EXAMPLE], None),
        ([f"record {i}".encode() for i in range(50)], beam.coders.BytesCoder()),
    ],
    ids=["examples", "any"],
)
def test_bytes_are_written_untouched(tmp_path, records, coder):
    with pipeline() as p:
        p | beam.Create(records) | bt.WriteToTFRecord(str(tmp_path / "raw"), coder, num_shards=2)
    found = [
        record for i in range(2) for record in read_records(tmp_path / f"raw-{i:05d}-of-00002")
    ]
    assert sorted(found) == sorted(records)


@pytest.mark.slow
def test_beams_keywords(tmp_path):
    with pipeline() as p:
        names = (
            p
            | beam.Create(["a", "b", "c"])
            | bt.WriteToTFRecord(
                file_path_prefix=str(tmp_path / "x"),
                coder=beam.coders.StrUtf8Coder(),
                file_name_suffix=".rec.gz",
                num_shards=1,
                shard_name_template="_SS_NN",
            )
        )
        assert_that(names, equal_to([str(tmp_path / "x_00_01.rec.gz")]))
    assert sorted(read_records(tmp_path / "x_00_01.rec.gz")) == [b"a", b"b", b"c"]
    beside = ["x-job.json", "x-manifest.json", "x-schema.json", "x-schema.pbtxt"]
    assert sorted(os.listdir(tmp_path)) == [*beside, "x_00_01.rec.gz"]


class Point(NamedTuple):
    id: int
    y: float


@dataclasses.dataclass
class Place:
    id: int
    y: float


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("kind", [dict, Point, beam.Row, Place])
def test_rows_of_any_kind(tmp_path, kind, is_known):
    with pipeline() as p:
        if is_known:
            rows = p | beam.Create([kind(id=1, y=0.5), kind(id=2, y=1.5)])
        else:
            rows = p | beam.Create([1, 2]) | beam.Map(lambda i: kind(id=i, y=i - 0.5))
            rows.element_type = object
        rows | bt.WriteToTFRecord(f"{tmp_path}/")
    assert sorted(ids(tmp_path)) == [1, 2]
    values = {e.features.feature["y"].float_list.value[0] for e in read_examples(tmp_path)}
    assert values == {0.5, 1.5}


def test_batch_rows_under_a_schema(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    rows = [{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": None}, {"id": 3, "tags": []}]
    with pipeline() as p:
        p | beam.Create(rows) | bt.BatchRows(schema) | bt.WriteToTFRecord(f"{tmp_path}/")
    found = {}
    for e in read_examples(tmp_path):
        tags = e.features.feature.get("tags")
        found[e.features.feature["id"].int64_list.value[0]] = tags and [*tags.bytes_list.value]
    assert found == {1: [b"a", b"b"], 2: None, 3: []}


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (1, "type int: give Batch, dict, .* or give WriteToTFRecord coder=a coder"),
        *(
            (kind(), rf"type {kind.__name__}: .* coder=beam\.coders\.ProtoCoder\({kind.__name__}\)")
            for kind in OTHER_MESSAGES
        ),
    ],
)
def test_elements_that_cannot_be_written_are_refused_at_construction(tmp_path, element, message):
    with pytest.raises(UsageError, match=message):
        pipeline() | beam.Create([element]) | bt.WriteToTFRecord(f"{tmp_path}/")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("element", "message"),
    [
        (
            lambda: SequenceExample.FromString(SEQUENCE),
            "cannot write elements of type SequenceExample",
        ),
        (lambda: SEQUENCE, r"b'.*it is not a serialized tf\.train\.Example: .*BytesCoder\(\)"),
        (lambda: Example.FromString(SEQUENCE), r"b'.*it is not a serialized tf\.train\.Example"),
        (lambda: b"\xff\xff", r"b'\\xff\\xff': it is not a serialized tf\.train\.Example"),
    ],
    ids=["message", "its bytes", "unknown fields", "noise"],
)
def test_elements_that_lose_something_as_examples_are_refused(tmp_path, element, message):
    # Beam knows no type of these elements.
    several = beam.FlatMap(lambda _: [*[example(x=1)] * 5, element()])
    with pytest.raises(Exception, match=message):
        run_to(pipeline() | beam.Create([0]) | several, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


def test_splits_need_a_directory(tmp_path):
    with pytest.raises(UsageError, match=r"splits need a directory: write to '.*/part/' instead"):
        bt.WriteToTFRecord(str(tmp_path / "part"), splits={"a": 1.0})


FEW = "1 shard is too few for 2 splits: give at least one each"
THREE_WAYS = {"train": 0.5, "val": 0.25, "test": 0.25}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": "2", "splits": THREE_WAYS}, "2 shards are too few for 3 splits"),
        ({"num_shards": 2, "shards": 3}, "num_shards and shards exclude each other: give one"),
    ],
    ids=str,
)
def test_shards_that_do_not_suit_splits_are_refused_at_once(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        bt.WriteToTFRecord(f"{tmp_path}/", **options)


@pytest.mark.parametrize(
    ("splits", "prefix", "options", "message"),
    [
        ({"a": 0.5, "b": 0.5}, "", {"num_shards": 1}, FEW),
        ({"a": 0.5, "b": 0.5}, "", {"shards": {"a": 3}}, "split 'b' has no number of shards"),
        (None, "", {"shards": {"train": 2, "test": 1}}, "split 'data' has no number of shards"),
        ({"a": 0.5, "b": 0.5}, "part", {}, "splits need a directory: write to '.*/part/' instead"),
    ],
    ids=str,
)
@pytest.mark.slow_after(1)
def test_what_does_not_suit_assigned_splits_is_refused(
    parquet, tmp_path, splits, prefix, options, message
):
    rows = pipeline() | bt.ReadFromParquet(parquet)
    if splits is not None:
        rows = rows | bt.AssignSplits(splits) | bt.MapBatches(lambda data: data)
    with pytest.raises(UsageError, match=message):
        run_to(rows, tmp_path, prefix, **options)
    assert not list(tmp_path.glob("*manifest.json"))


@pytest.mark.parametrize(
    "step",
    [
        bt.MapRows(lambda row: row),
        bt.MapBatches(lambda data: data),
        bt.AssignSplits(SPLITS),
        bt.ToRows(),
        bt.EncodeExamples(),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_of_batches_refuses_other_elements(step):
    name = type(step).__name__
    with pytest.raises(UsageError, match=rf"{name} needs an input: p \| ReadFromCsv"):
        pipeline() | step
    with pytest.raises(UsageError, match=rf"{name} needs Batch elements, not Dict.*BatchRows"):
        pipeline() | beam.Create([{"id": 1}]) | step


def test_what_beam_gives_no_type_is_refused_by_the_worker(tmp_path):
    one = beam.Map(lambda _: [{"id": 1}][0]).with_output_types(object)
    rows = pipeline() | beam.Create([0]) | one | bt.MapRows(lambda row: row)
    with pytest.raises(Exception, match=r"needs Batch elements, not dict: .* BatchRows\(schema\)"):
        run_to(rows, tmp_path)


@pytest.mark.parametrize(
    "step",
    [bt.BatchRows(pa.schema([])), bt.ToExample(pa.schema([]))],
    ids=["BatchRows", "ToExample"],
)
def test_a_step_needs_an_input(tmp_path, step):
    for one in (step, bt.WriteToTFRecord(f"{tmp_path}/a/"), bt.ExtractToParquet(tmp_path / "b")):
        with pytest.raises(UsageError, match=rf"{type(one).__name__} needs an input"):
            pipeline() | one


def test_a_value_that_does_not_fit_names_its_column_and_no_function(tmp_path):
    rows = pipeline() | beam.Create([{"a": "x"}]) | bt.BatchRows(pa.schema([("a", pa.int64())]))
    message = r"1 of 1 row cannot be written.*\n.*column 'a' is int64"
    with pytest.raises(RejectedRows, match=message) as e:
        run_to(rows, tmp_path)
    assert "function" not in str(e.value)


def test_a_value_without_a_type_names_its_row(parquet, tmp_path):
    def odd(row: dict) -> dict:
        return {"x": object() if row["id"] == 7 else 1}

    with pytest.raises(
        SchemaConflict, match=r"0\.parquet row 7: column 'x' has values that have no"
    ):
        bt.write(parquet, tmp_path / "out", map=odd)


def test_beams_check_of_types_at_run_time_is_refused(parquet):
    said = r"--runtime_type_check of Beam fails .*: leave it out"
    with pytest.raises(UsageError, match=said), bt.pipeline(options=["--runtime_type_check"]) as p:
        p | bt.ReadFromParquet(parquet)


@pytest.mark.slow
def test_rows_and_batches_of_one_reader_go_together(tmp_path):
    pq.write_table(
        pa.table({"id": [3, 4], "b": ["x", "y"], "a": ["p", "q"]}), tmp_path / "a.parquet"
    )
    with pipeline() as p:
        batches = p | bt.ReadFromParquet(f"{tmp_path}/a.parquet")
        mapped = batches | bt.MapRows(lambda row: {**row, "c": 1, "B": 2})
        again = mapped | bt.ToRows()
        (mapped, again) | beam.Flatten() | bt.WriteToTFRecord(f"{tmp_path}/out/")
    assert bt.Manifest.load(tmp_path / "out").schema.names == ("id", "b", "a", "c", "B")


class Mapped(TypedDict):
    id: int
    label: float


def with_hint(row):
    return {"id": row["id"], "label": 0.5}


@pytest.mark.slow
def test_a_return_hint_gives_the_types_without_a_second_pass(parquet, tmp_path):
    calls = beam.metrics.Metrics.counter("test", "calls")

    def counted(row: dict) -> Mapped:
        calls.inc()
        return with_hint(row)

    p = pipeline()
    (p | bt.ReadFromParquet(parquet) | bt.MapRows(counted) | bt.WriteToTFRecord(f"{tmp_path}/"))
    result = p.run()
    result.wait_until_finish()
    counters = result.metrics().query(beam.metrics.MetricsFilter().with_name("calls"))["counters"]
    assert [counter.committed for counter in counters] == [300]
    assert bt.Manifest.load(tmp_path).schema.names == ("id", "label")


def test_map_rows_refuses_a_dofn():
    with pytest.raises(UsageError, match=r"needs a function, not DoFn: .* after ToRows\(\)"):
        bt.MapRows(beam.DoFn())


@pytest.mark.slow
def test_map_batches_that_drops_rows_must_say_so(parquet, tmp_path):
    def first_half(data: pa.RecordBatch) -> pa.RecordBatch:
        return data.slice(0, data.num_rows // 2)

    with pytest.raises(Exception, match="pass keeps_rows=False"):
        run_to(pipeline() | bt.ReadFromParquet(parquet) | bt.MapBatches(first_half), tmp_path)


@pytest.mark.slow
def test_assigned_splits_are_kept(parquet, tmp_path):
    split = pipeline() | bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS, seed=5)
    run_to(split | bt.MapBatches(lambda data: data.select(["id"])), tmp_path / "a")
    run_to(pipeline() | bt.ReadFromParquet(parquet), tmp_path / "b", splits=SPLITS, seed=5)
    for split in ("train", "test"):
        assert sorted(ids(tmp_path / "a", split)) == sorted(ids(tmp_path / "b", split))


def only_one_fails(row: dict) -> dict | None:
    return {"id": 6 // row["id"]} if row["id"] in (0, 150) else None


@pytest.mark.slow
def test_rows_that_are_dropped_before_a_split_count_as_read(parquet, tmp_path):
    mapped = bt.MapRows(only_one_fails, schema=pa.schema([("id", pa.int64())]))
    rows = pipeline() | bt.ReadFromParquet(parquet, batch_rows=10) | mapped
    run_to(rows | bt.AssignSplits(SPLITS), tmp_path, max_rejects="1%")
    assert json.loads((tmp_path / "job.json").read_text())["rows_read"] == 300
    assert bt.Manifest.load(tmp_path).rejects["rows"] == 1


@pytest.mark.xdist_group("tensorflow")
def test_encode_examples_and_to_example(parquet):
    table = pq.read_table(parquet).slice(0, 5)
    batch = Batch(table.to_batches()[0])
    encoded = [batch] | bt.EncodeExamples()
    rows = table.to_pylist() | bt.ToExample(table.schema)
    assert [e.SerializeToString(deterministic=True) for e in rows] == encoded
    assert Example.FromString(encoded[3]).features.feature["id"].int64_list.value == [3]


def test_rejects_do_not_vanish_in_to_rows():
    from beam_tfrecord.rows.batch import Reject

    batch = Batch(pa.RecordBatch.from_pydict({"x": [1]}), rejects=(Reject("u", 1, "", "c", "bad"),))
    with pytest.raises(Exception, match="bad"):
        [batch] | bt.ToRows()


def test_an_existing_dataset_is_refused_at_construction(parquet, tmp_path):
    bt.write(parquet, tmp_path)
    with pytest.raises(BeamTFRecordError, match="already holds another dataset"):
        pipeline() | bt.ReadFromParquet(parquet) | bt.WriteToTFRecord(f"{tmp_path}/")


NO_SPLIT = "some rows have no split, though AssignSplits gave rows one"


def plain_rows(batch: Batch) -> list[dict]:
    return list(batch.rows())


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [bt.ToRows(), bt.EncodeExamples(), beam.FlatMap(plain_rows).with_output_types(dict)],
    ids=["ToRows", "EncodeExamples", "your own"],
)
@pytest.mark.parametrize("is_any", [False, True])
def test_rows_that_lose_their_split_are_refused(parquet, tmp_path, step, is_any):
    rows = pipeline() | bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS) | step
    if is_any:
        rows = rows | beam.Map(lambda row: row)
    with pytest.raises(Exception, match=NO_SPLIT):
        run_to(rows, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


TWICE = "rows come with the split that AssignSplits gave them: leave out splits, split_column"


def run_to(rows, directory, prefix="", **options):
    rows | bt.WriteToTFRecord(f"{directory}/{prefix}", **options)
    rows.pipeline.run()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "options",
    [
        {"splits": {"q": 0.5, "w": 0.5}},
        {"splits": SPLITS},
        {"split_column": "id"},
        {"group": "id"},
        {"splits": SPLITS, "group": "id", "seed": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("is_hidden", [False, True])
def test_splits_are_said_once(parquet, tmp_path, options, is_hidden):
    """What only the runner sees is refused by the sink, before anything is published."""
    p = pipeline()
    split = p | bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS)
    rows = split | bt.MapBatches(lambda data: data)
    if is_hidden:
        give = beam.FlatMap(lambda _, them: list(them), beam.pvalue.AsIter(rows))
        rows = p | beam.Create([0]) | give.with_output_types(Batch)
    with pytest.raises(Exception, match=TWICE) as raised:
        run_to(rows, tmp_path, **options)
    is_seen = "split_column" not in options and not is_hidden
    assert isinstance(raised.value, UsageError) == is_seen
    assert not (tmp_path / "manifest.json").exists()


def test_splits_are_assigned_once(parquet, tmp_path):
    split = pipeline() | bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS)
    through = split | beam.Map(lambda batch: batch) | "Behind" >> bt.AssignSplits({"a": 1.0})
    with pytest.raises(Exception, match=TWICE):
        run_to(through, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.slow
def test_rows_that_lost_their_split_get_a_new_one(parquet, tmp_path):
    rows = pipeline() | bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS) | bt.ToRows()
    batches = rows | bt.BatchRows(bt.ReadFromParquet(parquet).source.schema())
    run_to(batches | "Again" >> bt.AssignSplits({"a": 0.5, "b": 0.5}), tmp_path)
    assert set(bt.Manifest.load(tmp_path).splits) == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_rows_without_a_split_do_not_go_with_rows_that_have_one(
    parquet, tmp_path, is_hidden, is_mapped
):
    p = pipeline()
    split = p | "1" >> bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS)
    other = p | "2" >> bt.ReadFromParquet(parquet)
    if is_mapped:
        other = other | bt.MapBatches(lambda data: data)
    if is_hidden:
        other = other | beam.Map(lambda batch: batch)
    both = (other, split) | beam.Flatten()
    with pytest.raises(Exception, match=NO_SPLIT):
        run_to(both, tmp_path)
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.slow
def test_splits_may_be_assigned_in_parts_and_by_code_of_your_own(parquet, tmp_path):
    with pipeline() as p:
        one, two, three = (p | name >> bt.ReadFromParquet(parquet) for name in "123")
        split = one | "A" >> bt.AssignSplits(SPLITS), two | "B" >> bt.AssignSplits({"val": 1.0})
        own = three | beam.Map(lambda batch: batch.replace(split="own"))
        (*split, own) | beam.Flatten() | bt.WriteToTFRecord(f"{tmp_path}/")
    assert set(bt.Manifest.load(tmp_path).splits) == {*SPLITS, "val", "own"}


def test_a_stage_refuses_splits(parquet, tmp_path):
    p = pipeline()
    p | bt.ReadFromParquet(parquet) | bt.AssignSplits(SPLITS) | bt.ExtractToParquet(tmp_path)
    with pytest.raises(Exception, match="a stage has no splits"):
        p.run()


@pytest.mark.slow
def test_a_row_function_over_readers_of_different_types(tmp_path):
    """The types found do not follow from which reader came first."""
    tables = [
        pa.table({"id": pa.array([1, 2], pa.int16()), "a": ["x", "y"]}),
        pa.table({"id": pa.array([3, 4], pa.int64()), "b": [1, 2]}),
    ]
    for number, table in enumerate(tables):
        pq.write_table(table, tmp_path / f"{number}.parquet")

    def write(order):
        with pipeline() as p:
            read = [p | f"{n}" >> bt.ReadFromParquet(f"{tmp_path}/{n}.parquet") for n in order]
            mapped = read | beam.Flatten() | bt.MapRows(lambda row: {"a": "", "b": 0, **row})
            mapped | bt.WriteToTFRecord(f"{tmp_path}/out{order[0]}/")
        return bt.Manifest.load(f"{tmp_path}/out{order[0]}").schema.dumps()

    assert write([0, 1]) == write([1, 0])


def test_a_batch_without_rows_has_no_examples():
    empty = Batch(pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())}))
    assert [empty] | bt.EncodeExamples() == []


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["files", "runner"])
def test_a_fault_of_the_data_is_told_under_every_exchange(tmp_path, exchange):
    rows = pipeline() | beam.Create([example(x=1), example(x=2)])
    with pytest.raises(Exception, match=r"column 'id' of .*key.* is not in the examples"):
        run_to(rows, tmp_path, key="id", exchange=exchange)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [
        {"key": "n"},
        {"group": "n", "splits": SPLITS},
        {"split_column": "s"},
        {"key": ["s", "n"], "splits": SPLITS},
    ],
    ids=str,
)
def test_columns_are_features_of_examples(tmp_path, options):
    rows = [{"n": i % 7, "s": "ab"[i % 2], "x": float(i)} for i in range(60)]
    made = (Example.FromString(example(**row)) for row in rows)
    found, examples = {}, [one.SerializeToString(deterministic=True) for one in made]
    for name, elements in (("rows", rows), ("examples", examples)):
        with pipeline() as p:
            p | beam.Create(elements) | bt.WriteToTFRecord(f"{tmp_path}/{name}/", **options)
        hashes = shard_hashes(tmp_path / name)
        found[name] = {shard: one for shard, one in hashes.items() if ".tfrecord" in shard}
    assert found["rows"]
    assert found["rows"] == found["examples"]
