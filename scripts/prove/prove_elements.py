"""No bundle that emits for seconds loses an element between stages, on any local runner."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

from beam_tfrecord.runners.start import find_prism
from tests.runners import slow_bundles

_SECONDS = 3.2


def prove(*, runs: int = 20) -> dict[str, Any]:
    """Return how many elements came through on each runner.

    A lost, torn or doubled element ends the proof.
    """
    logging.disable(logging.WARNING)
    ways = list(slow_bundles.WAYS)
    if (program := find_prism()) is not None:
        slow_bundles.WAYS["prism"] = ("prism", (f"--prism_location={program}",))
        ways.append("prism")
    found: dict[str, Any] = {"seconds a bundle emits": _SECONDS}
    for way in ways:
        elements = 0
        for number in range(runs):
            with tempfile.TemporaryDirectory() as scratch:
                # Every second run on a runner that is slow to send its input.
                slow = number % 2 == 1
                elements += slow_bundles.run(
                    way, Path(scratch), seconds=_SECONDS, sends_slowly=slow
                )
        found[way] = {"runs": runs, "elements by each way": elements, "lost": 0}
    return found
