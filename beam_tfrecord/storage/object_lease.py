"""Holds the lease of an output directory on an object store: the right of one job to write there.

The lease is an object that a job creates only if there is none, and renews while the job lives. The
object holds JSON: the holder, and a counter of renewals. A job that finds the lease of another
machine watches the counter instead of comparing clocks. If the counter moves, the other job lives.
If the counter stands still for `EXPIRY_SECONDS`, the job replaces the lease, unless the object
changes first. A holder on this machine is looked up by its process number, so a killed job can be
resumed at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import posixpath
import socket
import threading
import time
import uuid
from collections.abc import Iterator

from beam_tfrecord.errors import StorageError, TargetExists
from beam_tfrecord.storage.object_store import ObjectStore

RENEWAL_SECONDS = 10.0
EXPIRY_SECONDS = 60.0
_LOOK_SECONDS = 1.0

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Holder:
    """The job that holds a lease."""

    token: str
    machine: str
    process: int
    started: str
    renewals: int = 0

    def dumps(self) -> bytes:
        """Return the content of the lease object."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def loads(cls, text: bytes) -> Holder | None:
        """Return the holder in the content of an object, or None if it is not a lease."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            return None

    def lives(self) -> bool | None:
        """Return whether the job still runs; None if it ran on another machine."""
        return self.started == _start_of(self.process) if self.machine == _machine() else None


def this_process() -> Holder:
    """Return a new holder: this process."""
    pid = os.getpid()
    return Holder(uuid.uuid4().hex, _machine(), pid, _start_of(pid))


def _machine() -> str:
    """Return a name that is unique to this boot of this machine, and to this container on it."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts.append(file.read().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _start_of(process: int) -> str:
    """Return the start of a process, ``running`` if it is unknown, or "" if none runs."""
    try:
        with open(f"/proc/{process}/stat") as file:
            # The name in parentheses may hold anything; field 22 counts from before it.
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        pass
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "running"


@contextlib.contextmanager
def held(store: ObjectStore, path: str) -> Iterator[str]:
    """Hold the lease at a URL until the block ends; yield its token."""
    holder = this_process()
    version = _acquire(store, path, holder)
    ended = threading.Event()
    renewal = threading.Thread(
        target=_renew, args=(store, path, holder, version, ended), name="renew-lease", daemon=True
    )
    renewal.start()
    try:
        yield holder.token
    finally:
        ended.set()
        renewal.join()
        # A lease that cannot be removed expires.
        with contextlib.suppress(StorageError, FileNotFoundError):
            seen, last = _look(store, path)
            if last is not None and last.token == holder.token:
                store.remove_one(path, seen)


def _acquire(store: ObjectStore, path: str, mine: Holder) -> str:
    """Create the lease object, or replace one that nobody renews; return its version."""
    replaced = watched = ""
    since = 0.0
    while True:
        version = store.put_matching(path, mine.dumps(), replaced)
        if version is not None:
            return version
        seen, theirs = _look(store, path)
        if replaced or not seen:
            # Another job has just replaced or removed it.
            replaced = ""
            time.sleep(min(_LOOK_SECONDS, EXPIRY_SECONDS / 4))
            continue
        lives = None if theirs is None else theirs.lives()
        if theirs is not None and (lives or (watched and watched != seen)):
            raise TargetExists(
                f"another job is writing to {posixpath.dirname(path)!r} (process {theirs.process} "
                f"on {theirs.machine.partition(' ')[0]}): wait for it, or choose another output"
            )
        is_expired = watched == seen and time.monotonic() - since >= EXPIRY_SECONDS
        if is_expired or lives is False:
            replaced, watched = seen, ""
            continue
        if not watched:
            _LOGGER.warning(
                "another machine held %s: watching for up to %.0f s whether its job still lives",
                posixpath.dirname(path),
                EXPIRY_SECONDS,
            )
        if watched != seen:
            watched, since = seen, time.monotonic()
        time.sleep(min(_LOOK_SECONDS, EXPIRY_SECONDS / 4))


def _look(store: ObjectStore, path: str) -> tuple[str, Holder | None]:
    """Return version and holder of a lease; version "" if it is gone or has just changed."""
    entry = store.status(path)
    if entry is None:
        return "", None
    data = bytearray(entry.bytes)
    try:
        store.read_into(path, 0, memoryview(data), entry.version)
    except (FileNotFoundError, EOFError, StorageError):
        return "", None
    return entry.version, Holder.loads(bytes(data))


def _renew(
    store: ObjectStore, path: str, holder: Holder, version: str, ended: threading.Event
) -> None:
    """Renew a lease every `RENEWAL_SECONDS`, until `ended` is set or the lease is lost."""
    while not ended.wait(RENEWAL_SECONDS):
        renewed = dataclasses.replace(holder, renewals=holder.renewals + 1)
        try:
            new_version = store.put_matching(path, renewed.dumps(), version)
        except StorageError as error:
            # `Lease.check`, before each final write, finds out whether the lease was lost.
            _LOGGER.warning("cannot renew the lease: %s", error)
            continue
        if new_version is None:
            _LOGGER.warning("another job has taken %s over", path)
            return
        holder, version = renewed, new_version
