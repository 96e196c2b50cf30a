"""The kernel's readers before broken bytes, under sanitizers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from prove_documents import prove_documents

ROOT = Path(__file__).parents[2]
# A document is read in Python, a thousand times as slow as the kernel reads its input.
DOCUMENT_SHARE = 100


def prove(*, runs: int, seed: int) -> dict[str, Any]:
    """Return what the fuzzer told; raise where it found something."""
    done = subprocess.run(
        [ROOT / "scripts" / "fuzz", str(runs), str(seed)],
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout + done.stderr
    if done.returncode:
        raise SystemExit(told[-5000:])
    kernel = {"inputs": runs, "seed": seed, "sanitizers": ["address", "undefined"]} | (
        _of_libfuzzer(told) or {"fuzzer": "own mutations", "told": told.strip()}
    )
    return {"kernel": kernel, "documents": prove_documents(runs // DOCUMENT_SHARE, seed)}


def _of_libfuzzer(told: str) -> dict[str, Any] | None:
    states = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", told)
    executed = re.search(r"number_of_executed_units: (\d+)", told)
    if not states or not executed:
        return None
    edges, features, corpus = map(int, states[-1])
    return {
        "fuzzer": "libFuzzer",
        "executed": int(executed[1]),
        "edges_covered": edges,
        "features_covered": features,
        "corpus": corpus,
    }
