"""`Launch`: what happens to the pipelines that run inside it, and cancelling jobs on an interrupt.

Without a launch, pipelines are run and waited for. This module does not import Beam, so that jobs
can be described before Beam is loaded.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

CANCEL_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class RemoteJob:
    """A job that goes on when this process ends.

    Attributes:
        runner: Our name of its runner.
        id: The runner's name of the job.
        page: Where to look at the job; empty if there is no such page.
        cancel: Asks the runner to end the job.
    """

    runner: str
    id: str
    page: str
    cancel: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.runner} job {self.id}"


@dataclasses.dataclass
class Launch:
    """How to launch pipelines, and what is known of the launched ones.

    Attributes:
        waits: Wait for the end of jobs; otherwise they are left to their runner.
        runs: Run pipelines; otherwise they are only built.
        modules: Names of the modules of the user's functions, for workers elsewhere.
        directory: Temporary directory of the job; empty if there is none.
        job: The last job that was started elsewhere.
        facts: Facts about the run for ``job.json``.
        built: The pipelines that were built but not run.
    """

    waits: bool = True
    runs: bool = True
    modules: tuple[str, ...] = ()
    directory: str = ""
    job: RemoteJob | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    built: list[Any] = dataclasses.field(default_factory=list)


_launch: contextvars.ContextVar[Launch | None] = contextvars.ContextVar("launch", default=None)
_waited_for: list[RemoteJob] = []


@contextlib.contextmanager
def launching(launch: Launch) -> Iterator[Launch]:
    """Launch the pipelines that are run inside the block as `launch` says."""
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
    """Cancel a job if an interrupt ends the block; `cancel_all` knows of it meanwhile."""
    _waited_for.append(job)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        cancel_all()
        raise
    finally:
        if job in _waited_for:
            _waited_for.remove(job)


def cancel_all(*, timeout_s: float = CANCEL_SECONDS) -> list[str]:
    """Cancel the jobs that this process waits for.

    Safe in a signal handler: the requests are made in a thread of their own, since the interrupted
    thread may hold a lock of the client.

    Args:
        timeout_s: Seconds to wait for the runner's answer about each job.

    Returns:
        A line about each job.
    """
    jobs, _waited_for[:] = list(_waited_for), []
    return [_cancel(job, timeout_s) for job in jobs]


def _cancel(job: RemoteJob, timeout_s: float) -> str:
    errors = ["it did not answer"]

    def ask() -> None:
        try:
            job.cancel()
            errors.clear()
        except Exception as error:
            errors[:] = [*str(error).strip().splitlines()[:1], type(error).__name__]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not errors:
        return f"{job} is cancelled"
    where = f": see {job.page}" if job.page else ""
    return f"{job} could not be cancelled ({errors[0]}) and goes on{where}"
