"""Measures the seconds until Dataflow has a job, with stand-ins of the service and of a bucket.

``.venv/bin/python scripts/bench/dataflow.py`` prints the seconds of every run as JSON; with
``--save`` it writes them to ``scripts/bench/results`` too. Nothing is asked of the real service.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from saving import save

ROOT = Path(__file__).parents[2]
RUNS = 5


def measure() -> dict[str, Any]:
    """Start `RUNS` jobs by the command line, each in a process of its own."""
    sys.path.insert(0, str(ROOT))
    # The stand-ins of the tests, which have no types.
    stand_ins: Any = importlib.import_module("tests.runners.dataflow_cloud")
    seconds: list[float] = []
    with stand_ins.emulated_storage() as storage, stand_ins.cloud_of(storage) as cloud:
        cloud.service.hangs = True
        command = [sys.executable, "-m", "beam_tfrecord", *cloud.words("--detach")]
        environment = {**os.environ, "STORAGE_EMULATOR_HOST": storage}
        for _ in range(RUNS):
            began_s = time.monotonic()
            subprocess.run(command, env=environment, check=True, capture_output=True)
            seconds.append(round(time.monotonic() - began_s, 2))
        if len(cloud.service.jobs) != RUNS:
            raise RuntimeError(f"{len(cloud.service.jobs)} jobs arrived where {RUNS} were sent")
    return {"submit_s": seconds, "median_s": sorted(seconds)[RUNS // 2], "cores": os.cpu_count()}


def main() -> None:
    """Measure and print."""
    found = measure()
    print(json.dumps(found, indent=1))
    if "--save" in sys.argv[1:]:
        save("dataflow", found)


if __name__ == "__main__":
    main()
