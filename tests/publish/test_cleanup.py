"""What a job killed while it published has left: ours goes, or goes back; anyone else's stays."""

import os

import pytest

from beam_tfrecord import native, storage
from beam_tfrecord.errors import LeaseLost, StorageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.job_state.job import Target
from beam_tfrecord.publish.publication import Note
from beam_tfrecord.publish.transaction import (
    clear_leftovers,
    clear_published,
    names_at,
    remove_replaced,
)
from tests.helpers.datasets import visible_names
from tests.helpers.records import framed, manifest_of

NEW = "data-00000-of-00002.tfrecord", "data-00001-of-00002.tfrecord"
OLD = "data-00000-of-00001.tfrecord"


@pytest.fixture
def killed(tmp_path):
    """Return a target where a job was killed after the first of two shards had its name."""
    directory = tmp_path / ".tmp-0a"
    directory.mkdir()
    for number in range(2):
        (directory / f"shard-{number}").write_text(f"shard {number}")
    shards = tuple((f"shard-{n}", NEW[n], len(f"shard {n}")) for n in range(2))
    (tmp_path / OLD).write_text("old")
    sidecars = (("labels.txt", f"{native.xxh64(b'cat', 0):016x}"),)
    Note(shards, sidecars, frozenset([OLD])).save(str(directory))
    os.replace(directory / "shard-0", tmp_path / NEW[0])
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def test_another_job_removes_all_of_it(killed):
    (killed / "labels.txt").write_text("cat")
    clear_leftovers(Target(str(killed)))
    assert os.listdir(killed) == ["notes.txt"]


def test_the_same_job_takes_its_shards_back(killed):
    directory = killed / ".tmp-0a"
    clear_leftovers(Target(str(killed)), keep=str(directory))
    assert visible_names(killed) == ["notes.txt"]
    assert (directory / "shard-0").read_text() == "shard 0"
    assert (directory / "shard-1").read_text() == "shard 1"


def test_files_of_others_that_have_names_of_ours_stay(killed):
    theirs = {NEW[0]: "put there since", NEW[1]: "shard x", "labels.txt": "dog"}
    for name, text in theirs.items():
        (killed / name).write_text(text)
    clear_leftovers(Target(str(killed)))
    assert {name: (killed / name).read_text() for name in theirs} == theirs


def test_files_that_another_dataset_names_stay(killed):
    """The killed job has named them, and they have the sizes that it noted."""
    record = framed(b"")[: len("shard 0")]
    (killed / NEW[0]).write_bytes(record)
    (killed / OLD).write_bytes(b"theirs")
    shards = tuple(Shard(name, 0, 0, "0" * 16) for name in (NEW[0], OLD))
    theirs = manifest_of(Schema(()), splits={"data": Split(shards)})
    (killed / "data-manifest.json").write_text(theirs.dumps())
    clear_leftovers(Target(str(killed)))
    assert (killed / NEW[0]).read_bytes() == record
    assert (killed / OLD).read_bytes() == b"theirs"


def test_nothing_outside_is_touched(killed, tmp_path_factory):
    precious = killed.parent / "precious"
    precious.write_text("mine")
    replaced = frozenset([OLD, "../precious", str(precious)])
    Note((), (), replaced).save(str(killed / ".tmp-0a"))
    clear_leftovers(Target(str(killed)))
    assert precious.read_text() == "mine"
    # Nothing that such a note says is believed.
    assert (killed / OLD).read_text() == "old"


def test_a_note_that_is_not_whole_is_no_obstacle(killed):
    (killed / ".tmp-0a" / "publishing").write_text('{"shards": [')
    clear_leftovers(Target(str(killed)))
    assert visible_names(killed) == [OLD, NEW[0], "notes.txt"]
    assert not (killed / ".tmp-0a").exists()


def test_what_tries_before_have_named_otherwise_goes_and_what_is_not_theirs_stays(killed):
    directory = str(killed / ".tmp-0a")
    (killed / NEW[1]).write_text("mine")
    only = (("again", OLD, 3),)
    note = Note(only, (), frozenset()).after(Note.load(directory))
    remove_replaced(Target(str(killed)), note, {OLD}, lambda: None)
    assert visible_names(killed) == [OLD, NEW[1], "notes.txt"]


def test_a_job_that_is_publishing_is_spared_and_one_that_may_be_at_work(killed):
    at_work = killed / ".tmp-0b" / "run-0"
    at_work.parent.mkdir()
    at_work.touch()
    clear_published(Target(str(killed)), str(killed / ".tmp-0a"), lambda: None)
    assert visible_names(killed) == [OLD, NEW[0], "notes.txt"]
    assert Note.load(str(killed / ".tmp-0a")) is not None
    clear_published(Target(str(killed)), str(killed / ".tmp-0c"), lambda: None)
    assert visible_names(killed) == ["notes.txt"]
    assert not (killed / ".tmp-0a").exists()
    assert at_work.exists()


def test_whoever_has_lost_the_lease_removes_nothing(killed):
    def check():
        raise LeaseLost("another job has it")

    with pytest.raises(LeaseLost):
        clear_published(Target(str(killed)), str(killed / ".tmp-0c"), check)
    assert visible_names(killed) == [OLD, NEW[0], "notes.txt"]
    assert (killed / ".tmp-0a" / "shard-1").exists()


def test_nothing_goes_where_a_manifest_cannot_be_read(killed):
    (killed / "manifest.json").write_text("edited")
    clear_leftovers(Target(str(killed)))
    assert visible_names(killed) == [OLD, NEW[0], "manifest.json", "notes.txt"]
    assert names_at(str(killed / "manifest.json")) is None
    assert names_at(str(killed / "none.json")) == set()


def test_a_manifest_that_cannot_be_read_now_is_not_taken_for_none(killed, monkeypatch):
    def read(path):
        if path.endswith("manifest.json"):
            raise StorageError("try again later")
        return storage.read_bytes(path)

    (killed / "manifest.json").touch()
    monkeypatch.setattr(storage, "read_small", read)
    with pytest.raises(StorageError, match="try again later"):
        clear_leftovers(Target(str(killed)))
    assert visible_names(killed) == [OLD, NEW[0], "manifest.json", "notes.txt"]
