"""A job killed at random moments leaves the old dataset or none, and goes on."""

from __future__ import annotations

import glob
import hashlib
import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.jobs import compose
from beam_tfrecord.sources.images import folders as listing

ROWS = 60_000
FILES = 6
# So small that a small input has many tasks, each with a mark of its own.
TASK_BYTES = 100_000

PICTURES = 1_500
PACK_FILES = 40

SHUFFLED = {"splits": "train=0.8,test=0.2", "shards": 8}
JOBS: dict[str, dict[str, Any]] = {
    "shuffle": SHUFFLED,
    "source": {"shuffle": False, "shard_size": "300kB", "compression": "gzip"},
    # These stay where they are until their shards are written.
    "pictures": SHUFFLED,
}


def prove(*, kills: int = 50, seed: int = 0) -> dict[str, Any]:
    """Kill jobs of both orders, and of pictures, so often each; return what was found.

    Raises:
        AssertionError: Something did not hold.
    """
    _use_small_tasks()
    found = {}
    for name, options in JOBS.items():
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "input"
            (_make_pictures if name == "pictures" else _make_tables)(source)
            found[name] = _prove(source, options, kills, random.Random(f"{seed} {name}"))
    return {"kills": kills, "seed": seed, **found}


def _prove(
    source: Path, options: dict[str, Any], kills: int, chance: random.Random
) -> dict[str, int]:
    directory, out = source.parent, source.parent / "out"
    _run(lambda: bt.write(source, directory / "old", seed=1, **options))
    began = time.monotonic()
    most = [0]
    whole_out = directory / "whole"
    _run(lambda: bt.write(source, whole_out, **options), lambda: _see_most(whole_out, most))
    seconds = time.monotonic() - began
    whole = _files(whole_out)
    counts = {"equal": 0, "ended_before_the_kill": 0, "old_left": 0, "none_left": 0, "resumed": 0}

    def write() -> None:
        bt.write(source, out, overwrite=True, **options)

    for number in range(kills):
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(directory / "old", out)
        moments = (
            _after(chance.uniform(0, 1.1 * seconds)),
            _at_files(out, chance.randint(1, most[0])),
            _while_publishing(out, chance.uniform(0, 0.03)),
        )
        killed = _run(write, moments[number % len(moments)])
        counts["ended_before_the_kill"] += not killed
        left = _dataset_at(out)
        assert left in (None, _manifest(directory / "old"), _manifest(whole_out))
        counts["old_left"] += left == _manifest(directory / "old")
        counts["none_left"] += left is None
        counts["resumed"] += any(out.glob(".tmp-*/task-*")) or any(out.glob(".tmp-*/done-*"))
        _run(write)
        differing = sorted({name for name, _ in _files(out).items() ^ whole.items()})
        assert not differing, f"these differ from those of an undisturbed job: {differing}"
        counts["equal"] += 1
    return counts


def _after(seconds: float) -> Callable[[], bool]:
    """Return a moment that is a time after now."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def _at_files(out: Path, count: int) -> Callable[[], bool]:
    """Return the moment at which a job's temporary directory has so many files."""
    return lambda: _temporary_files(out) >= count


def _while_publishing(out: Path, seconds: float) -> Callable[[], bool]:
    """Return a moment that is a time after the first shard could have its name."""
    began: list[float] = []

    def is_now() -> bool:
        if not began and _temporary_files(out, "publishing"):
            began.append(time.monotonic())
        return bool(began) and time.monotonic() >= began[0] + seconds

    return is_now


def _see_most(out: Path, most: list[int]) -> bool:
    most[0] = max(most[0], _temporary_files(out))
    return False


def _temporary_files(out: Path, pattern: str = "*") -> int:
    # Unlike Path.glob, this passes over a directory that goes away while it is looked into.
    return len(glob.glob(f".tmp-*/{pattern}", root_dir=out))


def _use_small_tasks() -> None:
    reader = compose._reader

    def small(*arguments: Any) -> Any:
        made = reader(*arguments)
        made.task_bytes = TASK_BYTES
        return made

    compose._reader = small
    # Several workers, however small the input is.
    compose.SMALL_BYTES = 0
    listing.PACK_FILES = PACK_FILES


def _make_pictures(directory: Path) -> None:
    random_numbers = np.random.default_rng(0)
    for number in range(PICTURES):
        path = directory / f"class{number % 5}" / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random_numbers.integers(0, 256, (40, 50, 3), np.uint8)
        Image.fromarray(pixels).save(path, compress_level=1)


def _make_tables(directory: Path) -> None:
    directory.mkdir()
    random_numbers = np.random.default_rng(0)
    for number in range(FILES):
        rows = ROWS // FILES
        ids = np.arange(rows) + number * rows
        texts = [f"row {i} of {number}" for i in range(rows)]
        table = pa.table({"id": ids, "x": random_numbers.standard_normal(rows), "text": texts})
        pq.write_table(table, directory / f"{number}.parquet", row_group_size=2_000)


def _run(work: Callable[[], object], is_time_to_kill: Callable[[], bool] | None = None) -> bool:
    """Do some work in a process of its own; return whether it was killed before its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    while is_time_to_kill is not None:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if is_time_to_kill():
            os.kill(child, signal.SIGKILL)
            is_time_to_kill = None
        time.sleep(0.001)
    else:
        _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0, "the job failed"
    return killed


def _manifest(directory: Path) -> bytes | None:
    path = directory / "manifest.json"
    return path.read_bytes() if path.exists() else None


def _dataset_at(directory: Path) -> bytes | None:
    """Return the manifest, all of whose files must be there with the right content."""
    manifest = _manifest(directory)
    if manifest is not None:
        faults = bt.verify(directory).faults
        # A job that was killed right after its manifest leaves files of the old dataset.
        assert not [fault for fault in faults if "not in the manifest" not in str(fault)], faults
    return manifest


def _files(directory: Path) -> dict[str, str]:
    """Return the hashes of all files but the one that differs from run to run."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "job.json"
    }
