"""Progress of a running job, seen from the files of its temporary directory.

Every runner that shares the output's filesystem shows the same, whatever it tells by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from beam_tfrecord.errors import StorageError
from beam_tfrecord.storage import is_remote, list_files

if TYPE_CHECKING:
    from beam_tfrecord.progress import Progress

INTERVAL_S = 0.5
REMOTE_INTERVAL_S = 10.0


@contextlib.contextmanager
def watch(directory: str, input_bytes: int, progress: Progress | None) -> Iterator[None]:
    """Report how far the job in `directory` is, until the block ends.

    Args:
        directory: The job's temporary directory.
        input_bytes: Size of the input.
        progress: Where to report; None: nowhere.
    """
    if progress is None:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(
        target=_report, args=(directory, input_bytes, progress, done), daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _report(directory: str, input_bytes: int, progress: Progress, done: threading.Event) -> None:
    # To list an object store takes a request, and costs money.
    interval_s = REMOTE_INTERVAL_S if is_remote(directory) else INTERVAL_S
    while not done.wait(interval_s):
        spilled, written = written_bytes(directory)
        if written and spilled:
            progress.update("writing shards", written, max(spilled, written))
        elif written or spilled:
            progress.update("encoding", written + spilled)
        else:
            progress.update(f"reading {input_bytes:,} bytes", 0)


def written_bytes(directory: str) -> tuple[int, int]:
    """Return the bytes of runs, and of shards, that are there so far."""
    spilled = written = 0
    if is_remote(directory):
        return _remote_bytes(directory)
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.name.startswith("run-"):
                    spilled += entry.stat().st_size
                elif "shard-" in entry.name:
                    written += entry.stat().st_size
    return spilled, written


def _remote_bytes(directory: str) -> tuple[int, int]:
    spilled = written = 0
    # A look that fails is no reason to end a job.
    with contextlib.suppress(StorageError):
        for entry in list_files(directory):
            name = os.path.basename(entry.path)
            if name.startswith("run-"):
                spilled += entry.bytes
            elif "shard-" in name:
                written += entry.bytes
    return spilled, written
