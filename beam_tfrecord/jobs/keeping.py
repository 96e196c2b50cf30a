"""Whether the files that records hold are left where they are until their shards are written."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from beam_tfrecord.runners import runs_here
from beam_tfrecord.storage import exists, put

if TYPE_CHECKING:
    from beam_tfrecord.jobs.listing import Listing
    from beam_tfrecord.jobs.settings import Settings

MARK = "keeps-files"
_PROBED_FILES = 15
# A filesystem of this machine takes a tenth of it, a server of files several times as long.
_SLOW_OPEN_S = 100e-6

_MEMORY_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def keeps_files(
    settings: Settings, directory: str, listing: Listing, *, attempt: int, is_resumable: bool
) -> bool:
    """Tell whether runs are to hold stubs (see `beam_tfrecord.exchange.stubs`).

    What an attempt began with, those after it go on with where they can; where they cannot, they
    begin anew, for marks of the other way are never found (see `resume.group_key`).

    Args:
        settings: The job.
        directory: Its temporary directory; it exists where the job is resumable.
        listing: Of the input.
        attempt: Number of this attempt, from 1.
        is_resumable: There may be another attempt.
    """
    if not can_keep(settings):
        return False
    if attempt > 1:
        return are_kept(directory)
    if listing.first is None or not is_cached(listing.bytes):
        return False
    if not open_at_once(settings.source.held_files(listing.first)):
        return False
    if is_resumable:
        put(os.path.join(directory, MARK), b"")
    return True


def are_kept(directory: str) -> bool:
    """Tell whether the job of a temporary directory leaves files where they are."""
    return exists(os.path.join(directory, MARK))


def can_keep(settings: Settings) -> bool:
    """Tell whether files are on this machine, stored as they are, and in an order of their own."""
    layout = settings.layout
    # Under a key many records may have one place, and are sorted by their bytes.
    is_by_origin = layout.shuffle and not layout.key
    is_as_read = settings.map is None and settings.transform is None and settings.limit is None
    if not (runs_here(settings.runner) and is_as_read and is_by_origin):
        return False
    return settings.source.holds_files


def is_cached(input_bytes: int) -> bool:
    """Tell whether what is read once is likely in the page cache: half of the free memory."""
    return 2 * input_bytes <= free_memory()


def open_at_once(paths: Sequence[str]) -> bool:
    """Tell whether files are opened without a word to a server, which costs more than a copy.

    Args:
        paths: Of some files, which were looked at before; a few of them are opened.
    """
    taken = []
    for path in paths[:_PROBED_FILES]:
        begun = time.perf_counter()
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        taken.append(time.perf_counter() - begun)
    return bool(taken) and statistics.median(taken) < _SLOW_OPEN_S


def free_memory() -> int:
    """Return the bytes of memory that this process and its page cache can have; 0: not known."""
    try:
        told = dict(
            line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if line
        )
        free = int(told["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0
    for path in _MEMORY_LIMITS:
        try:
            free = min(free, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue  # There is no such limit.
    return free
