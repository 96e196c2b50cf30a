"""Directories that code is loaded from are the user's own."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from beam_tfrecord.base.scratch import private_directory
from beam_tfrecord.runners import boot_worker

NOBODY = 65534


def owned_by_another(path):
    path.mkdir()
    if os.getuid():
        pytest.skip("only root can give a directory to another user")
    os.chown(path, NOBODY, NOBODY)


def open_to_others(path):
    path.mkdir()
    path.chmod(0o777)


def open_to_the_group(path):
    path.mkdir()
    path.chmod(0o770)


def link_of_another(path):
    (path.parent / "target").mkdir()
    path.symlink_to(path.parent / "target")
    if os.getuid():
        pytest.skip("only root can give a link to another user")
    os.lchown(path, NOBODY, NOBODY)


def link_to_anothers(path):
    owned_by_another(path.parent / "target")
    path.symlink_to(path.parent / "target")


def file(path):
    path.touch()


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Let temporary files be in a directory of the test."""
    monkeypatch.delenv(boot_worker.CACHE, raising=False)
    directory = tmp_path / "tmp"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_own_directory_is_made_for_the_user_alone(tmp_path):
    path = Path(private_directory(str(tmp_path / "own")))
    assert path == tmp_path / "own"
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert private_directory(str(path)) == str(path)


def test_own_link_to_an_own_directory_is_followed(tmp_path):
    (tmp_path / "target").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert private_directory(str(tmp_path / "link")) == str(tmp_path / "link")


@pytest.mark.parametrize(
    "plant",
    [owned_by_another, open_to_others, open_to_the_group, link_of_another, link_to_anothers, file],
)
def test_directory_that_others_may_write_to_is_refused(tmp_path, plant):
    plant(tmp_path / "own")
    with pytest.raises(OSError, match="own"):
        private_directory(str(tmp_path / "own"))


@pytest.mark.parametrize("plant", [owned_by_another, open_to_others, link_of_another])
def test_packages_are_not_installed_where_others_may_write(temporary, plant):
    plant(temporary / f"beam-tfrecord-packages-{os.getuid()}")
    with pytest.raises(boot_worker.PackageError, match=f"set {boot_worker.CACHE} to another"):
        boot_worker._own_directory()
