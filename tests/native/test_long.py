"""The readers under sanitizers; `scripts/prove/run fuzz` tries many more inputs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _fuzz(runs, seed):
    """Fuzz the readers; return how many inputs were Examples, and how many fitted."""
    done = subprocess.run(
        [str(ROOT / "scripts" / "fuzz"), str(runs), str(seed)],
        capture_output=True,
        text=True,
        env={**os.environ, "CC": "gcc"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    told = re.fullmatch(
        rf"{runs} inputs, (\d+) of them Examples, (\d+) as the rules say\n", done.stdout
    )
    assert told, done.stdout
    return tuple(map(int, told.groups()))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.slow
def test_readers_bear_broken_bytes_under_sanitizers():
    # Enough of them must get through, or the fuzzer looks at nothing but refusals.
    examples, fitting = _fuzz(30_000, 1)
    assert examples > 3_000
    assert fitting > 500
