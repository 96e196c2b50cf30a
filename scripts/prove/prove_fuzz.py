"""Broken bytes before the kernel's readers, under sanitizers; broken manifests and run footers."""

from __future__ import annotations

import json
import random
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.format import manifest
from beam_tfrecord.job_state.run_files import read_index
from tests.exchange.making import write_entries
from tests.format.test_manifest import MANIFEST
from tests.native.broken_bytes import mutated

ROOT = Path(__file__).parents[2]
# A document is read in Python, a thousand times as slow as the kernel reads its input.
DOCUMENT_SHARE = 100
_ENTRIES = [("a", 5, b"xx"), ("a", 300, b""), ("b", 5, b"zzz"), ("b", 2**64 - 1, b"w")]
_TELLING = b'\0\1\x7f\x80\xff"{}[],:0-9eEnt'


def prove(*, runs: int = 10_000_000, seed: int = 1) -> dict[str, Any]:
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


def prove_documents(inputs: int, seed: int) -> dict[str, dict[str, int]]:
    """Return how many broken documents were told as damaged, and how many were read all the same.

    Any other error than ours ends the proof.
    """
    draw = random.Random(seed)
    readers = {
        "manifest": _read_manifest,
        "manifest with a new hash": _read_resealed,
        "run footer": _read_run,
    }
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(write_entries(Path(scratch), _ENTRIES, ["a", "b"], shift=8, name="run").path)
        whole = run.read_bytes()
        sources = dict.fromkeys(readers, MANIFEST.dumps().encode()) | {"run footer": whole}
        return {
            name: _count(
                inputs,
                lambda name=name, read=read: read(
                    mutated(sources[name], draw, draw.randint(1, 4), _TELLING), run
                ),
            )
            for name, read in readers.items()
        }


def _count(inputs: int, read: Callable[[], None]) -> dict[str, int]:
    counts = {"inputs": inputs, "told as damaged": 0, "read": 0}
    for _ in range(inputs):
        try:
            read()
        except BeamTFRecordError:
            counts["told as damaged"] += 1
        else:
            counts["read"] += 1
    return counts


def _read_manifest(data: bytes, _: Path) -> None:
    manifest.Manifest.loads(data.decode("utf-8", "replace"))


def _read_resealed(data: bytes, _: Path) -> None:
    """Read a manifest of any form under a hash that is right."""
    try:
        value = json.loads(data.decode("utf-8", "replace"))
        text = manifest.sealed({key: item for key, item in value.items() if key != "xxh64"})
    except (ValueError, KeyError, TypeError, AttributeError):
        text = data.decode("utf-8", "replace")
    manifest.Manifest.loads(text)


def _read_run(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    read_index(str(path))
