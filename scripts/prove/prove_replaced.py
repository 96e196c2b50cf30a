"""Datasets are replaced step by step, and by whole jobs, while every reader reads."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import beam_tfrecord as bt
from tests.dataset.replacing import (
    NEW,
    READERS,
    TF_READERS,
    WAYS,
    Datasets,
    Reader,
    outcome,
    try_reader,
)

KINDS = ("plain", "gzip", "stage")
ROWS = 20_000

# Writes two datasets over each other in turn, without end.
WRITER = """
import itertools, sys
import beam_tfrecord as bt
for number in itertools.count():
    bt.write(sys.argv[1 + number % 2], sys.argv[3], shards=5 + number % 3, overwrite=True)
"""


def prove(*, trials: int = 200, seconds: int = 120, seed: int = 0) -> dict[str, Any]:
    """Return how readers ended: with the old rows, the new ones, or an error that says why.

    So many trials of each reader and replacement, then so many seconds beside jobs that write.

    Raises:
        AssertionError: Rows of two datasets came without an error, or an error says nothing.
    """
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for kind in KINDS:
            datasets = Datasets(Path(directory, kind), kind)
            for name, reader in {**READERS, **TF_READERS}.items():
                ends: collections.Counter[str] = collections.Counter()
                for number in range(trials):
                    for new in NEW:
                        ends[try_reader(datasets, new, reader, seed + number)] += 1
                    for way in WAYS[1:]:
                        ends[try_reader(datasets, "same", reader, seed + number, way)] += 1
                found[f"{kind}: {name}"] = dict(sorted(ends.items()))
        found["beside jobs"] = _beside_jobs(Path(directory, "jobs"), seconds)
    return {"trials": trials * (len(NEW) + len(WAYS) - 1), "seed": seed, "ends": found}


def _beside_jobs(directory: Path, seconds: int) -> dict[str, int]:
    directory.mkdir()
    sources = []
    for value in (1, 2):
        source = directory / f"{value}.parquet"
        pq.write_table(pa.table({"number": np.arange(ROWS), "of": np.full(ROWS, value)}), source)
        sources.append(str(source))
    out = directory / "out"
    bt.write(sources[0], out, shards=5)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, *sources, str(out)],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stderr=subprocess.DEVNULL,
    )
    ends: collections.Counter[str] = collections.Counter()
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for reader in (*READERS.values(), *TF_READERS.values()):
                while not (out / "manifest.json").exists():
                    time.sleep(0.01)
                ends[_read(out, reader)] += 1
        assert writer.poll() is None, "the writer has ended"
    finally:
        writer.kill()
        writer.wait()
    return dict(sorted(ends.items()))


def _read(out: Path, reader: Reader) -> str:
    seen: collections.Counter[int] = collections.Counter()
    error: Exception | None = None
    try:
        for number, rows in enumerate(reader.read(out)):
            seen.update(rows)
            if number % 300 == 0:
                # As a model that trains: long enough for a job to come in between.
                time.sleep(0.05)
    except Exception as raised:
        error = raised
    return outcome(reader, seen, error, {1: ROWS, 2: ROWS})
