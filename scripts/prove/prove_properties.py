"""The properties of the kernel's encoders and readers, with many random examples of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODULES = ("test_encode", "test_examples", "test_hashes", "test_records")


def prove(*, examples: int = 1000) -> dict[str, Any]:
    """Return what was run.

    Raises:
        SystemExit: A property does not hold; the message has the example.
    """
    files = [str(ROOT / "tests" / "native" / f"{module}.py") for module in MODULES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "BEAM_TFRECORD_EXAMPLES": str(examples)},
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout[-5000:])
    return {"examples": examples, "modules": MODULES}
