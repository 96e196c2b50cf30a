"""The card of hostile names and values in Chromium: nothing runs or loads, and axe-core is content.

It needs Chromium (``apt-get install chromium``) and npm, which fetches axe-core.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import beam_tfrecord as bt
from tests.cards.test_card import HOSTILE
from tests.helpers.made_datasets import make_dataset

_WIDTHS = (390, 1280)
_RUN = "axe.run().then(found => document.title = JSON.stringify(found.violations.map(v => v.id)))"


def prove() -> dict[str, Any]:
    """Return what was opened; a message of the console or a fault that axe-core finds ends it."""
    with tempfile.TemporaryDirectory() as name:
        columns = {name: list(HOSTILE) for name in HOSTILE}
        rows = pa.table({**columns, "n": list(range(len(HOSTILE)))})
        make_dataset(Path(name) / "d", rows)
        page = Path(bt.card(Path(name) / "d", title=HOSTILE[0], description=HOSTILE[3]))
        npm = ["npm", "install", "--silent", "--prefix", name, "axe-core@4"]
        subprocess.run(npm, check=True)
        axe = (Path(name) / "node_modules" / "axe-core" / "axe.min.js").read_text()
        # Without its policy, which would not let the page run axe-core.
        text = re.sub("<meta http-equiv=Content-Security-Policy[^>]*>", "", page.read_text())
        judged = Path(name) / "judged.html"
        judged.write_text(f"{text}<script>{axe};{_RUN}</script>")
        for width in _WIDTHS:
            shown, told = _opened(page, width)
            title = re.search("<title>(.*?)</title>", shown)
            if told or "<script" in shown or title is None or "49" in title[1]:
                raise SystemExit(f"something ran at {width} pixels: {told or title}")
            shown, _ = _opened(judged, width)
            title = re.search("<title>(.*?)</title>", shown)
            if title is None or json.loads(title[1]):
                raise SystemExit(f"axe-core finds at {width} pixels: {title and title[1]}")
    return {"widths": list(_WIDTHS), "hostile texts": len(HOSTILE), "faults": 0}


def _opened(page: Path, width: int) -> tuple[str, list[str]]:
    """Return the page as the browser shows it, and what it says on the way."""
    browser = shutil.which("chromium") or "google-chrome"
    command = [browser, "--headless", "--no-sandbox", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=20000", f"--window-size={width},900", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
