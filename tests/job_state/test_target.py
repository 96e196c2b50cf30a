from pathlib import Path

import pytest

from beam_tfrecord.errors import TargetExists, UsageError
from beam_tfrecord.job_state.job import Target, check_free, directory_target, sink_target


def test_a_directory_is_a_directory_however_it_is_spelt(tmp_path):
    for spelling in (tmp_path, str(tmp_path), f"{tmp_path}/", f"file://{tmp_path}"):
        assert sink_target(spelling) == Target(str(tmp_path))
        assert directory_target(spelling) == Target(str(tmp_path))
    assert sink_target(f"{tmp_path}/new/") == Target(str(tmp_path / "new"))
    assert directory_target(tmp_path / "new") == Target(str(tmp_path / "new"))


def test_relative_paths_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert directory_target("out") == Target(str(tmp_path / "out"))
    assert sink_target("part") == Target(str(tmp_path), "part")


def test_files_and_filesystems_for_input_alone_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file: give a directory"):
        directory_target(tmp_path / "file")
    for target in (directory_target, sink_target):
        with pytest.raises(UsageError, match="cannot write to 'hdfs://host/out'"):
            target("hdfs://host/out")


def test_leftovers_are_of_this_target_alone(tmp_path):
    for name in (".tmp-0a", ".tmp-1b", ".tmp-a-2c", ".tmp-a-b-3d", "tmp-4e", ".tmp-a[b]-5f"):
        (tmp_path / name).mkdir()
    (tmp_path / ".tmp-6f").touch()

    def leftovers(prefix):
        return [Path(path).name for path in Target(str(tmp_path), prefix).leftovers()]

    assert leftovers(None) == [".tmp-0a", ".tmp-1b"]
    assert leftovers("a") == [".tmp-a-2c"]
    assert leftovers("a-b") == [".tmp-a-b-3d"]
    assert leftovers("a[b]") == [".tmp-a[b]-5f"]


def test_a_dataset_is_not_overwritten_unasked(tmp_path):
    (tmp_path / "notes.txt").touch()
    check_free(Target(str(tmp_path)), overwrite=False)
    (tmp_path / "manifest.json").touch()
    check_free(Target(str(tmp_path), "part"), overwrite=False)
    check_free(Target(str(tmp_path)), overwrite=True)
    with pytest.raises(TargetExists, match="already holds another dataset: pass --overwrite"):
        check_free(Target(str(tmp_path)), overwrite=False)
    (tmp_path / "part-manifest.json").touch()
    with pytest.raises(TargetExists, match="/part' already holds another dataset: pass"):
        check_free(Target(str(tmp_path), "part"), overwrite=False)


def test_an_output_whose_name_is_not_utf8_is_refused_before_anything_is_written():
    with pytest.raises(UsageError, match=r"the name of output '.*ut' is not utf-8: choose another"):
        directory_target("\udcc3\udcb6ut")


@pytest.mark.parametrize("output", ["", "file://"])
def test_an_empty_output_is_refused_and_not_the_current_directory(output):
    with pytest.raises(UsageError, match="a path is empty: give a file, a directory or a URL"):
        directory_target(output)
    with pytest.raises(UsageError, match="a path is empty"):
        sink_target(output)
