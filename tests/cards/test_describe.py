"""`describe`: files by which TensorFlow Datasets and Croissant read a dataset, never stale ones.

`scripts/prove/run readers` reads them by these tools; here they are read by their specifications.
"""

import fcntl
import hashlib
import json

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, TargetExists
from tests.helpers import described
from tests.helpers.cli_stand_ins import run
from tests.helpers.formats import write_file
from tests.helpers.made_datasets import make_dataset

OURS = {"croissant.json", "dataset_info.json", "described.json", "features.json"}


def names(directory):
    return {path.name for path in directory.iterdir()}


def loaded(directory, name):
    return json.loads((directory / name).read_text())


def test_all_kinds_of_columns(tmp_path):
    table, expected = described.table()
    splits = {"train": range(40), "test-1": range(40, described.ROWS)}
    make_dataset(tmp_path, table, splits=splits)
    done = bt.describe(tmp_path, title="Été 2024!", license="CC0-1.0")
    assert done.left_out == {"deep": "arrays or lists of which several lengths vary"}
    described.compare(tmp_path, expected, {"deep"})
    assert loaded(tmp_path, "dataset_info.json")["name"] == "t_2024"
    assert loaded(tmp_path, "about.json") == {"title": "Été 2024!", "license": "CC0-1.0"}


def test_arrays(tmp_path):
    arrays = {name: array[:9] for name, array in described.arrays().items()}
    bt.write(arrays, tmp_path, shards=2)
    assert bt.describe(tmp_path).left_out == {"uint32": "arrays of uint32"}
    described.compare(tmp_path, arrays, {"uint32"})


def test_classes(tmp_path):
    label = bt.Feature("a/b", "int64", labels=("cat", "dog"))
    make_dataset(tmp_path, pa.table({"a/b": [0, 1]}), features=[label])
    bt.describe(tmp_path)
    assert (tmp_path / "a.b.labels.txt").read_text() == "cat\ndog\n"
    (field,) = loaded(tmp_path, "croissant.json")["recordSet"][1]["field"]
    assert field["description"] == "int64; classes: cat, dog"


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_croissant_has_the_hashes_of_the_files(tmp_path, compression):
    table = pa.table({"x": [1.5, 2.5], "m": [[[1], []], None]})
    make_dataset(tmp_path, table, splits={"a": [0], "b": [1]}, shards=1, compression=compression)
    done = bt.describe(tmp_path)
    assert ("dataset_info.json" in done.left_out) == bool(compression)
    found = loaded(tmp_path, "croissant.json")
    *files, shards = found["distribution"]
    assert shards["includes"] == [file["name"].replace("00000-", "*-") for file in files]
    for file in files:
        data = (tmp_path / file["contentUrl"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert file["contentSize"] == f"{len(data)} B"
    counts, rows = found["recordSet"]
    assert [[*row.values()] for row in counts["data"]] == [["a", 1], ["b", 1]]
    fields = {of["name"]: (of["dataType"], of.get("arrayShape")) for of in rows["field"]}
    types = {"x": ("cr:Float32", None), "m": ("cr:Int64", "-1,-1"), "split": ("sc:Text", None)}
    assert fields == types


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_damaged_shard_is_not_described(tmp_path, compression):
    bt.write({"x": [*range(20)]}, tmp_path, compression=compression)
    bt.describe(tmp_path)
    (shard,) = tmp_path.glob("*.tfrecord*")
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match="does not fit the manifest"):
        bt.describe(tmp_path)
    assert not OURS & names(tmp_path)


def test_a_job_that_changes_the_dataset_removes_what_was_described(tmp_path):
    table, out = pa.table({"id": [*range(20)]}), tmp_path / "out"
    write_file(tmp_path / "in" / "a.csv", table)
    command = ["write", str(tmp_path / "in"), str(out), "--describe"]
    ran = run(*command, "--detach")
    assert "--describe needs the end of the job" in ran.output
    ran = run(*command)
    assert "wrote croissant.json, features.json, dataset_info.json\n" in ran.output
    assert names(out) >= OURS
    assert bt.verify(out).ok
    bt.write(tmp_path / "in", out)  # nothing to do
    assert names(out) >= OURS
    (out / "croissant.json").write_text("mine")
    write_file(tmp_path / "in" / "b.csv", table)
    bt.append(tmp_path / "in", out)
    assert names(out) & OURS == {"croissant.json"}
    done = bt.describe(out)
    assert done.left_out == {"dataset_info.json": "it reads one generation: run compact first"}
    assert len(loaded(out, "croissant.json")["distribution"]) == 3
    bt.compact(out)
    assert not names(out) & OURS
    assert not bt.describe(out).left_out
    described.compare(out, {"id": range(20)}, set())
    bt.write(tmp_path / "in", out, overwrite=True)
    assert not names(out) & OURS


def test_a_dataset_that_a_job_writes_is_not_described(tmp_path):
    make_dataset(tmp_path, pa.table({"x": [1, 2]}))
    with open(tmp_path / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TargetExists):
            bt.describe(tmp_path)
