"""Carries errors on workers, the *faults* of a job, to the process that started the job.

A data error, such as a damaged file, occurs again in every retry. So the step that meets it writes
a file in the job's temporary directory, and ends without an error. All other steps look for such a
file and end early, and the job fails once, at its end. A fault of the machine (a full disk, no
memory, a lost connection) becomes an error of one line. So the runner retries, and the launcher
finds that line in the runner's traces.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from beam_tfrecord import storage
from beam_tfrecord.errors import BeamTFRecordError, DataError, StorageError, error_in, error_of_kind

# A file beside the faults: steps look for this one name instead of listing the directory.
_STOPPED = "stopped"
_LOOK_EVERY_S = 1.0
# On an object store, each look is a request, which costs money.
_LOOK_REMOTE_EVERY_S = 10.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _RecordedError(msgspec.Struct):
    type: str
    message: str


class Guarded:
    """A wrapper of a generator function that records data errors instead of raising them."""

    def __init__(
        self,
        function: Callable[[Any], Iterable[Any]],
        directory: str | None,
        *,
        instead: Iterable[Any] = (),
    ) -> None:
        self._function = function
        self._directory = directory
        self._instead = tuple(instead)
        self._is_stopped = self._is_there = False
        self._looked_s = -float("inf")

    def __call__(self, element: Any) -> Iterator[Any]:
        """Yield the outputs of the function; once the job has a fault, yield `instead`."""
        if self._directory is None:
            yield from self._function(element)
            return
        if not self.is_stopped():
            with machine_faults(self._directory):
                try:
                    yield from self._function(element)
                    return
                except StorageError:
                    raise
                except BeamTFRecordError as error:
                    record_fault(self._directory, error)
                    self._is_stopped = True
        yield from self._instead

    def is_stopped(self) -> bool:
        """Return whether the job has a fault or was interrupted, as of the last look."""
        if self._directory is None or self._is_stopped:
            return self._is_stopped
        now_s = time.monotonic()
        every_s = _LOOK_REMOTE_EVERY_S if storage.is_remote(self._directory) else _LOOK_EVERY_S
        if now_s - self._looked_s >= every_s:
            self._looked_s = now_s
            # An interrupted job that cannot be continued removes its directory.
            was_there, self._is_there = self._is_there, storage.exists(self._directory)
            is_gone = was_there and not self._is_there
            self._is_stopped = is_gone or storage.exists(os.path.join(self._directory, _STOPPED))
        return self._is_stopped


def record_fault(directory: str, error: BeamTFRecordError) -> None:
    """Write an error to a directory, so that all steps of the job end early."""
    storage.make_directory(directory)
    path = os.path.join(directory, f"fault-{uuid.uuid4().hex}.json")
    # A path in the message may be no UTF-8.
    message = error.message.encode("utf-8", "backslashreplace").decode()
    storage.put(path, msgspec.json.encode(_RecordedError(type(error).__name__, message)))
    stop(directory)


def stop(directory: str) -> None:
    """Let all steps of a job end early that run in threads or on other machines."""
    storage.put(os.path.join(directory, _STOPPED), b"")


def recorded_fault(directory: str) -> BeamTFRecordError | None:
    """Return the recorded error, or None; if there are several, the first by its text."""
    found = [_loaded_fault(os.path.join(directory, name)) for name in _fault_names(directory)]
    return min(found, key=lambda fault: (fault.message, type(fault).__name__), default=None)


def _loaded_fault(path: str) -> BeamTFRecordError:
    try:
        fault = msgspec.json.decode(storage.read_bytes(path), type=_RecordedError)
        return error_of_kind(fault.type, fault.message)
    except (msgspec.MsgspecError, RecursionError, DataError):
        return DataError(f"{path!r} was changed")


def forget_faults(directory: str) -> None:
    """Remove the faults of an earlier attempt."""
    for name in [*_fault_names(directory), _STOPPED]:
        with contextlib.suppress(FileNotFoundError):
            storage.remove(os.path.join(directory, name))


@contextlib.contextmanager
def machine_faults(directory: str) -> Iterator[None]:
    """Turn a fault of the machine that leaves the block into an error of one line."""
    try:
        yield
    except (StorageError, OSError, MemoryError, RuntimeError) as error:
        fault = machine_error(error, os.path.dirname(directory))
        if fault is None or fault is error:
            raise
        raise fault from error


def machine_error(error: BaseException, output: str) -> BeamTFRecordError | None:
    """Return an error of the machine, or of this package, as one line; None for other errors."""
    if getattr(error, "_tagged_with_step", False) and error.__context__ is not None:
        # Beam raises a copy of the exception, with the name of its step in the message.
        error = error.__context__
    if isinstance(error, BeamTFRecordError):
        return error
    if (raised := error_in(str(error))) is not None:
        return raised
    is_refused = isinstance(error, OSError) and error.errno == errno.ENOMEM
    # Python has no special class for the error that the system refuses a thread.
    is_threadless = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if isinstance(error, MemoryError) or is_refused or is_threadless:
        return StorageError(
            f"out of memory while writing {output!r}: give the job more, or fewer --workers"
        )
    if not isinstance(error, OSError):
        # Libraries in C++ have errors of their own for a full disk, with the text of the system.
        if (full := os.strerror(errno.ENOSPC)) not in str(error):
            return None
        error = OSError(errno.ENOSPC, full)
    if error.errno in _NO_ROOM:
        what = "file is too large for" if error.errno == errno.EFBIG else "no space left in"
        return StorageError(f"{what} {output!r} ({_reason(error)}): make room there")
    where = error.filename if error.filename is not None else output
    return StorageError(f"cannot access {where!r}: {_reason(error)}")


def _fault_names(directory: str) -> list[str]:
    return [
        name
        for name in storage.list_names(directory)
        if name.startswith("fault-") and name.endswith(".json")
    ]


def _reason(error: OSError) -> str:
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]
