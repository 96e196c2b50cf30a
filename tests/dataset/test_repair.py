"""`repair`: what is intact becomes a sound dataset, and what is lost is told to the byte."""

import json
import os
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import beam_tfrecord as bt
from beam_tfrecord.check.repair import Lost, repair
from beam_tfrecord.check.verify import verify
from beam_tfrecord.cli.main import cli
from beam_tfrecord.dataset.load import load
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from tests.helpers.datasets import shard_hashes
from tests.helpers.made_datasets import make_dataset
from tests.helpers.records import framed

TABLE = pa.table({"id": list(range(12)), "name": [f"n{row:02d}" for row in range(12)]})
SPLITS = {"train": list(range(8)), "test": [8, 9, 10, 11]}
FIRST = "train-00000-of-00002.tfrecord"


@pytest.fixture
def dataset(tmp_path):
    make_dataset(tmp_path / "in", TABLE, splits=SPLITS)
    return tmp_path / "in"


def ids(directory, split=None):
    return [row["id"] for row in load(directory, split=split).rows()]


def record_bytes(dataset):
    return (dataset / FIRST).stat().st_size // 4


def change(path, position, new):
    data = bytearray(path.read_bytes())
    data[position : position + len(new)] = new
    path.write_bytes(data)


def test_a_sound_dataset_is_copied(dataset, tmp_path):
    done = repair(dataset, tmp_path / "out")
    assert done.is_whole
    assert (done.lost, done.lost_examples) == ((), {})
    assert verify(tmp_path / "out").faults == ()
    assert bt.diff(dataset, tmp_path / "out").lines() == []
    assert str(bt.diff(dataset, tmp_path / "out")) == "the data is the same"
    assert str(done) == f"wrote {done.manifest.examples} intact examples, no example lost"
    assert (tmp_path / "out" / FIRST).read_bytes() == (dataset / FIRST).read_bytes()


def test_a_damaged_payload_costs_one_record(dataset, tmp_path):
    size = record_bytes(dataset)
    change(dataset / FIRST, size + 20, b"\xff")
    done = repair(dataset, tmp_path / "out")
    assert done.lost == (Lost(FIRST, size, 2 * size, 1, "damaged"),)
    assert str(done).splitlines() == [str(done.lost[0]), done.summary]
    assert str(done.lost[0]) == f"{FIRST}: bytes {size} to {2 * size}: at most 1 record lost"
    assert done.lost_examples == {FIRST: 1}
    assert ids(tmp_path / "out", "train") == [0, 2, 3, 4, 5, 6, 7]
    assert ids(tmp_path / "out", "test") == [8, 9, 10, 11]
    assert verify(tmp_path / "out").faults == ()
    job = json.loads((tmp_path / "out" / "job.json").read_text())
    assert job["repaired"]["lost_examples"] == {FIRST: 1}


def test_records_inside_of_a_damaged_record_are_not_taken_for_its_neighbours(tmp_path):
    inner = framed(b"inner")
    table = pa.table({"id": [0, 1], "blob": [inner * 3, b""]})
    make_dataset(tmp_path / "in", table, shards=1)
    shard = tmp_path / "in" / "data-00000-of-00001.tfrecord"
    change(shard, shard.read_bytes().index(inner) - 3, b"\0")
    repair(tmp_path / "in", tmp_path / "out")
    assert ids(tmp_path / "out") == [1]


def records_of(shard):
    """Return the framed records of a shard, all of one size."""
    data, size = shard.read_bytes(), shard.stat().st_size // 4
    return [data[at : at + size] for at in range(0, len(data), size)]


def repaired(dataset):
    """Repair by the command; return its exit code, what it lists, and its last line."""
    done = CliRunner().invoke(cli, ["repair", str(dataset), str(dataset.parent / "out")])
    return done.exit_code, done.stdout.splitlines(), done.stderr.splitlines()[-1]


UNLIKE = (
    "they do not match the shard's hash; some may be missing, duplicated, or bytes inside another "
    "record's value"
)


def test_a_copy_makes_no_count_deny_a_loss(dataset):
    one, two, three, four = records_of(dataset / FIRST)
    (dataset / FIRST).write_bytes(b"".join((one, two, one, b"#" * len(three), four)))
    size = len(one)
    assert repaired(dataset) == (
        1,
        [
            f"{FIRST}: bytes {3 * size} to {4 * size}: at most {size // 16} records lost",
            f"{FIRST}: found 4 of 4 records, 1 of them equal to others: {UNLIKE}",
        ],
        "wrote 12 intact examples, at least 1 example lost",
    )


@pytest.mark.parametrize(
    ("order", "found", "last"),
    [
        ((0, 1, 0, 3), f"found 4 of 4 records, 1 of them equal to others: {UNLIKE}", "at least 1"),
        (
            (0, 1, 2, 0, 3),
            f"found 5 of 4 records, 1 of them equal to others: {UNLIKE}",
            "more than the dataset originally had: some may be missing, others duplicated",
        ),
        ((3, 2, 1, 0), "no record is lost, but some are not in their original position", "no exam"),
    ],
)
def test_records_in_another_order_or_number_are_told(dataset, order, found, last):
    records = records_of(dataset / FIRST)
    (dataset / FIRST).write_bytes(b"".join(records[number] for number in order))
    code, lines, summary = repaired(dataset)
    assert (code, lines) == (1, [f"{FIRST}: {found}"])
    assert summary.startswith(f"wrote {8 + len(order)} intact examples, {last}")


def blobs(directory, values):
    """Write a dataset of one shard whose values are bytes; return the shard."""
    table = pa.table({"blob": values, "id": list(range(len(values)))})
    make_dataset(directory, table, shards=1)
    return directory / "data-00000-of-00001.tfrecord"


def test_records_that_come_from_inside_of_a_value_are_told(tmp_path):
    """Where the length of the record around them is damaged, too, nothing tells them apart."""
    other = blobs(tmp_path / "other", [b"x", b"y", b"z"]).read_bytes()
    shard = blobs(tmp_path / "in", [b"", b"1", other, b"2", b"3"])
    third = 0
    for _ in range(2):
        third += 16 + int.from_bytes(shard.read_bytes()[third : third + 8], "little")
    change(shard, third, b"\xff" * 9)
    done = repair(tmp_path / "in", tmp_path / "out")
    assert ids(tmp_path / "out") == [0, 1, 0, 1, 2, 3, 4]
    assert str(done.lost[-1]) == f"{shard.name}: found 7 of 5 records: {UNLIKE}"
    assert not done.has_all_examples


def test_a_missing_and_an_empty_shard_close_up(dataset, tmp_path):
    (dataset / FIRST).unlink()
    size = (dataset / "test-00001-of-00002.tfrecord").stat().st_size
    (dataset / "test-00001-of-00002.tfrecord").write_bytes(b"")
    done = repair(dataset, tmp_path / "out")
    assert done.lost == (
        Lost(FIRST, 0, 0, 4, "the file is missing"),
        Lost(
            "test-00001-of-00002.tfrecord",
            *(0, 0, 2),
            f"2 records lost: the data ends at byte 0 of {size}",
        ),
    )
    assert done.lost_examples == {FIRST: 4, "test-00001-of-00002.tfrecord": 2}
    assert [shard.path for shard in done.manifest.shards] == [
        "train-00000-of-00001.tfrecord",
        "test-00000-of-00001.tfrecord",
    ]
    assert verify(tmp_path / "out").ok


def test_a_damaged_gzip_stream_keeps_what_comes_before(tmp_path):
    table = pa.table({"id": list(range(20_000))})
    make_dataset(tmp_path / "in", table, shards=1, compression="GZIP")
    shard = tmp_path / "in" / "data-00000-of-00001.tfrecord.gz"
    change(shard, shard.stat().st_size // 2, b"\xff" * 8)
    done = repair(tmp_path / "in", tmp_path / "out")
    kept = ids(tmp_path / "out")
    assert 0 < len(kept) < 20_000
    assert kept == list(range(len(kept)))
    assert done.lost_examples == {shard.name: 20_000 - len(kept)}
    assert verify(tmp_path / "out").faults == ()


def test_a_written_dataset_keeps_rejects_and_settings(tmp_path):
    values = [2.0**1000 if row == 5 else row / 2 for row in range(30)]
    pq.write_table(pa.table({"id": list(range(30)), "x": values}), tmp_path / "in.parquet")
    bt.write(tmp_path / "in.parquet", tmp_path / "in", seed=3, max_rejects=1, shards=2)
    old = load(tmp_path / "in").manifest
    whole = repair(tmp_path / "in", tmp_path / "copy")
    assert whole.manifest == old
    shard = tmp_path / "in" / old.shards[0].path
    change(shard, 20, b"\xff")
    (tmp_path / "in" / "schema.json").write_text("damaged")
    done = repair(tmp_path / "in", tmp_path / "out")
    assert (done.manifest.seed, done.manifest.order) == (3, "shuffled")
    assert (done.manifest.rejects, done.manifest.fingerprint) == (old.rejects, "")
    assert done.manifest.schema["x"].observed is None
    assert verify(tmp_path / "out").faults == ()


def test_the_output_is_never_the_input_and_never_holds_anything(dataset, tmp_path):
    for output in (dataset, dataset / "out", tmp_path / "in" / ".." / "in"):
        with pytest.raises(UsageError, match="is inside the dataset"):
            repair(dataset, output)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(TargetExists, match="is not empty"):
        repair(dataset, tmp_path / "full")
    with pytest.raises(UsageError, match="'gs://bucket/x' is remote"):
        repair(dataset, "gs://bucket/x")
    with pytest.raises(UsageError, match="no dataset"):
        repair(tmp_path / "nothing", tmp_path / "out")
    change(dataset / "manifest.json", 30, b"#")
    with pytest.raises(DataError, match=r"manifest\.json"):
        repair(dataset, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_repair_that_was_killed_starts_again(dataset, tmp_path, monkeypatch):
    """At each file that gets its name, and in the middle of its work."""
    change(dataset / FIRST, 20, b"\xff")
    repair(dataset, tmp_path / "whole")
    whole = shard_hashes(tmp_path / "whole")
    replace, out = os.replace, tmp_path / "out"
    for last in range(100):
        left = iter(range(last))

        def replace_or_die(*paths, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            replace(*paths)

        monkeypatch.setattr(os, "replace", replace_or_die)
        try:
            repair(dataset, out)
            break
        except KeyboardInterrupt:
            monkeypatch.undo()
        (out / ".tmp-repair").mkdir(exist_ok=True)
        (out / ".lock").touch()
        if not (out / "manifest.json").exists():
            repair(dataset, out)
        assert shard_hashes(out) == whole
        assert verify(out).ok
        shutil.rmtree(out)
    assert last > 5


def test_the_command_lists_what_is_lost(dataset, tmp_path):
    run = CliRunner().invoke
    sound = run(cli, ["repair", str(dataset), str(tmp_path / "copy")])
    assert (sound.exit_code, sound.stdout) == (0, "")
    assert "wrote 12 intact examples, no example lost" in sound.stderr
    size = record_bytes(dataset)
    change(dataset / FIRST, 20, b"\xff")
    again = run(cli, ["repair", str(dataset), str(tmp_path / "out")])
    assert again.exit_code == 1
    assert again.stdout == f"{FIRST}: bytes 0 to {size}: at most 1 record lost\n"
    assert "wrote 11 intact examples, at least 1 example lost" in again.stderr
    shutil.rmtree(tmp_path / "out")
    as_json = run(cli, ["repair", "--json", str(dataset), str(tmp_path / "out")])
    assert json.loads(as_json.stdout)["lost_examples"] == {FIRST: 1}
