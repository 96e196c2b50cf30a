"""The source of docs/own_source/, installed as a package of its own."""

import os
import re
import shutil
import subprocess
import sys

import pytest

import beam_tfrecord as bt
from tests.helpers import warm
from tests.helpers.repository import ROOT

# test_source_packages.py has the quick tests: this installs a package.
pytestmark = pytest.mark.slow
PROJECT = ROOT / "docs" / "own_source"


def run_in(folder, *words):
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
    assert ran.returncode == 0, ran.stdout + ran.stderr
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
    return folder


def test_its_files_are_known_by_their_suffix(folder):
    words = ("beam_tfrecord", "write", "a.lines", "out/")
    ran = run_in(folder, *words)
    assert "wrote 2 rows" in ran.stderr
    rows = [(row["line"], row["length"]) for row in bt.load(folder / "out").rows()]
    assert sorted(rows) == [("one", 3), ("three", 5)]
    assert "nothing to do" in run_in(folder, *words).stderr


def test_it_passes_the_tests_of_all_sources(folder):
    words = ("pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "--rootdir=project")
    for name in ("lines", "readings"):
        ran = run_in(folder, *words, f"project/test_{name}_source.py")
        assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) > 20
        assert "skipped" not in ran.stdout
