"""TFRecord files of other programs: `load`, `show`, `head`, `verify` and `index`."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import beam_tfrecord as bt
from beam_tfrecord.check.show import head, show
from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.choose import detect_kind
from tests.helpers.records import damage_record, example, write_records

PAYLOADS = [
    example(n=number, f=[number / 2, 1.0], text=f"é{number}", image=b"\xff" * number)
    for number in range(300)
]


@pytest.fixture
def made(tmp_path):
    """Two files in the way of TensorFlow Datasets, and one below them."""
    directory = tmp_path / "in"
    write_records(directory / "x.tfrecord-00000-of-00002", PAYLOADS[:100])
    write_records(directory / "x.tfrecord-00001-of-00002", PAYLOADS[100:200])
    write_records(directory / "below/y.tfrecords", PAYLOADS[200:])
    return directory


def test_load_finds_types_and_reads_rows(made):
    found = bt.load(made)
    assert {f.name: f.type for f in found.schema.features} == {
        "f": pa.list_(pa.float32(), 2),
        "image": pa.binary(),
        "n": pa.int64(),
        "text": pa.string(),
    }
    assert len(found) == 300
    assert sorted(found.numpy()["n"].tolist()) == [*range(300)]
    assert found.numpy()["f"].shape == (300, 2)
    assert found.manifest.order == "source"
    one = bt.load(made / "x.tfrecord-00001-of-00002", columns=["n"])
    assert [row["n"] for row in one.rows()] == [*range(100, 200)]
    assert len(bt.load(f"{made}/x.tfrecord-*")) == 200


def test_rows_are_read_singly_after_index(made):
    with pytest.raises(UsageError, match="has no index"):
        bt.load(made)[3]
    assert sum(one.records for one in bt.index(made)) == 300
    found = bt.load(made)
    rows = list(found.rows())
    for number in (0, 99, 150, 299):
        assert found[number]["n"] == rows[number]["n"]


def test_show_and_head_need_no_manifest(made):
    shown = show(made)
    assert (shown["examples"], shown["order"]) == (300, "source")
    assert shown["source"]["kind"] == "tfrecord"
    assert [row["n"] for row in head(made / "below", 2)] == [200, 201]
    ran = CliRunner().invoke(cli, ["head", str(made / "below"), "-n", "1", "--json"])
    assert ran.exit_code == 0, ran.output
    assert '"text": "é200"' in ran.output
    # No program reads files without a manifest.
    ran = CliRunner().invoke(cli, ["show", str(made / "below")])
    assert ran.exit_code == 0, ran.output
    assert "to read it: beam_tfrecord.load(" in ran.output
    assert "--code" not in ran.output


def test_records_without_features_are_rows_without_columns(tmp_path):
    write_records(tmp_path / "in/a.tfrecord", [b"", b""])
    assert head(tmp_path / "in") == [{}, {}]
    ran = CliRunner().invoke(cli, ["head", str(tmp_path / "in")])
    assert ran.output == "2 rows without columns\n"
    bt.index(tmp_path / "in")
    found = bt.load(tmp_path / "in")
    assert (found[1], found[:2]) == ({}, [{}, {}])


def test_a_glob_needs_no_suffix(made, tmp_path):
    write_records(tmp_path / "odd/part-1", PAYLOADS[:2])
    (tmp_path / "odd/notes.txt").write_text("not of this package, and no record either")
    write_records(tmp_path / "kaggle/1.tfrec", PAYLOADS[:2])
    for pattern, rows in (
        *((made / "*", 300), (tmp_path / "odd/p*", 2), (tmp_path / "odd/part-1", 2)),
        *((tmp_path / "kaggle", 2), (tmp_path / "kaggle/1.tfrec", 2)),
    ):
        assert detect_kind(pattern) == "tfrecord"
        assert show(pattern)["examples"] == rows
        assert len(head(pattern, 1)) == 1
        assert bt.verify(pattern).examples == rows
        assert sum(one.records for one in bt.index(pattern)) == rows
    with pytest.raises(UsageError, match="no file matches this pattern"):
        bt.load(f"{tmp_path}/odd/q*")
    with pytest.raises(UsageError, match=r"it matches directories: pass '.*/od\*/\*\.parquet'"):
        bt.load(f"{tmp_path}/od*")
    with pytest.raises(UsageError, match="no dataset at"):
        bt.load(f"{tmp_path}/odd/*.txt")
    (tmp_path / "odd/notes.txt").unlink()
    with pytest.raises(UsageError, match="odd': check the path, pass --from, or give a pattern"):
        bt.write(tmp_path / "odd", tmp_path / "out")
    with pytest.raises(UsageError, match=r"TFRecord files without a suffix, pass '.*/odd/\*'$"):
        show(tmp_path / "odd")


def test_verify_reads_every_record_and_says_what_it_cannot_know(made):
    found = bt.verify(made)
    assert (found.ok, found.shards, found.examples) == (True, 3, 300)
    assert any("there is no manifest" in note for note in found.notes)
    ran = CliRunner().invoke(cli, ["verify", str(made)])
    assert ran.exit_code == 0, ran.output


def test_verify_names_every_fault(made):
    damage_record(made / "x.tfrecord-00000-of-00002", 7)
    damage_record(made / "x.tfrecord-00000-of-00002", 20)
    write_records(made / "z.tfrecord", [example(n=1), b"hello"])
    write_records(made / "zz.tfrecord", [example(n="text")])
    faults = [str(fault) for fault in bt.verify(made).faults]
    assert len(faults) == 4
    assert faults[0].startswith("x.tfrecord-00000-of-00002: byte ")
    assert "(record 7): the checksum of the payload does not match" in faults[0]
    assert "(record 20)" in faults[1]
    assert faults[2] == "z.tfrecord: record 1: not a plain tf.train.Example " + (
        "(a SequenceExample, or another message)"
    )
    assert faults[3].startswith("zz.tfrecord: feature 'n' is bytes in zz.tfrecord but int64 in")
    assert bt.verify(made).examples == 300 - 2 + 3
    ran = CliRunner().invoke(cli, ["verify", str(made)])
    assert ran.exit_code == 1


def test_damage_is_one_line_with_the_place(made):
    damage_record(made / "below/y.tfrecords", 7)
    with pytest.raises(DataError, match=r"below/y\.tfrecords is damaged at byte \d+ \(record 7\)"):
        bt.load(made)


def test_compressed_files_are_read_but_not_beside_plain_ones(tmp_path):
    write_records(tmp_path / "in/a.tfrecord.gz", PAYLOADS[:50])
    assert [row["n"] for row in bt.load(tmp_path / "in").rows()] == [*range(50)]
    with pytest.raises(UsageError, match="is compressed"):
        bt.index(tmp_path / "in")
    write_records(tmp_path / "in/b.tfrecord", PAYLOADS[50:])
    assert bt.verify(tmp_path / "in").ok
    with pytest.raises(
        UsageError, match=r"a\.tfrecord\.gz and b\.tfrecord are not both compressed"
    ):
        bt.load(tmp_path / "in")


def test_a_dataset_without_its_manifest_is_no_directory_of_others(tmp_path):
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    bt.write(tmp_path / "a.parquet", tmp_path / "ds")
    (tmp_path / "ds/manifest.json").unlink()
    message = "it has shards but no .*; else restore the manifest from a copy"
    for call in (bt.load, bt.verify, lambda path: bt.write(path, tmp_path / "out")):
        with pytest.raises(UsageError, match=message):
            call(tmp_path / "ds")
    assert len(bt.load(f"{tmp_path}/ds/*.tfrecord")) == 2


def test_shards_of_a_dataset_keep_its_types_and_splits(tmp_path):
    times = pa.array([1, 2, 3, 4], pa.timestamp("us"))
    pq.write_table(pa.table({"when": times}), tmp_path / "a.parquet")
    bt.write(tmp_path / "a.parquet", tmp_path / "ds", splits="a=0.5,b=0.5")
    found = bt.load(f"{tmp_path}/ds/*.tfrecord")
    assert found.schema["when"].type == pa.timestamp("us")
    assert {row["when"] for row in found.rows()} == {
        row["when"] for row in bt.load(tmp_path / "ds").rows()
    }
    assert set(found.manifest.splits) <= {"a", "b"}
