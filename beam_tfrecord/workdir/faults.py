"""Errors on their way from a worker to whoever started the job.

Two kinds are kept apart. A fault of the data would come again however often a runner tries, so a
step that meets one writes it down in the job's temporary directory and ends in peace; all other
steps then end early, and the job fails once, at its end. A fault of the machine (a full disk, no
memory, a lost connection) is raised for the runner to try again, and noted in this process: a
runner wraps what a worker raises in traces of its own, beyond knowing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from beam_tfrecord import errors
from beam_tfrecord.errors import BeamTFRecordError, DataError, StorageError
from beam_tfrecord.storage import exists, list_names, make_directory, put, read_bytes, remove

# Written after the first fault: one name to look for, where there may be many files.
_STOPPED = "stopped"
_LOOK_EVERY_S = 1.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class recorded:  # noqa: N801 - reads as a function where it is used
    """Wrap a generator function so that its faults end the job, not the worker.

    Args:
        function: From one element to any number.
        directory: Where to write faults; None: they are raised.
        instead: What to yield where there was a fault, for a step that waits for one value.
    """

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

    def __call__(self, element: Any) -> Iterator[Any]:
        """Yield what the function makes of an element."""
        if self._directory is None:
            yield from self._function(element)
            return
        if not is_stopped(self._directory):
            with noted(self._directory):
                try:
                    yield from self._function(element)
                    return
                except StorageError:
                    raise
                except BeamTFRecordError as error:
                    record_fault(self._directory, error)
        yield from self._instead


def record_fault(directory: str, error: BeamTFRecordError) -> None:
    """Write an error to a directory, and let all steps of the job end early."""
    with _lock:
        _stopped[directory] = True
    make_directory(directory)
    path = os.path.join(directory, f"fault-{uuid.uuid4().hex}.json")
    put(path, json.dumps({"type": type(error).__name__, "message": str(error)}).encode())
    put(os.path.join(directory, _STOPPED), b"")


def recorded_fault(directory: str) -> BeamTFRecordError | None:
    """Return the error in a directory, or None; of several the first by its text."""
    found = []
    for name in _fault_names(directory):
        try:
            fault = json.loads(read_bytes(os.path.join(directory, name)))
            found.append((str(fault["message"]), str(fault["type"])))
        except (KeyError, TypeError, ValueError, RecursionError, DataError):
            found.append((f"{os.path.join(directory, name)!r} was changed", DataError.__name__))
    if not found:
        return None
    message, kind = min(found)
    made = getattr(errors, kind, BeamTFRecordError)
    is_ours = isinstance(made, type) and issubclass(made, BeamTFRecordError)
    return made(message) if is_ours else BeamTFRecordError(message)


def is_stopped(directory: str) -> bool:
    """Tell whether a fault was recorded, here or, about a second ago, anywhere else."""
    now = time.monotonic()
    with _lock:
        if _stopped.get(directory) or now - _looked_s.get(directory, -_LOOK_EVERY_S) < (
            _LOOK_EVERY_S
        ):
            return _stopped.get(directory, False)
        _looked_s[directory] = now
    found = exists(os.path.join(directory, _STOPPED))
    with _lock:
        _stopped[directory] = found
    return found


@contextlib.contextmanager
def noted(directory: str) -> Iterator[None]:
    """Remember the first fault of the machine that leaves the block."""
    try:
        yield
    except (StorageError, OSError, MemoryError, EOFError) as error:
        with _lock:
            _noted.setdefault(directory, error)
        raise


def machine_fault(directory: str, output: str) -> BeamTFRecordError | None:
    """Return what a fault of the machine in this process was, in one line; None: there was none.

    Args:
        directory: The job's temporary directory.
        output: Directory of the dataset, for the message.
    """
    with _lock:
        error = _noted.get(directory)
    return None if error is None else machine_error(error, output)


def machine_error(error: BaseException, output: str) -> BeamTFRecordError | None:
    """Return a fault of the machine as one line; None where it is none."""
    if getattr(error, "_tagged_with_step", False) and error.__context__ is not None:
        # Beam makes another exception of the same, with the name of its step in the message.
        error = error.__context__
    if isinstance(error, BeamTFRecordError):
        return error
    is_full = isinstance(error, OSError) and error.errno == errno.ENOMEM
    # Python raises no class of its own where the system refuses a thread.
    is_threadless = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    if isinstance(error, MemoryError) or is_full or is_threadless:
        return StorageError(
            f"out of memory while writing {output!r}: give the job more, or fewer workers "
            "(-- --direct_num_workers=1)"
        )
    if not isinstance(error, OSError):
        return None
    if error.errno in _NO_ROOM:
        what = "file is too large for" if error.errno == errno.EFBIG else "no space left in"
        return StorageError(f"{what} {output!r} ({_reason(error)}): make room there")
    where = error.filename if error.filename is not None else output
    return StorageError(f"cannot access {where!r}: {_reason(error)}")


def forget_faults(directory: str) -> None:
    """Remove the faults of an earlier attempt."""
    with _lock:
        _noted.pop(directory, None)
        _stopped.pop(directory, None)
        _looked_s.pop(directory, None)
    for name in [*_fault_names(directory), _STOPPED]:
        with contextlib.suppress(FileNotFoundError):
            remove(os.path.join(directory, name))


def _fault_names(directory: str) -> list[str]:
    return [
        name
        for name in list_names(directory)
        if name.startswith("fault-") and name.endswith(".json")
    ]


def _reason(error: OSError) -> str:
    text = error.strerror or str(error) or type(error).__name__
    return text[:1].lower() + text[1:]


_lock = threading.Lock()
_noted: dict[str, BaseException] = {}
_stopped: dict[str, bool] = {}
_looked_s: dict[str, float] = {}
