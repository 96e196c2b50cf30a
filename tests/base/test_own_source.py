"""The source of docs/own_source/, installed as a package of its own."""

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

import beam_tfrecord as bt
from tests.helpers import warm
from tests.helpers.repository import ROOT

# test_source_packages.py has the quick tests: this installs a package.
pytestmark = pytest.mark.slow
PROJECT = ROOT / "docs" / "own_source"
Run = Callable[..., subprocess.CompletedProcess[str]]


def run_in(folder, *words, ends=0):
    """Run a module of Python in a folder, with what is installed there."""
    env = {**os.environ, "PYTHONPATH": f"{folder / 'installed'}{os.pathsep}{ROOT}"}
    python = (sys.executable,) if words[0] == "pip" else warm.program()
    ran = subprocess.run(
        [*python, "-P", "-m", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == ends, ran.stdout + ran.stderr
    return ran


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with some lines, and the package installed."""
    folder = tmp_path_factory.mktemp("own_source")
    # A copy, because the build leaves files beside the sources.
    shutil.copytree(PROJECT, folder / "project", ignore=shutil.ignore_patterns("__pycache__"))
    flags = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    run_in(folder, "pip", "install", "-q", *flags, "--target", "installed", "./project")
    (folder / "a.lines").write_text("one\nthree\n")
    (folder / "b.txt").write_text("\n")
    return folder


@pytest.fixture
def run(folder):
    """The function `run_in` for the folder."""
    return functools.partial(run_in, folder)


def test_its_files_are_known_by_their_suffix(run, folder):
    ran = run("beam_tfrecord", "write", "a.lines", "out/")
    assert "wrote 2 rows" in ran.stderr
    rows = [(row["line"], row["length"]) for row in bt.load(folder / "out").rows()]
    assert sorted(rows) == [("one", 3), ("three", 5)]
    assert "nothing to do" in run("beam_tfrecord", "write", "a.lines", "out/").stderr


def test_it_is_a_kind_of_input(run, folder):
    run("beam_tfrecord", "write", "b.txt", "from/", "--from", "lines", "--columns", "line")
    assert [*bt.load(folder / "from").rows()] == [{"line": ""}]
    wrong = run("beam_tfrecord", "schema", "b.txt", "--from", "line", ends=2)
    assert "did you mean 'lines'?" in wrong.stderr


def test_its_options_are_those_of_its_fields(run):
    option = "--source-option"
    wrong = run("beam_tfrecord", "write", "a.lines", "no/", option, "longest=5", ends=1)
    assert "the line at byte 4 of a.lines has more than 5 bytes" in wrong.stderr
    wrong = run("beam_tfrecord", "schema", "a.lines", option, "longest=six", ends=2)
    assert "--source-option longest='six' is not JSON: " in wrong.stderr


def test_it_passes_the_tests_of_all_sources(run):
    words = ("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir=project")
    for name in ("lines", "readings"):
        ran = run(*words, f"project/test_{name}_source.py")
        assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) > 20
        assert "skipped" not in ran.stdout


@pytest.mark.parametrize(("name", "lines"), [("lines", 100), ("readings", 60)])
def test_it_is_short(name, lines):
    assert len((PROJECT / f"{name}_source.py").read_text().splitlines()) < lines
