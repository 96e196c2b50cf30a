"""The card in a real browser: nothing runs, nothing is loaded, and axe-core finds no fault."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from tests.cards.test_card import HOSTILE
from tests.helpers.made_datasets import make_dataset

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
AXE = Path(sys.prefix, "node_modules", "axe-core", "axe.min.js")
RUN = "axe.run().then(found => document.title = JSON.stringify(found.violations.map(v => v.id)))"


def opened(page, *options):
    """Return the page as the browser shows it, and what it says on the way."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=20000", *options, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.fixture
def hostile_page(tmp_path):
    columns = {name: list(HOSTILE) for name in HOSTILE}
    make_dataset(tmp_path / "d", pa.table({**columns, "n": list(range(len(HOSTILE)))}))
    return Path(bt.card(tmp_path / "d", title=HOSTILE[0], description=HOSTILE[3]))


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_runs_and_axe_finds_no_fault(tmp_path, hostile_page, width):
    shown, told = opened(hostile_page, f"--window-size={width},900")
    assert told == []
    assert "<script" not in shown
    assert "49" not in re.search("<title>(.*?)</title>", shown)[1]
    if not AXE.exists():
        pytest.skip("there is no axe-core: npm install axe-core@4")
    # Without its policy, which would not let the page run axe-core.
    page = re.sub("<meta http-equiv=Content-Security-Policy[^>]*>", "", hostile_page.read_text())
    judged = tmp_path / "judged.html"
    judged.write_text(f"{page}<script>{AXE.read_text()};{RUN}</script>")
    shown, _ = opened(judged, f"--window-size={width},900")
    assert json.loads(re.search("<title>(.*?)</title>", shown)[1]) == []
