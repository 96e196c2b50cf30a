"""The connections of this process that keep the moment of a job alive.

Whoever plans a job holds its snapshot: other connections can join it only while that connection
is open. It is closed when the last partition was read here, when the job ends, or with the
process; an importer that comes later fails, and with it the job.
"""

from __future__ import annotations

import atexit
import dataclasses
import threading

from beam_tfrecord.sources.sql.engine import Connection


@dataclasses.dataclass
class _Holder:
    connection: Connection
    job: str
    waiting: set[int]


_lock = threading.Lock()
_holders: dict[str, _Holder] = {}


def hold(snapshot: str, connection: Connection, *, job: str, partitions: int) -> None:
    """Keep a connection open until its partitions are read, or `release` is called.

    Args:
        snapshot: Token of the moment.
        connection: The connection that exported it.
        job: Who reads, for `release`.
        partitions: How many partitions there are to read.
    """
    with _lock:
        _holders[snapshot] = _Holder(connection, job, set(range(partitions)))


def is_held(snapshot: str) -> bool:
    """Tell whether this process holds a moment."""
    with _lock:
        return snapshot in _holders


def partition_done(snapshot: str, index: int) -> None:
    """Note that a partition was read to its end; the last one ends the moment."""
    with _lock:
        holder = _holders.get(snapshot)
        if holder is None:
            return
        holder.waiting.discard(index)
        if holder.waiting:
            return
        del _holders[snapshot]
    holder.connection.close()


def release(job: str | None = None) -> None:
    """Close what a job holds in this process; None: what any job holds."""
    with _lock:
        ended = [key for key, holder in _holders.items() if job in (None, holder.job)]
        holders = [_holders.pop(key) for key in ended]
    for holder in holders:
        holder.connection.close()


atexit.register(release)
