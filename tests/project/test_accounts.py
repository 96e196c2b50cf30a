"""Runs of the tests are judged by their CPU and by what they leave behind."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.helpers.repository import ROOT

TESTS = """
import tempfile, time
import pytest

def test_costly():
    end = time.process_time() + 2.1
    while time.process_time() < end:
        pass

def test_untidy():
    tempfile.mkdtemp(prefix="left-")

def test_of_a_package():
    pytest.importorskip("no_such_package")

def test_cheap():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(("tier", "is_judged"), [("quick", True), ("all", False)])
def test_quick_tests_have_a_budget_and_leave_nothing(tmp_path, tier, is_judged):
    (tmp_path / "temporary").mkdir()
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    place = {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")}
    flags = {"BEAM_TFRECORD_REQUIRE_ALL": "1", "BEAM_TFRECORD_TESTS": tier}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "not package", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, **place, **flags},
        capture_output=True,
        text=True,
    )
    assert "3 passed" in done.stdout
    assert done.returncode == is_judged
    assert ("left in the temporary directory: left-" in done.stdout) is is_judged
    assert ("s of CPU, of at most 2: test_it.py::test_costly" in done.stdout) is is_judged


@pytest.mark.slow
def test_a_run_names_the_packages_that_it_lacks(tmp_path):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "package or cheap", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BEAM_TFRECORD_REQUIRE_ALL": ""},
        capture_output=True,
        text=True,
    )
    assert "left out 1 (no_such_package): scripts/test --all has everything" in done.stdout
    assert done.returncode == 0
