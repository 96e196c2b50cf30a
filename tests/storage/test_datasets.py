"""Whole jobs on object stores: the same files as on a local disk, and the same guarantees."""

import dataclasses

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord import storage
from beam_tfrecord.errors import StorageError, UsageError
from beam_tfrecord.sources.choose import detect_kind
from beam_tfrecord.storage.object_lease import this_process
from beam_tfrecord.storage.object_store import ObjectWriter
from tests.helpers.cli_stand_ins import run
from tests.helpers.formats import FORMATS
from tests.helpers.made_datasets import make_dataset
from tests.storage.made_inputs import SUFFIXES, made

ROWS = 900
SPLITS = {"train": 0.8, "test": 0.2}


def make_input(root, kind="csv"):
    storage.make_directory(f"{root}/in")
    for part in range(3):
        rows = range(part * ROWS // 3, (part + 1) * ROWS // 3)
        table = pa.table({"id": list(rows), "name": [f"n{row * row}" for row in rows]})
        storage.put(f"{root}/in/{part}.{kind}", FORMATS[f".{kind}"](table))
    # Other tools' temporary files, and files of other kinds.
    storage.make_directory(f"{root}/in/_tmp")
    storage.put(f"{root}/in/_tmp/0.{kind}", b"x")
    storage.put(f"{root}/in/readme.txt", b"x")
    return f"{root}/in"


def dataset_files(directory):
    """Return the files of a dataset but for ``job.json``, which tells of the run."""
    found = {
        entry.path.removeprefix(f"{directory}/"): storage.read_bytes(entry.path)
        for entry in storage.list_files(directory)
    }
    del found["job.json"]
    return found


SHUFFLED = {"splits": SPLITS, "shards": 5}
GZIP = {"splits": SPLITS, "compression": "gzip"}
IN_ORDER = {"shuffle": False}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", SHUFFLED),
        ("parquet", IN_ORDER),
        pytest.param("csv", GZIP, marks=pytest.mark.slow),
        pytest.param("csv", IN_ORDER, marks=pytest.mark.slow),
        pytest.param("parquet", SHUFFLED, marks=pytest.mark.slow),
        pytest.param("parquet", GZIP, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_dataset_is_the_same_as_on_a_local_disk(store, tmp_path, kind, options):
    bt.write(make_input(str(tmp_path), kind), str(tmp_path / "out"), **options)
    bt.write(make_input(store.url, kind), f"{store.url}/out/", **options)
    assert dataset_files(f"{store.url}/out") == dataset_files(str(tmp_path / "out"))


def test_a_dataset_is_described_as_on_a_local_disk(store, tmp_path):
    make_dataset(tmp_path / "out", pa.table({"x": [1, 2, 3]}))
    for entry in storage.list_files(str(tmp_path)):
        storage.put(entry.path.replace(str(tmp_path), store.url), storage.read_bytes(entry.path))
    for root in (str(tmp_path), store.url):
        bt.describe(f"{root}/out", title="Numbers")
    local, there = (
        {entry.path.removeprefix(root): entry.path for entry in storage.list_files(root)}
        for root in (str(tmp_path), store.url)
    )
    assert there.keys() == local.keys() >= {"/out/croissant.json", "/out/dataset_info.json"}
    for name, path in local.items():
        assert storage.read_bytes(there[name]) == storage.read_bytes(path)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("suffix", [".tar", ".xlsx", ".orc", ".jsonl", *SUFFIXES])
def test_every_format_is_read_as_a_local_file(amazon_store, tmp_path, suffix):
    data = made(suffix, tmp_path)
    for root in (str(tmp_path), amazon_store.url):
        storage.make_directory(f"{root}/in/d")
        for name in ("a", "d/b"):
            storage.put(f"{root}/in/{name}{suffix}", data)
    options = {"example": "row"} if suffix.startswith(".np") else {}
    local = bt.write(tmp_path / "in", tmp_path / "local", **options)
    assert bt.write(f"{amazon_store.url}/in", tmp_path / "out", **options) == local
    assert bt.write(f"{amazon_store.url}/in/**/*{suffix}", tmp_path / "out", **options) == local
    assert bt.schema(f"{amazon_store.url}/in/d/b{suffix}") == bt.schema(
        tmp_path / "in" / f"a{suffix}"
    )


def test_a_directory_is_known_by_what_it_holds(store, tmp_path):
    bt.write(make_input(str(tmp_path)), f"{store.url}/ds")
    bt.extract(f"{tmp_path}/in", f"{store.url}/stage")
    storage.remove(f"{store.url}/ds/manifest.json")
    for entry in list(storage.list_files(f"{store.url}/ds")):
        if entry.path.endswith((".tfrecord", "_index")):
            storage.remove(entry.path)
    storage.put(f"{make_input(store.url)}/schema.json", b"{}")
    assert detect_kind(f"{store.url}/in") == "csv"
    assert detect_kind(f"{store.url}/stage") == "parquet"
    assert detect_kind(f"{store.url}/ds") == "tfrecord"
    with pytest.raises(UsageError, match="no dataset at"):
        bt.write(f"{store.url}/ds", tmp_path / "out")


def test_a_bucket_may_be_the_output(store, tmp_path):
    bt.write(make_input(str(tmp_path)), store.url)
    assert len(bt.load(store.url)) == ROWS
    assert bt.verify(f"{store.url}/").faults == ()


@pytest.mark.xdist_group("tensorflow")
def test_tensorflow_gets_the_examples(store):
    bt.write(make_input(store.url), f"{store.url}/out", splits=SPLITS, shards=4)
    dataset = bt.load(f"{store.url}/out", split="train")
    expected = [row["id"] for row in dataset.rows()]
    assert [int(row["id"]) for row in dataset.tf()] == expected
    mixed = [int(row["id"]) for row in dataset.tf(shuffle=True, seed=1)]
    assert sorted(mixed) == sorted(expected)
    assert mixed != expected


def test_rejects_are_written_there(store):
    out = f"{store.url}/out"
    storage.put(f"{store.url}/in.csv", b"a\n1\nx\n3\n")
    bt.write(f"{store.url}/in.csv", out, types={"a": "int64"}, max_rejects=1)
    assert sorted(row["a"] for row in bt.load(out).rows()) == [1, 3]
    assert storage.exists(f"{out}/rejects/rejects-00000.parquet")


@pytest.mark.parametrize("prefix", ["out/part", "out/"])
def test_a_pipeline_writes_to_a_store(store, prefix):
    import apache_beam as beam

    make_input(store.url)
    with bt.pipeline() as root:
        batches = root | bt.ReadFromCsv(f"{store.url}/in/*.csv")
        paths = batches | bt.WriteToTFRecord(f"{store.url}/{prefix}", num_shards=2)
        paths | beam.Map(lambda path: None if storage.exists(path) else 1 / 0)
    dataset = bt.load(f"{store.url}/{prefix}")
    assert sorted(row["id"] for row in dataset.rows()) == list(range(ROWS))


def test_the_same_job_again_writes_nothing(store):
    inputs, out = make_input(store.url), f"{store.url}/out"
    first = bt.write(inputs, out)
    store.faults.clear()
    assert bt.write(inputs, out) == first
    writes = [r for r in store.faults.requests if r.startswith(("PUT", "POST", "DELETE"))]
    assert writes == []


def test_a_job_whose_lease_is_stolen_publishes_nothing(store, monkeypatch):
    inputs, out = make_input(store.url), f"{store.url}/out"
    thief = dataclasses.replace(this_process(), machine="elsewhere").dumps()
    stolen = []
    close = ObjectWriter.finish

    def steal_before_the_first_shard(writer):
        if "/shard-" in writer._path and not stolen:
            stolen.append(writer._path)
            storage.put(f"{out}/.lock", thief)
        close(writer)

    monkeypatch.setattr(ObjectWriter, "finish", steal_before_the_first_shard)
    with pytest.raises(StorageError, match="another job has taken the output over"):
        bt.write(inputs, out)
    assert stolen
    assert [name for name in storage.list_names(out) if not name.startswith(".")] == []
    assert storage.read_bytes(f"{out}/.lock") == thief


def test_a_missing_bucket_is_one_line(store):
    inputs, nowhere = make_input(store.url), f"{store.scheme}://no-such-bucket"
    missing = f"there is no {'container' if store.scheme == 'az' else 'bucket'} '{nowhere}'"
    for arguments in ([inputs, f"{nowhere}/out"], [f"{nowhere}/in/*.csv", f"{store.url}/out"]):
        failed = run("write", *arguments)
        assert failed.exit_code == 2
        assert failed.stderr.count("\n") == 1
        assert missing in failed.stderr
    shown = run("show", f"{nowhere}/out")
    assert shown.exit_code == 2
    assert missing in shown.stderr


def test_statistics_and_card_are_those_of_a_local_dataset(store, tmp_path):
    inputs, pages = make_input(store.url), []
    for out in (f"{store.url}/out", str(tmp_path / "out")):
        bt.write(inputs, out, splits=SPLITS, seed=1)
        assert bt.card(out) == f"{out}/card.html"
        pages.append((storage.read_bytes(f"{out}/card.html"), bt.load(out).stats().to_json()))
    assert pages[0] == pages[1]


def test_what_is_not_permitted_is_one_line(store):
    inputs = make_input(store.url)
    store.faults.plan("^(PUT|POST)", "403", times=10_000)
    failed = run("write", inputs, f"{store.url}/out")
    assert failed.exit_code == 1
    assert failed.stderr.count("\n") == 1
    assert "permission denied: check the credentials" in failed.stderr
