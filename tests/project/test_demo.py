"""The demo in a clone of its own: what it installs, prints and writes."""

import shutil
import subprocess

import pytest

from tests.helpers.repository import ROOT, tracked_files

MAX_DISTRIBUTIONS = 45
MAX_BYTES = 500 * 10**6


def test_help_is_a_usage_line_and_installs_nothing():
    done = subprocess.run(
        [ROOT / "scripts" / "demo", "--help"], capture_output=True, text=True, timeout=60
    )
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.startswith("usage: scripts/demo ")


@pytest.mark.slow
def test_demo_installs_the_core_alone_and_reads_a_dataset_back(tmp_path):
    for file in tracked_files():
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    done = subprocess.run(
        [tmp_path / "scripts" / "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert "wrote 336,776 rows in 2 splits" in done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()
    assert "carrier" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("Next, with your own file:")

    assert (tmp_path / ".venv" / "bin" / "pip").exists()
    (packages,) = (tmp_path / ".venv" / "lib").glob("python3*/site-packages")
    assert len(list(packages.glob("*.dist-info"))) <= MAX_DISTRIBUTIONS
    files = (file for file in (tmp_path / ".venv").rglob("*") if not file.is_symlink())
    assert sum(file.stat().st_size for file in files) <= MAX_BYTES
