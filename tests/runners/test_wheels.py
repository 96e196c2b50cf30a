"""Wheels for workers: whole, the same each time, and enough to run from."""

import csv
import io
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beam_tfrecord
from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs.preflight import modules_of
from beam_tfrecord.rows.user_function import load_map
from beam_tfrecord.runners import wheels
from beam_tfrecord.sources.csv.source import Csv

ROOT = Path(beam_tfrecord.__file__).parents[1]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(wheels.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, whose modules can be imported."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", [str(directory), *sys.path])
    return directory


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_what_runs_and_no_sources_of_the_kernel():
    found = names(wheels.package_wheel())
    assert {"beam_tfrecord/__init__.py", "beam_tfrecord/py.typed"} <= found
    assert not {name for name in found if name.endswith((".c", ".h", ".pyx", ".pyc"))}
    kernel = {name for name in found if name.endswith(".so")}
    built = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "beam_tfrecord").rglob("*.abi3.so")
    }
    assert kernel == built
    tag = Path(wheels.package_wheel()).stem.split("-", 2)[2]
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert tag.startswith(f"{python}-abi3-" if built else "py3-none-any")


def test_its_list_of_files_is_right():
    with zipfile.ZipFile(wheels.package_wheel()) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert [row[0] for row in rows] == archive.namelist()
        assert all(int(size) == archive.getinfo(name).file_size for name, _, size in rows[:-1])
    assert rows[-1] == [record, "", ""]


def test_equal_files_give_equal_bytes(cache):
    first = Path(wheels.package_wheel())
    data = first.read_bytes()
    first.unlink()
    assert wheels.package_wheel() == str(first)
    assert first.read_bytes() == data
    assert [path.name for path in cache.rglob("*") if path.is_file()] == [first.name]


def test_a_users_module_and_package_become_wheels(here):
    (here / "wheel_rows.py").write_text("FACTOR = 2\n")
    (here / "wheel_package").mkdir()
    (here / "wheel_package" / "__init__.py").write_text("")
    (here / "wheel_package" / "inner.py").write_text("")
    module = wheels.module_wheel("wheel_rows")
    package = wheels.module_wheel("wheel_package.inner")
    assert "wheel_rows.py" in names(module)
    assert {"wheel_package/__init__.py", "wheel_package/inner.py"} <= names(package)
    (here / "wheel_rows.py").write_text("FACTOR = 3\n")
    assert wheels.module_wheel("wheel_rows") != module


@pytest.mark.parametrize(
    "name", ["json", "numpy", "beam_tfrecord.jobs.api", "sys", "no_such_module"]
)
def test_what_is_installed_is_not_staged(name):
    assert wheels.module_wheel(name) is None


def test_what_a_map_function_needs(here):
    (here / "near_one.py").write_text("")
    (here / "near_two.py").write_text("")
    (here / "map_rows_one.py").write_text("import near_one\ndef keep(row):\n    return row\n")
    (here / "map_rows_two.py").write_text("import near_two\ndef keep(row):\n    return row\n")

    class Settings:
        source = Csv("x.csv")
        map = load_map("map_rows_one.py:keep")
        transform = None

    # The text of a file travels by itself; its neighbours do not.
    assert modules_of(Settings()) == ("near_one",)
    Settings.map = load_map("map_rows_two:keep")
    assert modules_of(Settings()) == ("map_rows_two", "near_one", "near_two")
    Settings.map = None
    assert modules_of(Settings()) == ()
    Settings.transform = SimpleNamespace(function=load_map("map_rows_two:keep"))
    assert modules_of(Settings()) == ("map_rows_two", "near_one", "near_two")


def test_a_wheel_of_ones_own(tmp_path):
    version = beam_tfrecord.__version__
    own = tmp_path / f"beam_tfrecord-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    own.write_bytes(b"")
    assert wheels.staged_wheels(PipelineOptions([f"--worker_wheel={own}"])) == [str(own)]
    assert wheels.staged_wheels(PipelineOptions(["--worker_wheel=none"])) == []
    for path, line in (
        (tmp_path / "beam_tfrecord-0.0.0-py3-none-any.whl", "is not one of this version: give one"),
        (tmp_path / f"beam_tfrecord-{version}-py3-none-any.whl", "there is no worker wheel"),
    ):
        with pytest.raises(UsageError, match=line):
            wheels.staged_wheels(PipelineOptions([f"--worker_wheel={path}"]))
