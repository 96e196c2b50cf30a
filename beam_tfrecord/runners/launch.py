"""Jobs that run elsewhere: waited for, cancelled with whoever started them, or left alone.

A `Launch` says what is to become of the pipelines that are run inside it, and collects what is
known of them. Without one, pipelines are run and waited for.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from beam_tfrecord.transforms.mapping import MapFunction

CANCEL_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class RemoteJob:
    """A job that goes on whatever becomes of this process.

    Attributes:
        runner: Our name of its runner.
        id: By which its runner knows it.
        name: What people call it.
        page: Where to look at it; empty where there is no such place.
        cancel: Asks the runner to end it.
    """

    runner: str
    id: str
    name: str
    page: str
    cancel: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.runner} job {self.id}"


@dataclasses.dataclass
class Launch:
    """What is to become of pipelines, and what became of them.

    Attributes:
        waits: Wait for their end; else they are left to their runner.
        runs: Run them at all; else they are only built.
        modules: Names of the modules that the user's functions are from, for workers elsewhere.
        directory: Temporary directory of the job; empty where there is none.
        job: The last job that was started elsewhere.
        told: What ``job.json`` is to tell of how the job was run.
        built: The pipelines that were built but not run.
    """

    waits: bool = True
    runs: bool = True
    modules: tuple[str, ...] = ()
    directory: str = ""
    job: RemoteJob | None = None
    told: dict[str, Any] = dataclasses.field(default_factory=dict)
    built: list[Any] = dataclasses.field(default_factory=list)


_launch: contextvars.ContextVar[Launch | None] = contextvars.ContextVar("launch", default=None)
_under_way: list[RemoteJob] = []


@contextlib.contextmanager
def launching(launch: Launch) -> Iterator[Launch]:
    """Let the pipelines that are run inside the block follow `launch`."""
    token = _launch.set(launch)
    try:
        yield launch
    finally:
        _launch.reset(token)


def current_launch() -> Launch:
    """Return the launch around the caller; outside of any, a new one that runs and waits."""
    return _launch.get() or Launch()


@contextlib.contextmanager
def cancelled_with_us(job: RemoteJob) -> Iterator[None]:
    """Cancel a job where an interrupt ends the block; `cancel_all` knows of it meanwhile."""
    _under_way.append(job)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        cancel_all()
        raise
    finally:
        if job in _under_way:
            _under_way.remove(job)


def cancel_all(*, timeout_s: float = CANCEL_SECONDS) -> list[str]:
    """Cancel the jobs that this process waits for.

    Safe in a signal handler: the requests are made in a thread of their own, since the one that
    was interrupted may hold a lock of the client.

    Args:
        timeout_s: Seconds to wait for the runners' answers.

    Returns:
        A line about each job.
    """
    jobs, _under_way[:] = list(_under_way), []
    return [_cancel(job, timeout_s) for job in jobs]


def _cancel(job: RemoteJob, timeout_s: float) -> str:
    outcome = ["it did not answer"]

    def ask() -> None:
        try:
            job.cancel()
        except Exception as error:
            lines = str(error).strip().splitlines()
            outcome[0] = lines[0] if lines else type(error).__name__
        else:
            outcome[0] = ""

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not outcome[0]:
        return f"{job} is cancelled"
    where = f": see {job.page}" if job.page else ""
    return f"{job} could not be cancelled ({outcome[0]}) and goes on{where}"


def modules_of(settings: Any) -> tuple[str, ...]:
    """Return the names of the user's top-level modules that a job's functions need.

    These are the modules of the map and of the preprocessing function, unless their text travels
    with them, and what was imported from the same directory: such a file may import its neighbours.

    Args:
        settings: Of the job.
    """
    preprocessing = getattr(getattr(settings, "transform", None), "function", None)
    functions = (getattr(settings, "map", None), preprocessing)
    needed = [_needed_by(one) for one in functions if isinstance(one, MapFunction)]
    return tuple(sorted(set().union(*needed)))


def _needed_by(function: MapFunction) -> set[str]:
    if function.file is not None:
        return _loaded_from(os.path.dirname(function.file[0]))
    name = getattr(function.function, "__module__", None) or type(function.function).__module__
    top = name.partition(".")[0]
    return set() if top == "__main__" else {top, *_loaded_from(_place_of(top))}


def _place_of(top: str) -> str:
    """Return the directory that holds a top-level module; empty where there is none."""
    path = getattr(sys.modules.get(top), "__file__", None)
    if not isinstance(path, str):
        return ""
    inside = os.path.basename(path) == "__init__.py"
    return os.path.dirname(os.path.dirname(path) if inside else path)


def _loaded_from(directory: str) -> set[str]:
    """Return the names of loaded top-level modules that lie in a directory."""
    return {
        name
        for name in list(sys.modules)
        # Those that the package itself makes of the text of a file travel as that text.
        if directory
        and "." not in name
        and not name.startswith(("__", "_beam_tfrecord_map_"))
        and _place_of(name) == directory
    }
