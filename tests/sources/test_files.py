"""Listing: which files are found, under which names, in which order."""

import dataclasses
import os
from pathlib import Path

import pytest

from beam_tfrecord.errors import InputChanged, UsageError
from beam_tfrecord.sources.base import wanted_columns
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.sources.tfrecord_files import ShardFile


def _make(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def _list(*paths, suffixes=(".csv",)):
    return list(list_files([str(path) for path in paths], suffixes))


def _names(*paths, suffixes=(".csv",)):
    return [file.name for file in _list(*paths, suffixes=suffixes)]


def test_directory_is_searched_in_byte_order(tmp_path):
    _make(tmp_path, "b.csv", "a10.csv", "a9.csv", "Z.csv", "a/x.csv", "é.csv", "a-b.csv", "c.txt")
    assert _names(tmp_path) == [
        *("Z.csv", "a-b.csv", "a/x.csv", "a10.csv", "a9.csv", "b.csv", "é.csv")
    ]


def test_directory_takes_compressed_files_too(tmp_path):
    _make(tmp_path, "a.csv.gz", "b.CSV.ZST", "c.gz", "d.csv.zip")
    assert _names(tmp_path) == ["a.csv.gz", "b.CSV.ZST"]


def test_a_file_named_several_times_comes_once(tmp_path, monkeypatch):
    _make(tmp_path, "a.csv", "b.csv")
    monkeypatch.chdir(tmp_path)
    mixture = ("a.csv", str(tmp_path / "a.csv"), "./x/../a.csv", "*.csv", ".")
    (tmp_path / "x").mkdir()
    assert _names(*mixture) == ["a.csv", "b.csv"]


def test_hidden_names_are_left_out_below_a_directory_or_glob(tmp_path):
    hidden = (".a.csv", "_b.csv", "_temporary/0/c.csv", ".git/d.csv", "x/.y/e.csv")
    _make(tmp_path, "a.csv", *hidden)
    assert _names(tmp_path) == ["a.csv"]
    assert _names(tmp_path / "**" / "*.csv") == ["a.csv"]


def test_hidden_file_is_taken_where_it_is_named(tmp_path):
    _make(tmp_path, "_x/_a.csv", "_x/b.csv")
    assert _names(tmp_path / "_x/_a.csv") == ["_a.csv"]
    assert _names(tmp_path / "_x" / "*.csv") == ["b.csv"]


def test_links_are_followed_but_not_in_circles(tmp_path):
    _make(tmp_path, "real/a.csv", "in/b.csv")
    (tmp_path / "in/linked.csv").symlink_to(tmp_path / "real/a.csv")
    (tmp_path / "in/sub").symlink_to(tmp_path / "real")
    (tmp_path / "in/up").symlink_to(tmp_path / "in")
    assert _names(tmp_path / "in") == ["b.csv", "linked.csv", "sub/a.csv"]


def test_partition_above_a_plain_directory_is_none(tmp_path):
    _make(tmp_path, "user=bob/data/a.csv")
    (file,) = _list(tmp_path / "user=bob/data")
    assert (file.name, file.partitions) == ("a.csv", ())


CHECK = "check the path, pass --from"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nope.csv", "cannot read 'nope.csv': no such file: check the path"),
        ("nope*.csv", "cannot read 'nope*.csv': no file matches this pattern: check the path"),
        ("empty", f"no .csv or .tsv files in directory 'empty': {CHECK}, or give a pattern"),
    ],
)
def test_nothing_found_is_one_clear_line(path, message, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        _names(path, suffixes=(".csv", ".tsv"))
    assert str(caught.value) == message


def test_broken_link_is_refused(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "gone.csv")
    for path in (tmp_path, tmp_path / "a.csv"):
        with pytest.raises(UsageError, match=r"a\.csv' \(No such file or directory"):
            _names(path)


def test_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(UsageError, match="it is not a regular file"):
        _names(tmp_path / "a.csv")


def test_name_that_is_not_text_is_refused(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    Path(path).write_bytes(b"x")
    with pytest.raises(UsageError, match="is not utf-8: rename the file"):
        _names(path)


def test_an_inode_alone_is_no_change_while_reading(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    (file,) = _list(path)
    time, _, inode = file.state.partition("-")
    for change in (
        lambda state: dataclasses.replace(file, state=state),
        lambda state: ShardFile(file.path, file.name, file.bytes, file.version, state=state),
    ):
        # As a mount of an object store gives it after it has forgotten the file.
        change(f"{time}-{int(inode) + 1}").check()
        with pytest.raises(InputChanged, match=r"a\.csv was changed while it was read"):
            change(f"{int(time) - 1}-{inode}").check()


def test_the_likely_path_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "penguins.csv").touch()
    with pytest.raises(UsageError, match="did you mean 'penguins"):
        list(list_files(["pengiuns.csv"], [".csv"]))


def test_very_many_columns_are_checked_at_once():
    names = tuple(map(str, range(200_000)))
    assert wanted_columns(names) == names
    with pytest.raises(UsageError, match="column '7' is selected twice"):
        wanted_columns([*names, "7"])
