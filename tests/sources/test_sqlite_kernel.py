"""Runs the tests of the SQLite row kernel where no other copy of SQLite is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_kernel_gives_what_python_gives():
    tests = Path(__file__).with_name("sqlite_kernel.py")
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tests)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
