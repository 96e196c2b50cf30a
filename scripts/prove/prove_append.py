"""Jobs that append, killed at random moments or two at once, add each row once."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from prove_kill import _after, _at_files, _run, _use_small_tasks, _while_publishing

import beam_tfrecord as bt

ROWS = 5_000
SPLITS = "train=0.8,test=0.2"


def prove(*, kills: int = 50, pairs: int = 50, seed: int = 0) -> dict[str, Any]:
    """Kill jobs that append so often, and let so many pairs of them run at once.

    Raises:
        AssertionError: A row was lost, doubled or moved, or a file does not fit the manifest.
    """
    _use_small_tasks()
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        for number in range(4):
            ids = np.arange(ROWS) + number * ROWS
            pq.write_table(pa.table({"id": ids, "x": ids / 7}), directory / f"{number}.parquet")
        _run(lambda: bt.write(directory / "0.parquet", directory / "old", splits=SPLITS))
        every = [directory / f"{number}.parquet" for number in range(4)]
        _run(lambda: bt.write(every, directory / "one", splits=SPLITS))
        expected, out = _ids(directory / "one"), directory / "out"
        counts = {"killed": 0, "appended_before_the_kill": 0}
        began = time.monotonic()
        shutil.copytree(directory / "old", out)
        _run(lambda: bt.append(every, out))
        seconds = time.monotonic() - began
        for number in range(kills + pairs):
            shutil.rmtree(out)
            shutil.copytree(directory / "old", out)
            moments = (
                _after(chance.uniform(0, 1.1 * seconds)),
                _at_files(out, chance.randint(1, 12)),
                _while_publishing(out, chance.uniform(0, 0.02)),
            )
            if number < kills:
                counts["killed"] += _run(lambda: bt.append(every, out), moments[number % 3])
            else:
                pauses = [chance.uniform(0, 0.3) for _ in range(2)]
                _run(lambda pauses=pauses: _two_at_once(every, out, pauses))
                assert bt.Manifest.load(out).examples == 3 * ROWS, "one of two jobs is lost"
            manifest = bt.Manifest.load(out)  # there is one at every moment
            assert manifest.examples % ROWS == 0, "a part of a job's rows is in the dataset"
            counts["appended_before_the_kill"] += number < kills and manifest.examples > ROWS
            _run(lambda: bt.append(every, out))
            assert _ids(out) == expected, "rows are lost, doubled or moved"
            faults = bt.verify(out).faults
            assert not faults, faults
    return {"kills": kills, "pairs": pairs, "seed": seed, "rows": ROWS, **counts}


def _two_at_once(every: list[Path], out: Path, pauses: list[float]) -> None:
    """Append two files at once, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_append_after, args=(pause, path, out))
        for pause, path in zip(pauses, every[1:3], strict=True)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0, "a job that appends has failed"


def _append_after(pause: float, path: Path, out: Path) -> None:
    time.sleep(pause)
    bt.append(path, out)
    os._exit(0)  # without waiting for threads of the pipeline


def _ids(path: Path) -> dict[str, list[int]]:
    names = bt.load(path).split_names
    return {name: sorted(bt.load(path, split=name).numpy()["id"].tolist()) for name in names}
