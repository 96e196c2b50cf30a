"""`append` adds the rows of new files as one more generation, and `compact` makes one of all."""

import itertools
import multiprocessing
import os
import shutil
import time
import warnings
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError
from tests.helpers.effort import WHOLE
from tests.helpers.lazy import Lazy
from tests.sources.made_images import jpeg, write_tree

np = Lazy("numpy")
SPLITS = "train=0.7,test=0.3"


def table(start, count, **columns):
    numbers = range(start, start + count)
    texts = [f"n{i % 7}" for i in numbers]
    return pa.table({"id": numbers, "name": texts, "x": [i / 3 for i in numbers], **columns})


def days(directory, count=3, rows=100):
    for day in range(count):
        pyarrow.csv.write_csv(table(day * rows, rows), directory / f"day{day}.csv")
    return [str(directory / f"day{day}.csv") for day in range(count)]


def by_split(path, **options):
    splits = bt.load(path).split_names
    return {name: sorted(bt.load(path, split=name, **options).numpy()["id"]) for name in splits}


def files(directory):
    found = sorted(Path(directory).rglob("*"))
    # What is left of a failed job is for the next one.
    return {str(p): p.read_bytes() for p in found if p.is_file() and ".tmp-" not in str(p)}


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_appended_rows_are_those_of_one_write(tmp_path, compression):
    first, *more = days(tmp_path)
    options = {"splits": SPLITS, "group": "name", "compression": compression}
    bt.write(first, tmp_path / "out", **options)
    opened = bt.load(tmp_path / "out")
    state = opened.order(1).indices(0, 100)
    bt.append([first, *more], tmp_path / "out")
    one = bt.write([first, *more], tmp_path / "one", **options)
    made = bt.Manifest.load(tmp_path / "out")
    assert by_split(tmp_path / "out") == by_split(tmp_path / "one")
    assert (made.schema, made.content) == (one.schema, one.content)
    assert bt.verify(tmp_path / "out").ok
    # Readers that had it open see the rows of their generation.
    assert sorted(row["id"] for row in opened) == list(range(100))
    assert compression or list(opened.take(state)["id"])
    assert by_split(tmp_path / "out", generation=1) == {
        name: [i for i in ids if i < 100] for name, ids in by_split(tmp_path / "one").items()
    }
    before = files(tmp_path / "out")
    bt.append([first, *more], tmp_path / "out")
    assert files(tmp_path / "out") == before


@pytest.mark.parametrize(
    "options",
    [
        {"splits": SPLITS, "stratify": "name"},
        {"splits": "train=60,test=rest"},
        {"splits": "train=id < 150,test=rest"},
        pytest.param({"splits": "fold=3"}, marks=pytest.mark.slow),
    ],
)
def test_appended_rows_are_split_by_the_rules_of_the_dataset(tmp_path, options):
    first, *more = days(tmp_path)
    bt.write(first, tmp_path / "out", **options)
    before = by_split(tmp_path / "out")
    bt.append([first, *more], tmp_path / "out")
    after = by_split(tmp_path / "out")
    assert {name: [i for i in ids if i < 100] for name, ids in after.items()} == before
    assert sorted(itertools.chain(*after.values())) == list(range(300))
    assert bt.verify(tmp_path / "out").ok
    if "id" in options["splits"]:
        assert after["train"] == list(range(150))
    elif "fold" not in options["splits"]:
        share = 0.6 if "60" in options["splits"] else 0.7
        assert abs(len(after["train"]) / 300 - share) < 0.1


def test_compact_writes_the_bytes_of_one_write(tmp_path):
    first, *more = days(tmp_path)
    bt.write(first, tmp_path / "out", splits=SPLITS, key="id")
    for day in more:
        bt.append(day, tmp_path / "out")
    bt.compact(tmp_path / "out")
    bt.write([first, *more], tmp_path / "one", splits=SPLITS, key="id")
    made, one = (bt.Manifest.load(tmp_path / name) for name in ("out", "one"))
    assert [shard.xxh64 for shard in made.shards] == [shard.xxh64 for shard in one.shards]
    assert len(made.generations) == 1
    assert bt.verify(tmp_path / "out").ok
    assert {*bt.load(tmp_path / "out").manifest.splits} == {"train", "test"}
    # It still knows its input.
    before = files(tmp_path / "out")
    bt.append([first, *more], tmp_path / "out")
    bt.compact(tmp_path / "out")
    assert files(tmp_path / "out") == before
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]


@pytest.mark.slow
def test_compact_keeps_the_order_of_a_pipeline(tmp_path):
    for day, path in enumerate(days(tmp_path, 10, rows=5)):
        sink = bt.WriteToTFRecord(f"{tmp_path}/out/", shuffle=False, append=day > 0)
        with bt.pipeline() as root:
            root | bt.ReadFromCsv(path) | sink
    bt.compact(tmp_path / "out")
    assert [row["id"] for row in bt.load(tmp_path / "out")] == list(range(50))


@pytest.mark.slow
def test_rejects_of_every_generation_are_kept(tmp_path):
    bt.write(days(tmp_path, 1)[0], tmp_path / "out")
    for number in range(2):
        path = tmp_path / f"bad{number}.csv"
        path.write_text(f"id,name,x\n{1000 + number},a,1\n,b,2\n")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bt.append(path, tmp_path / "out", max_rejects=1)
    assert bt.load(tmp_path / "out").manifest.rejected_rows == 2
    bt.compact(tmp_path / "out")
    assert bt.verify(tmp_path / "out").ok
    rejects = pq.read_table(tmp_path / "out" / "rejects").to_pylist()
    assert sorted(row["address"] for row in rejects) == ["bad0.csv:3", "bad1.csv:3"]
    repaired = bt.repair(tmp_path / "out", tmp_path / "repaired")
    assert repaired.manifest.rejected_rows == 2
    assert repaired.is_whole
    bt.write(days(tmp_path, 1)[0], tmp_path / "out", overwrite=True)
    bt.write(days(tmp_path, 1)[0], tmp_path / "new")
    assert {os.path.relpath(path, tmp_path / "out") for path in files(tmp_path / "out")} == {
        os.path.relpath(path, tmp_path / "new") for path in files(tmp_path / "new")
    }


@pytest.mark.slow
@pytest.mark.xdist_group("torch")
def test_a_state_of_an_earlier_generation_names_it(tmp_path):
    first, second, _ = days(tmp_path)
    bt.write(first, tmp_path / "out")

    def loader(**options):
        rows = bt.load(tmp_path / "out", columns=["x"], **options)
        return rows.torch(10, shuffle=True).loader()

    begun = loader()
    next(iter(begun))
    state = begun.state_dict()
    bt.append(second, tmp_path / "out")
    with pytest.raises(BeamTFRecordError, match="generation=1"):
        loader().load_state_dict(state)
    old = loader(generation=1)
    old.load_state_dict(state)
    assert len(list(old)) == 9


def test_a_pipeline_appends(tmp_path):
    first, second, _ = days(tmp_path)
    bt.write(first, tmp_path / "out", splits=SPLITS)
    with bt.pipeline() as root:
        rows = root | bt.ReadFromCsv(second)
        rows | bt.WriteToTFRecord(f"{tmp_path}/out/", splits=SPLITS, append=True)
    assert sorted(itertools.chain(*by_split(tmp_path / "out").values())) == list(range(200))
    with (
        pytest.raises(BeamTFRecordError, match="split_by is bytes in the dataset"),
        bt.pipeline() as root,
    ):
        root | bt.ReadFromCsv(first) | bt.WriteToTFRecord(f"{tmp_path}/out/", append=True)
    assert bt.verify(tmp_path / "out").ok


def double(row):
    return row | {"x": row["x"] * 2}


WRONG = {
    "a file was edited": ("day0.csv", {}, "changed since its rows were written"),
    "no dataset": ("day1.csv", {"output": "other"}, "no dataset at"),
    "a column is missing": ({"id": [1]}, {}, "column 'name'"),
    "a type differs": ({"id": ["a"], "name": ["b"], "x": [1.0]}, {}, "id"),
    "a value is missing": ({"id": [None, 1], "name": ["b", "c"], "x": [1.0, 2]}, {}, "no value"),
    "another function": ("day1.csv", {"map": double}, "made by no function"),
    "a database": ("sqlite:///x.db", {"table": "t"}, "extract the new rows"),
    "too many shards": ("day1.csv", {"shards": -1}, "shards"),
    "overwrite": ("day1.csv", {"overwrite": True}, "unexpected keyword argument 'overwrite'"),
    "a split": ("day1.csv", {"splits": "a=1"}, "unexpected keyword argument 'splits'"),
    "no input": ("day9.csv", {}, "day9.csv"),
    "an empty file": ("empty.csv", {}, "empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_appended_is_one_line_and_changes_nothing(wrong_dataset, case):
    directory, made = wrong_dataset
    given, options, message = WRONG[case]
    output = directory / options.pop("output", "out") if "output" in options else directory / "out"
    if isinstance(given, dict):
        pq.write_table(pa.table(given), directory / "given.parquet")
        given = "given.parquet"
    given = given if "://" in given else directory / given
    with pytest.raises((BeamTFRecordError, TypeError)) as error:
        bt.append(given, output, **options)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) <= 3
    assert files(directory / "out") == made


@pytest.fixture(scope="module")
def wrong_dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wrong")
    days(directory)
    (directory / "empty.csv").touch()
    bt.write(directory / "day0.csv", directory / "out", splits=SPLITS)
    os.utime(directory / "day0.csv", (1, 1))
    return directory, files(directory / "out")


def test_a_dataset_that_lost_the_names_of_its_input_takes_no_more(tmp_path):
    first, second, _ = days(tmp_path)
    bt.write(first, tmp_path / "out")
    bt.append(second, tmp_path / "out")
    (tmp_path / "out" / "job-g00002.json").unlink()
    for job in (lambda: bt.append(second, tmp_path / "out"), lambda: bt.compact(tmp_path / "out")):
        with pytest.raises(BeamTFRecordError, match=r"job-g00002\.json' is missing or damaged"):
            job()


def test_images_are_appended_once(tmp_path):
    for day in range(3):
        write_tree(tmp_path / "in", **{f"{day}/cat/{name}": jpeg() for name in "bc"})
    bt.write(tmp_path / "in/0", tmp_path / "out")
    for _ in range(2):
        bt.append(tmp_path / "in/1", tmp_path / "out")
    write_tree(tmp_path / "in", **{"1/cat/a": jpeg(), "1/dog/a": jpeg()})
    for path in ("in/1", "in/1/cat", "in"):
        with pytest.raises(BeamTFRecordError, match="cannot tell which ones"):
            bt.append(tmp_path / path, tmp_path / "out")
    bt.append(tmp_path / "in/2", tmp_path / "out")
    assert len(bt.load(tmp_path / "out")) == 6


@pytest.mark.parametrize("case", ["dedup", "opaque", "replaced"])
def test_what_has_no_rows_to_append_to(tmp_path, case):
    first, second, _ = days(tmp_path)
    if case == "opaque":
        with bt.pipeline() as root:
            (
                root
                | beam.Create([b"\xff\xff"])
                | bt.WriteToTFRecord(f"{tmp_path}/out/", coder=beam.coders.BytesCoder())
            )
    else:
        bt.write(first, tmp_path / "out", dedup=case == "dedup")
    if case == "replaced":
        sink = bt.WriteToTFRecord(f"{tmp_path}/out/", append=True)
        bt.write(second, tmp_path / "out", overwrite=True)
        with pytest.raises(BeamTFRecordError, match="was replaced since"), bt.pipeline() as root:
            root | bt.ReadFromCsv(second) | sink
        return
    made = files(tmp_path / "out")
    with pytest.raises(BeamTFRecordError, match=r"write a dataset of all rows|nothing can be app"):
        bt.append(second, tmp_path / "out")
    assert files(tmp_path / "out") == made


def clears(row):
    for path in Path(os.environ.get("CLEARED", "nowhere")).glob(".tmp-*"):
        shutil.rmtree(path)
    return row


def test_another_job_may_write_the_dataset_anew(tmp_path, monkeypatch):
    first, second, _ = days(tmp_path)
    bt.write(first, tmp_path / "out", map=clears)
    monkeypatch.setenv("CLEARED", str(tmp_path / "out"))
    with pytest.raises(BeamTFRecordError, match=r"another job has written '.*' anew meanwhile"):
        bt.append(second, tmp_path / "out", map=clears)
    assert bt.verify(tmp_path / "out").ok


def _append(path, output):
    bt.append(path, output)
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(10 if WHOLE else 2))
def test_two_processes_append_at_once_and_one_dies(tmp_path, turn):
    first, *more = days(tmp_path, 4)
    bt.write(first, tmp_path / "out", splits=SPLITS)
    context = multiprocessing.get_context("fork")
    running = [context.Process(target=_append, args=(d, tmp_path / "out")) for d in more]
    for process in running:
        process.start()
    time.sleep(0.05 + 0.1 * turn)
    running[0].kill()
    for process in running:
        process.join()
    assert [process.exitcode for process in running[1:]] == [0, 0]
    assert bt.verify(tmp_path / "out").ok
    bt.append([first, *more], tmp_path / "out")
    bt.compact(tmp_path / "out")
    assert sorted(itertools.chain(*by_split(tmp_path / "out").values())) == list(range(400))
    assert bt.verify(tmp_path / "out").ok
    assert not [name for name in os.listdir(tmp_path / "out") if name.startswith(".")]
