"""The memory and the time of all processes of a session, from /proc; 0 where that is missing.

The session is field 6 of `/proc/PID/stat` (proc(5)); the name, field 2, is in brackets and may hold
anything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def _members(session: int) -> Iterator[tuple[Path, list[str]]]:
    """Yield the directory in /proc of each process of a session, and its fields from 3 on."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the look at it.
        with contextlib.suppress(OSError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield entry.parent, fields


def session_rss(session: int) -> int:
    """Return the resident bytes (field 24); pages that two processes share count twice."""
    pages = sum(int(fields[21]) for _, fields in _members(session))
    return pages * os.sysconf("SC_PAGE_SIZE")


def session_pss(session: int) -> int:
    """Return the proportional bytes: a page that several processes share counts once in all."""
    kibibytes = 0
    for place, _ in _members(session):
        with contextlib.suppress(OSError):
            for line in (place / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kibibytes += int(line.split()[1])
    return kibibytes * 1024


def session_cpu(session: int) -> float:
    """Return the CPU seconds, also of processes that ended.

    User and system time are fields 14 and 15, and 16 and 17 those of children that ended.
    """
    ticks = sum(sum(map(int, fields[11:15])) for _, fields in _members(session))
    return ticks / os.sysconf("SC_CLK_TCK")
