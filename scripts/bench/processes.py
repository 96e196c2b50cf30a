"""The memory and the time of all processes of a session, from /proc; 0 where that is missing.

The session is field 6 of `/proc/PID/stat` (proc(5)); the name, field 2, is in brackets and may hold
anything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

Process = tuple[Path, list[str]]


def _all() -> Iterator[Process]:
    """Yield the directory in /proc of each process, and its fields from 3 on."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the look at it.
        with contextlib.suppress(OSError):
            yield entry.parent, entry.read_text(errors="replace").rpartition(")")[2].split()


def _members(session: int) -> Iterator[Process]:
    return (process for process in _all() if int(process[1][3]) == session)


def descendants(above: int) -> list[Process]:
    """Return the children of a process, theirs, and so on."""
    processes, found = list(_all()), list[Process]()
    known = {str(above)}
    while known:
        children = [process for process in processes if process[1][1] in known]
        known = {place.name for place, _ in children}
        found += children
    return found


def session_rss(session: int) -> int:
    """Return the resident bytes (field 24); pages that two processes share count twice."""
    pages = sum(int(fields[21]) for _, fields in _members(session))
    return pages * os.sysconf("SC_PAGE_SIZE")


def session_pss(session: int) -> int:
    """Return the proportional bytes: a page that several processes share counts once in all."""
    return pss_of(_members(session))


def pss_of(processes: Iterable[Process]) -> int:
    """Return the proportional bytes of some processes."""
    kibibytes = 0
    for place, _ in processes:
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
