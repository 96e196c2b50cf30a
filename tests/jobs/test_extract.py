"""`extract`: the rows and types of any source in Parquet, under a manifest that can be trusted."""

from __future__ import annotations

import datetime
import decimal
import errno
import json
import os
import shutil
import sqlite3
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, RejectedRows, TargetExists, UsageError
from beam_tfrecord.exchange import output_writers
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.format.stage import StageManifest, is_stage
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.jobs import compose
from beam_tfrecord.rows.batch import Batch
from tests.helpers.cli_stand_ins import run
from tests.helpers.datasets import ids, sample_table, shard_hashes, visible_names, write_parquet


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    return write_parquet(tmp_path_factory.mktemp("in"), sample_table(1000), files=4)


@pytest.fixture(scope="module")
def extracted(parquet, tmp_path_factory):
    """Return a stage that no test changes."""
    stage = tmp_path_factory.mktemp("extracted") / "stage"
    bt.extract(parquet, stage)
    return stage


@pytest.fixture
def stage(extracted, tmp_path):
    """Return a copy of the stage, for a test to change."""
    return shutil.copytree(extracted, tmp_path / "stage")


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    path = tmp_path_factory.mktemp("database") / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE trips (id INTEGER PRIMARY KEY, zone TEXT NOT NULL, fare REAL, "
            "price DECIMAL(10, 2))"
        )
        connection.executemany(
            "INSERT INTO trips VALUES (?, ?, ?, ?)",
            [(i, f"z{i % 5}", None if i % 7 == 0 else i / 4, i / 100) for i in range(3000)],
        )
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture
def small_tasks(monkeypatch):
    """Make every file of the input a task of its own."""
    reader = compose.ReadBatches

    def small(*arguments, **options):
        return reader(*arguments, **options | {"task_bytes": 1, "max_task_bytes": 1})

    monkeypatch.setattr(compose, "ReadBatches", small)


def staged(stage):
    """Return what the files of a stage hold, by pyarrow alone, in the order of the manifest."""
    named = json.loads((stage / "manifest.json").read_text())["files"]
    return pa.concat_tables([pq.read_table(stage / file["path"]) for file in named])


def test_rows_types_and_order_of_a_database(database, tmp_path):
    stage = tmp_path / "stage"
    manifest = bt.extract(database, stage, source_options={"table": "trips"})
    assert manifest.rows == 3000
    assert manifest.schema == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("zone", pa.string(), nullable=False),
            pa.field("fare", pa.float64()),
            pa.field("price", pa.decimal128(10, 2)),
        ]
    )
    table = staged(stage)
    assert table.num_rows == 3000
    row = table.filter(pa.compute.equal(table["id"], 1234)).to_pylist()
    assert row == [{"id": 1234, "zone": "z4", "fare": 308.5, "price": decimal.Decimal("12.34")}]
    assert table["fare"].null_count == 429


def test_manifest_tells_files_and_source_and_nothing_else_varies(parquet, extracted, tmp_path):
    bt.extract(parquet, tmp_path / "two")
    text = (extracted / "manifest.json").read_text()
    assert text == (tmp_path / "two" / "manifest.json").read_text()
    told = json.loads(text)
    assert told["format"] == "beam_tfrecord-stage/1"
    assert told["rows"] == 1000
    assert told["schema"] == [
        {"name": "id", "type": "int64", "nullable": False},
        {"name": "x", "type": "float", "nullable": False},
        {"name": "name", "type": "string"},
    ]
    assert [file["path"] for file in told["source"]["files"]] == [
        f"part-00{i}.parquet" for i in range(4)
    ]
    assert [place for place in (parquet, str(extracted), str(tmp_path)) if place in text] == []
    assert visible_names(extracted) == ["job.json", "manifest.json", "part-00000.parquet"]
    assert not [name for name in os.listdir(extracted) if name.startswith(".")]


@pytest.mark.slow
def test_files_do_not_depend_on_workers(parquet, tmp_path, small_tasks, monkeypatch):
    monkeypatch.setattr("beam_tfrecord.jobs.compose.SMALL_BYTES", 0)
    hashes = []
    for workers in (1, 2):
        stage = tmp_path / str(workers)
        bt.extract(parquet, stage, pipeline_options=[f"--direct_num_workers={workers}"])
        hashes.append(shard_hashes(stage))
    assert hashes[0] == hashes[1]
    assert [name for name in hashes[0] if name.endswith(".parquet")] == [
        f"part-0000{i}.parquet" for i in range(4)
    ]
    assert staged(tmp_path / "2")["id"].to_pylist() == list(range(1000))


def test_write_reads_the_stage_and_gives_the_same_dataset(database, tmp_path):
    stage, table = tmp_path / "stage", {"table": "trips"}
    path = shutil.copy(database.removeprefix("sqlite:///"), tmp_path)
    bt.extract(path, stage, source_options=table)
    options = {"key": ["id"], "splits": "train=0.8,test=0.2"}
    direct = bt.write(path, tmp_path / "direct", source_options=table, **options)
    os.remove(path)
    bt.write(stage, tmp_path / "out", **options)
    for split, shards in direct.splits.items():
        for shard in shards.shards:
            written = (tmp_path / "out" / shard.path).read_bytes()
            assert written == (tmp_path / "direct" / shard.path).read_bytes(), split


@pytest.mark.slow
def test_rejects_and_strangers_beside_the_files_are_no_input(tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n2,3\n4\n")
    stage = tmp_path / "stage"
    manifest = bt.extract(tmp_path / "a.csv", stage, max_rejects=1)
    assert manifest.rows == 2
    assert manifest.rejects["rows"] == 1
    (reject,) = pq.read_table(stage / "rejects" / "rejects-00000.parquet").to_pylist()
    assert reject["row"] == 1
    pq.write_table(pa.table({"id": [9]}), stage / "other.parquet")
    bt.write(stage, tmp_path / "out")
    assert sorted(ids(tmp_path / "out")) == [1, 4]


def test_rejects_over_the_budget_publish_nothing(tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n2,3\n4\n")
    stage = tmp_path / "stage"
    with pytest.raises(RejectedRows, match=r"1 of 3 rows cannot be written \(allowed: 0\)"):
        bt.extract(tmp_path / "a.csv", stage)
    assert visible_names(stage) == []
    assert bt.extract(tmp_path / "a.csv", stage, max_rejects="any").rows == 2


def test_same_again_does_nothing_and_another_is_refused(parquet, tmp_path):
    stage = tmp_path / "stage"
    first = bt.extract(parquet, stage)
    before = {name: os.stat(stage / name).st_mtime_ns for name in visible_names(stage)}
    assert bt.extract(parquet, stage) == first
    assert {name: os.stat(stage / name).st_mtime_ns for name in visible_names(stage)} == before
    with pytest.raises(TargetExists, match="--overwrite"):
        bt.extract(parquet, stage, limit=10)
    assert bt.extract(parquet, stage, limit=10, overwrite=True).rows == 10
    assert staged(stage)["id"].to_pylist() == list(range(10))


@pytest.mark.slow
def test_overwriting_leaves_nothing_of_what_was_there(parquet, tmp_path, small_tasks):
    place = tmp_path / "place"
    bt.extract(parquet, place)
    (place / "mine.txt").write_text("kept")
    with pytest.raises(TargetExists):
        bt.write(parquet, place)
    bt.write(parquet, place, overwrite=True, shards=1)
    files = ["data-00000-of-00001.tfrecord", "job.json", "manifest.json", "mine.txt"]
    assert visible_names(place) == ["_index", *files, "schema.json", "schema.pbtxt"]
    bt.extract(parquet, place, columns=["id"], limit=1, overwrite=True)
    assert visible_names(place) == ["job.json", "manifest.json", "mine.txt", "part-00000.parquet"]


def stage_job_in(directory):
    return Job(Target(str(directory)), str(directory), output="stage")


class Stop(Exception):
    """Ends a job at a moment of the test's choice."""


def test_a_stopped_job_goes_on(parquet, tmp_path, small_tasks, monkeypatch):
    def stop(*_, **__):
        raise Stop("Stop")

    stage = tmp_path / "stage"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_tfrecord.publish.last_step.publish_stage", stop)
        with pytest.raises(Exception, match="Stop"):
            bt.extract(parquet, stage)
    assert visible_names(stage) == []
    (kept,) = stage.glob(".tmp-*")
    written = {path.name: path.stat().st_ino for path in kept.glob("shard-*")}
    assert len(written) == 4
    bt.extract(parquet, stage)
    assert {path.stat().st_ino for path in stage.glob("*.parquet")} == set(written.values())
    assert staged(stage)["id"].to_pylist() == list(range(1000))
    assert not list(stage.glob(".tmp-*"))


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("beam_tfrecord.storage.local.LocalFile.finish", full)
    monkeypatch.setattr("beam_tfrecord.storage.local.LocalFile.write", full)
    target = output_writers.StageWriter(stage_job_in(tmp_path))
    assert list(target.add(bt.Batch(pa.record_batch({"id": [1]})))) == []
    with pytest.raises(OSError, match="No space left"):
        list(target.end_task())
    target.abort()
    assert list(tmp_path.iterdir()) == []


def test_columns_and_limit(parquet, tmp_path):
    bt.extract(parquet, tmp_path / "stage", columns=["name", "id"], limit=7)
    assert staged(tmp_path / "stage").column_names == ["name", "id"]
    assert staged(tmp_path / "stage")["id"].to_pylist() == [0, 1, 2, 3, 4, 5, 6]
    with pytest.raises(UsageError, match="limit 0 is not a number of rows"):
        bt.extract(parquet, tmp_path / "other", limit=0)


@pytest.mark.slow
def test_no_rows_make_a_stage_with_a_schema_and_no_files(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("s", "UTC"))])
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    stage = tmp_path / "stage"
    manifest = bt.extract(tmp_path / "a.parquet", stage)
    assert manifest.files == ()
    assert manifest.schema.names == ["id", "at"]
    assert visible_names(stage) == ["job.json", "manifest.json"]
    assert bt.verify(stage).ok
    assert len(bt.load(stage)) == 0
    written = bt.write(stage, tmp_path / "out")
    assert written.examples == 0
    assert written.schema.names == ("id", "at")


def test_tasks_without_rows_and_one_huge_row(tmp_path, small_tasks):
    (tmp_path / "in").mkdir()
    values = [[], [b"x" * 3_000_000], [], [b"small"], [None]]
    for number, rows in enumerate(values):
        table = pa.table({"data": pa.array(rows, pa.binary())})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    manifest = bt.extract(tmp_path / "in", tmp_path / "stage")
    assert [file.rows for file in manifest.files] == [1, 1, 1]
    assert staged(tmp_path / "stage")["data"].to_pylist() == [b"x" * 3_000_000, b"small", None]


def test_row_groups_and_files_have_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr(output_writers, "FILE_BYTES", 20_000)
    monkeypatch.setattr(output_writers, "ROW_GROUP_BYTES", 8_000)
    monkeypatch.setattr(output_writers, "ROW_GROUP_ROWS", 1000)
    target = output_writers.StageWriter(stage_job_in(tmp_path))
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 2**60, 20_000)
    pieces = []
    for start in range(0, 20_000, 500):
        data = pa.record_batch({"n": numbers[start : start + 500]})
        pieces += list(target.add(Batch(data, task=0)))
    pieces += list(target.end_task())
    files = [pq.ParquetFile(piece.path) for piece in pieces]
    assert [piece.order for piece in pieces] == [(0, number) for number in range(len(pieces))]
    assert sum(piece.examples for piece in pieces) == 20_000
    assert all(20_000 <= piece.stored_bytes < 40_000 for piece in pieces[:-1])
    groups = [
        file.metadata.row_group(group).num_rows
        for file in files
        for group in range(file.num_row_groups)
    ]
    assert set(groups) == {1000}
    assert files[0].metadata.row_group(0).column(0).compression == "ZSTD"
    read = pa.concat_tables([file.read() for file in files])["n"].to_numpy()
    assert read.tolist() == numbers.tolist()


MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 1)
EVERY_TYPE = [
    (pa.bool_(), [True, None]),
    (pa.uint64(), [2**64 - 1, None]),
    (pa.int8(), [-128, None]),
    (pa.float16(), [np.float16(1.5), None]),
    (pa.float64(), [float("nan"), None]),
    (pa.large_string(), ["", None]),
    (pa.string_view(), ["long enough to be outside", None]),
    (pa.binary(2), [b"ab", None]),
    (pa.decimal128(38, 10), [decimal.Decimal("-1.0000000001"), None]),
    (pa.decimal256(60, 2), [decimal.Decimal("1.25"), None]),
    (pa.date32(), [MOMENT.date(), None]),
    (pa.date64(), [MOMENT.date(), None]),
    (pa.time32("s"), [MOMENT.time(), None]),
    (pa.time64("ns"), [MOMENT.time(), None]),
    (pa.duration("s"), [datetime.timedelta(days=-1), None]),
    (pa.timestamp("s"), [MOMENT, None]),
    (pa.timestamp("ns", "Europe/Berlin"), [MOMENT.astimezone(datetime.UTC), None]),
    (pa.list_(pa.int16()), [[1, None], None]),
    (pa.large_list(pa.string()), [["a"], []]),
    (pa.list_(pa.float32(), 2), [[1.0, 2.0], None]),
    (pa.list_(pa.list_(pa.int8(), 1), 2), [[[1], [2]], None]),
    (
        pa.struct([("a", pa.timestamp("s")), ("b", pa.list_(pa.int8(), 1))]),
        [{"a": MOMENT, "b": [1]}, None],
    ),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1)], None]),
    (pa.uuid(), [uuid.UUID(int=5), None]),
    (pa.json_(pa.string()), ['{"a": 1}', None]),
]


def test_every_type_and_its_values_come_back_exactly(tmp_path):
    columns = {}
    for arrow, values in EVERY_TYPE:
        plain = [value.bytes if isinstance(value, uuid.UUID) else value for value in values]
        if isinstance(arrow, pa.BaseExtensionType):
            storage = pa.array(plain, arrow.storage_type)
            columns[str(arrow)] = pa.ExtensionArray.from_storage(arrow, storage)
        else:
            columns[str(arrow)] = pa.array(plain, arrow)
    check_kept(pa.record_batch(columns), tmp_path)


def test_tensors_come_back_exactly(tmp_path):
    fixed = pa.fixed_shape_tensor(pa.float32(), [2, 1])
    rows = pa.ExtensionArray.from_storage(
        fixed, pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))
    )
    ours = TensorType("uint16", (2,))
    arrays = pa.ExtensionArray.from_storage(ours, pa.array([b"\x01\0\x02\0", None], pa.binary(4)))
    check_kept(pa.record_batch({"fixed": rows, "ours": arrays}), tmp_path)


def check_kept(data, tmp_path):
    """Check that rows come out of a stage as they were put in, by `ReadFromParquet` and `load`."""
    stage = tmp_path / "stage"
    [bt.Batch(data)] | bt.ExtractToParquet(stage)
    assert StageManifest.load(stage).schema == data.schema
    read = pa.Table.from_batches([batch.data for batch in bt.ReadFromParquet(stage).batches()])
    for name in data.schema.names:
        assert read.schema.field(name).type == data.schema.field(name).type
        # NaN is no value's equal, so what is compared is what stands for the values.
        assert repr(read[name].to_pylist()) == repr(data[name].to_pylist()), name


def test_dictionaries_and_run_ends_are_decoded(tmp_path):
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], [7, None])
    [bt.Batch(pa.record_batch({"w": words, "r": runs}))] | bt.ExtractToParquet(tmp_path / "stage")
    manifest = StageManifest.load(tmp_path / "stage")
    assert manifest.schema.types == [pa.string(), pa.int64()]
    assert staged(tmp_path / "stage").to_pylist() == [
        {"w": "a", "r": 7},
        {"w": "b", "r": 7},
        {"w": "a", "r": None},
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([None], pa.month_day_nano_interval()),
        pa.array([None], pa.decimal128(5, -2)),
        pa.array([["a", "b"]], pa.list_(pa.string_view(), 2)),
    ],
    ids=["interval", "negative scale", "fixed-size list of views"],
)
def test_what_parquet_cannot_hold_is_refused_by_name(column, tmp_path):
    batch = bt.Batch(pa.record_batch({"fine": [1], "odd": column}))
    with pytest.raises(Exception, match=r"column 'odd' is .* which Parquet cannot hold: leave it"):
        [batch] | bt.ExtractToParquet(tmp_path / "stage")
    assert visible_names(tmp_path / "stage") == []


def test_batches_of_two_schemas_are_refused(tmp_path):
    batches = [bt.Batch(pa.record_batch({"a": [1]})), bt.Batch(pa.record_batch({"a": ["x"]}))]
    with pytest.raises(Exception, match=r"\(a: int64\) and \(a: string\): bring them to one"):
        batches | bt.ExtractToParquet(tmp_path / "stage")


def test_examples_are_refused(tmp_path):
    with pytest.raises(Exception, match="serialized examples have no columns"):
        [b""] | bt.ExtractToParquet(tmp_path / "stage")


def test_verify_finds_what_is_wrong(parquet, tmp_path, small_tasks):
    stage = tmp_path / "stage"
    bt.extract(parquet, stage)
    assert bt.verify(stage).ok
    assert bt.verify(stage).examples == 1000
    data = bytearray((stage / "part-00001.parquet").read_bytes())
    data[100] ^= 1
    (stage / "part-00001.parquet").write_bytes(data)
    (stage / "part-00002.parquet").write_bytes(bytes(data[:50]))
    os.remove(stage / "part-00003.parquet")
    pq.write_table(pa.table({"id": [1]}), stage / "part-00007.parquet")
    found = {fault.path: fault.message for fault in bt.verify(stage).faults}
    assert set(found) == {f"part-0000{number}.parquet" for number in (1, 2, 3, 7)}
    assert "the hash is" in found["part-00001.parquet"]
    assert found["part-00002.parquet"].startswith("50 bytes, the manifest says")
    assert found["part-00003.parquet"] == "the file is missing"
    (stage / "part-00003.parquet").write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"part-00002.parquet' has 50 bytes but the manifest"):
        bt.load(stage)


def test_the_error_about_a_damaged_file_says_what_to_do(stage):
    path = stage / "part-00000.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    with pytest.raises(DataError, match=r"read part-00000\.parquet .*: write the file again"):
        bt.load(stage).arrow()


def test_a_manifest_that_was_changed_is_refused(stage):
    path = stage / "manifest.json"
    path.write_text(path.read_text().replace('"rows": 1000', '"rows": 1001'))
    assert is_stage(stage)
    with pytest.raises(DataError, match="was changed after it was written"):
        StageManifest.load(stage)
    (fault,) = bt.verify(stage).faults
    changed = "manifest.json: the file was changed after it was written"
    assert str(fault) == f"{changed}: restore it from a copy, or run extract again"


def test_its_manifest_is_not_that_of_a_dataset(extracted):
    with pytest.raises(DataError, match="is the manifest of a stage"):
        bt.Manifest.load(extracted)


@pytest.mark.slow
def test_command(database, tmp_path):
    stage = str(tmp_path / "stage")
    done = run("extract", database, stage, "--table", "trips", "--limit", "5", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["written"], told["rows"], told["files"], told["rejects"]) == (True, 5, 1, 0)
    assert "extracted 5 rows to 1 file (" in done.stderr
    again = run("extract", database, stage, "--table", "trips")
    assert again.exit_code == 2
    assert "pass --overwrite" in again.stderr
    assert run("verify", stage).exit_code == 0
    (tmp_path / "a.csv").write_text("id\n1\n")
    for words in ("extracted 1 row to 1 file", "already holds this stage: nothing to do"):
        assert words in run("extract", str(tmp_path / "a.csv"), str(tmp_path / "s2")).stderr
