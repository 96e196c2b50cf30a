"""``index``: indexes of older datasets and of TFRecord files that other programs wrote."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.records.shard_index import ShardIndex
from tests.helpers.cli_stand_ins import run
from tests.helpers.records import damage_record, example, write_records


@pytest.fixture
def dataset(tmp_path):
    table = pa.table({"id": range(300), "text": ["x" * (row % 50) for row in range(300)]})
    pq.write_table(table, tmp_path / "in.parquet")
    bt.write(tmp_path / "in.parquet", tmp_path / "out", splits="a=0.6,b=0.4", shards="a=3,b=3")
    return tmp_path / "out"


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_indexes_of_a_dataset_are_those_that_it_was_written_with(dataset):
    before = contents(dataset / "_index")
    assert len(before) == 6
    shutil.rmtree(dataset / "_index")
    with pytest.raises(UsageError, match="beam-tfrecord index"):
        bt.load(dataset)[0]
    done = bt.index(dataset)
    assert contents(dataset / "_index") == before
    assert sum(one.records for one in done) == 300
    assert {Path(one.index).name for one in done} == set(before)
    assert not bt.verify(dataset).faults


def test_a_file_of_another_program_is_indexed(tmp_path):
    payloads = [bytes([number]) * number for number in range(200)]
    path = tmp_path / "foreign.tfrecord"
    write_records(path, payloads)
    (done,) = bt.index(path, dali=tmp_path / "dali")
    assert done.to_json() == {
        "path": str(path),
        "index": str(tmp_path / "_index" / "idx-foreign"),
        "records": 200,
        "bytes": path.stat().st_size,
    }
    assert ShardIndex.load(done.index).records == 200
    # DALI's tfrecord2idx prints the position and the size of each framed record.
    lines = (tmp_path / "dali" / "foreign.tfrecord.idx").read_text().splitlines()
    data = path.read_bytes()
    found = [data[at + 12 : at + size - 4] for at, size in (map(int, one.split()) for one in lines)]
    assert found == payloads


def test_two_files_do_not_share_an_index(tmp_path):
    for name in ("x", "x.tfrecord"):
        write_records(tmp_path / name, [name.encode()])
    with pytest.raises(UsageError, match=r"two files would have the index '_index/idx-x': rename"):
        bt.index(f"{tmp_path}/x*")


def test_what_cannot_be_indexed(dataset, tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="no dataset at"):
            bt.index(path)
    bt.write(tmp_path / "in.parquet", tmp_path / "zipped", compression="gzip")
    for path in (tmp_path / "zipped", next((tmp_path / "zipped").glob("*.gz"))):
        with pytest.raises(UsageError, match="is compressed, so a reader cannot begin in the mid"):
            bt.index(path)
    shard = dataset / "a-00001-of-00003.tfrecord"
    data = bytearray(shard.read_bytes())
    shard.write_bytes(data[:-1])
    before = contents(dataset / "_index")
    with pytest.raises(DataError, match=r"a-00001-of-00003.tfrecord.*byte"):
        bt.index(dataset)
    assert contents(dataset / "_index") == before
    other = dataset / "a-00000-of-00003.tfrecord"
    shutil.copy(other, shard)
    with pytest.raises(DataError, match="does not fit the manifest: run verify"):
        bt.index(dataset)


def test_files_of_others_that_cannot_be_indexed_are_named(tmp_path):
    path = tmp_path / "in/a.tfrecord"
    write_records(path, [example(n=1), example(n=2)])
    damage_record(path, 1)
    with pytest.raises(DataError, match=r"a\.tfrecord.*record 1"):
        bt.index(path)
    assert [found.name for found in path.parent.iterdir()] == ["a.tfrecord"]
    write_records(tmp_path / "in/b.tfrecord.gz", [example(n=3)])
    with pytest.raises(UsageError, match=r"/b\.tfrecord\.gz' is compressed.* plain files alone"):
        bt.index(tmp_path / "in")


def test_damaged_and_missing_indexes_are_faults(dataset):
    (dataset / "_index" / "idx-b-00000-of-00003").unlink()
    broken = dataset / "_index" / "idx-a-00002-of-00003"
    data = bytearray(broken.read_bytes())
    data[5] ^= 1
    broken.write_bytes(data)
    named = {str(fault.path) for fault in bt.verify(dataset).faults}
    assert named == {"_index/idx-b-00000-of-00003", "_index/idx-a-00002-of-00003"}
    bt.repair(dataset, dataset.parent / "repaired")
    assert not bt.verify(dataset.parent / "repaired").faults


def test_the_command_prints_what_it_did(dataset):
    assert run("index", str(dataset)).stderr.endswith("indexed 6 files, 300 records\n")
    done = json.loads(run("index", str(dataset), "--json").stdout)
    assert sum(one["records"] for one in done) == 300
