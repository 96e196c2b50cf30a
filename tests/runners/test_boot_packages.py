"""Packages that are sent to workers: unpacked once for each content, and only where they belong."""

import multiprocessing
import os
import time
import zipfile
from pathlib import Path

import pytest

from beam_tfrecord.runners.boot_worker import PackageError, installed


def wheel(directory, name="mine-1-py3-none-any.whl", **files):
    path = directory / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in files.items():
            archive.writestr(member, text)
    return str(path)


def names_in(directory):
    root = Path(directory)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_wheel_is_laid_out_as_an_installer_would(tmp_path):
    path = wheel(
        tmp_path,
        **{
            "mine/__init__.py": "",
            "mine-1.data/purelib/other.py": "",
            "mine-1.data/scripts/run": "",
            "mine-1.dist-info/METADATA": "Name: mine",
        },
    )
    site = installed([path], str(tmp_path / "cache"))
    assert names_in(site) == ["mine-1.dist-info/METADATA", "mine/__init__.py", "other.py"]


def test_the_same_content_is_installed_once_and_another_beside_it(tmp_path):
    cache = str(tmp_path / "cache")
    path = wheel(tmp_path, **{"mine.py": "a = 1"})
    first = installed([path], cache)
    Path(first, "mine.py").write_text("touched")
    assert installed([path], cache) == first
    assert Path(first, "mine.py").read_text() == "touched"
    second = installed([wheel(tmp_path, **{"mine.py": "a = 2"})], cache)
    assert second not in (None, first)


@pytest.mark.slow
def test_workers_that_start_at_once_share_one_installation(tmp_path):
    path = wheel(tmp_path, **{f"m{i}.py": "x" * 1000 for i in range(200)})
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        sites = pool.starmap(installed, [([path], str(tmp_path / "cache"))] * 4)
    assert len(set(sites)) == 1
    assert len(names_in(sites[0])) == 200
    assert [name for name in os.listdir(tmp_path / "cache") if name.startswith("making-")] == []


def test_what_is_no_package_is_left_aside(tmp_path):
    (tmp_path / "pickled_main_session").write_text("")
    assert installed([str(tmp_path / "pickled_main_session")], str(tmp_path / "cache")) is None
    assert not (tmp_path / "cache").exists()


def test_a_wheel_for_another_platform_is_refused(tmp_path):
    path = wheel(tmp_path, "mine-1-cp27-cp27m-win32.whl", **{"mine.py": ""})
    with pytest.raises(PackageError, match="is for cp27-cp27m-win32, which this machine is not"):
        installed([path], str(tmp_path / "cache"))


def test_a_source_package_is_refused_with_the_way_round(tmp_path):
    (tmp_path / "mine-1.tar.gz").write_bytes(b"")
    with pytest.raises(PackageError, match=r"'mine-1\.tar\.gz' is a source package: make a wheel"):
        installed([str(tmp_path / "mine-1.tar.gz")], str(tmp_path / "cache"))


def test_a_file_never_leaves_its_directory(tmp_path):
    path = wheel(tmp_path, **{"../../evil.py": ""})
    with pytest.raises(PackageError, match="outside of itself"):
        installed([path], str(tmp_path / "cache"))
    assert list(tmp_path.rglob("evil.py")) == []


def test_what_nobody_has_used_for_a_week_is_removed(tmp_path):
    cache = str(tmp_path / "cache")
    old = installed([wheel(tmp_path, **{"mine.py": "old"})], cache)
    week_ago_s = time.time() - 8 * 24 * 3600
    os.utime(old, (week_ago_s, week_ago_s))
    assert installed([wheel(tmp_path, **{"mine.py": "new"})], cache) is not None
    assert not os.path.exists(old)
