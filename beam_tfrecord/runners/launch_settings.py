"""Controls how pipelines are launched (`Launch`), and cancels remote jobs on an interrupt.

By default, pipelines are run and waited for. A `Launch` around the code that runs them can change
that. This module does not import Beam, so that jobs can be described before Beam is loaded.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

from beam_tfrecord.base.progress import Progress

CANCEL_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class RemoteJob:
    """A job on another machine or cluster, which goes on when this process ends."""

    runner: str
    id: str
    page: str
    cancel: Callable[[], None]

    def __str__(self) -> str:
        return f"{self.runner} job {self.id}"


@dataclasses.dataclass
class Launch:
    """Settings of how to launch pipelines, and facts about the launched ones."""

    waits: bool = True
    runs: bool = True
    modules: tuple[str, ...] = ()
    directory: str = ""
    progress: Progress | None = None
    job: RemoteJob | None = None
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    built: list[Any] = dataclasses.field(default_factory=list)


_launch: contextvars.ContextVar[Launch | None] = contextvars.ContextVar("launch", default=None)
_waited_for: list[RemoteJob] = []


@contextlib.contextmanager
def launching(launch: Launch) -> Iterator[Launch]:
    """Apply the settings of `launch` to all pipelines that are run inside the block."""
    token = _launch.set(launch)
    try:
        yield launch
    finally:
        _launch.reset(token)


def current_launch() -> Launch:
    """Return the innermost `launching` around the caller; by default one that runs and waits."""
    return _launch.get() or Launch()


@contextlib.contextmanager
def cancelled_with_us(job: RemoteJob) -> Iterator[None]:
    """Cancel a job if an interrupt ends the block; register it for `cancel_all` meanwhile."""
    _waited_for.append(job)
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        cancel_all()
        raise
    finally:
        if job in _waited_for:
            _waited_for.remove(job)


def say_start(phase: str) -> None:
    """Show what goes on until workers report their progress, such as ``loading TensorFlow``."""
    if (progress := current_launch().progress) is not None:
        progress.starting = phase


def cancel_all(*, timeout_s: float = CANCEL_SECONDS) -> list[str]:
    """Cancel the jobs that this process waits for.

    It is safe in a signal handler: each request is made in a new thread, since the interrupted
    thread may hold a lock of the runner's client.
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
