"""`WorkerPool`: the worker processes of a local pipeline, as its runner sees them.

The pool starts one program, `forked_workers`, which forks the workers. A thread of this process
handles what they log, and notices the end of a worker. Without that, Beam's runner would wait for
the worker for ever.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from beam_tfrecord.errors import JobFailed
from beam_tfrecord.runners.forked_workers import ENDED, LOG, ROWS, UNLOADABLE, main

PROCESSES = "beam_tfrecord:environment:processes"
_LOOK_S = 0.1
_END_S = 5.0
_PROGRAM = f"import sys; sys.path[:] = {{}}; from {main.__module__} import main; main({{}})"

_pools: dict[bytes, WorkerPool] = {}


class CannotLoad(Exception):
    """The reason why a worker process cannot load the functions of a pipeline."""


class WorkerPool:
    """Some worker processes, which start at once, and load the functions of a pipeline.

    Attributes:
        failure: Why the pipeline cannot go on, once a worker is lost; else None.
        key: Payload of the pipeline's environment of Beam, by which handlers find the pool.
    """

    def __init__(self, workers: int, functions: list[bytes], options: PipelineOptions) -> None:
        self.failure: Exception | None = None
        self.key = uuid.uuid4().bytes
        _pools[self.key] = self
        self._workers = workers
        self._handlers: dict[str, _ProcessHandler] = {}
        self._rows: dict[str, str] = {}
        self._is_closing = False
        self._events, events = multiprocessing.Pipe()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        self._program = subprocess.Popen(
            [sys.executable, *flags, "-c", _PROGRAM.format(_import_paths(), events.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[events.fileno()],
            start_new_session=True,  # it is for this process to end them on an interrupt
        )
        events.close()
        setup = {
            "argv": sys.argv,
            "options": options.get_all_options(drop_default=True),
            "functions": functions,
            "log_levels": _log_levels(),
            "random_states": (random.getstate(), np.random.get_state(legacy=False)),
            "capabilities": worker_handlers.FNAPI_RUNNER_CAPABILITIES,
        }
        with contextlib.suppress(ConnectionError):
            self._events.send(setup)
        self._watcher = threading.Thread(target=self._watch, name="workers", daemon=True)
        self._watcher.start()

    def add(self, handler: _ProcessHandler) -> None:
        """Start the worker of a handler; workers start once there is one handler for each."""
        self._handlers[handler.worker_id] = handler
        if len(self._handlers) == self._workers:
            endpoints = [(name, one.control_address) for name, one in self._handlers.items()]
            with contextlib.suppress(ConnectionError):
                self._events.send(endpoints)

    def close(self) -> None:
        """Wait until the workers have ended by themselves, unless they are ended already."""
        is_done, self._is_closing = bool(self._handlers) and not self._is_closing, True
        if is_done:
            # For as long as `teardown` of the user's functions takes.
            self._program.wait()
        self._kill()
        self._watcher.join(_END_S)
        _pools.pop(self.key, None)

    def fail(self, error: BaseException) -> Exception | None:
        """End all workers because of an error; return the loss of a worker if that caused it."""
        # The news of a lost worker may come after the end of its connection.
        is_of_step = not isinstance(error, Exception) or str(error).startswith("Traceback")
        for _ in range(0 if is_of_step else 10):
            if self.failure is not None:
                break
            time.sleep(_LOOK_S)
        self._kill()
        return None if is_of_step else self.failure

    def _kill(self) -> None:
        self._is_closing = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()

    def _watch(self) -> None:
        with contextlib.suppress(EOFError, OSError), self._events:
            while True:
                if self._events.poll(_LOOK_S):
                    self._on_event(*self._events.recv())
                if self.failure is not None and not self._is_closing:
                    self._abort(self.failure)
        while not self._is_closing:
            self._abort(self.failure or JobFailed("the worker processes ended: see their messages"))
            time.sleep(_LOOK_S)

    def _on_event(self, kind: str, worker: str, found: Any) -> None:
        if kind == LOG:
            record = logging.makeLogRecord(found)
            logger = logging.getLogger(record.name)
            # An error of a user's filter or handler must not end this thread.
            with contextlib.suppress(Exception):
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)
        elif kind == ROWS:
            self._rows[worker] = found
        elif kind == UNLOADABLE:
            self.failure = CannotLoad(found)
        elif kind == ENDED and not self._is_closing and self.failure is None:
            self.failure = JobFailed(_lost(found, self._rows.get(worker)))

    def _abort(self, failure: Exception) -> None:
        """Let the runner, which waits for answers and for data of the workers, raise an error."""
        for handler in tuple(self._handlers.values()):
            handler.data_conn._exception = failure
            with contextlib.suppress(RuntimeError):  # the runner adds a request at this moment
                handler.control_conn.abort(failure)


def _import_paths() -> list[str]:
    """Return `sys.path` without what Python ignores there."""
    return [path for path in sys.path if isinstance(path, str)]


def _log_levels() -> dict[str, int]:
    """Return the levels that are set for loggers, by name; that of the root has no name."""
    known = logging.root.manager.loggerDict.items()
    levels = {name: logger.level for name, logger in known if isinstance(logger, logging.Logger)}
    return {"": logging.root.level, **{name: level for name, level in levels.items() if level}}


def _lost(status: int, rows: str | None) -> str:
    """Return the message about a worker that ended with a wait status."""
    code = os.waitstatus_to_exitcode(status)
    how = f"ended itself with exit code {code}"
    if code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    if -code == signal.SIGKILL:
        how += ", perhaps because the machine was out of memory (take fewer --workers)"
    return f"a worker process {how}{f', in the rows {rows}' if rows else ''}: run the job again"


def _quietly(read: Callable[..., None]) -> Callable[..., None]:
    def read_quietly(*args: Any) -> None:
        with contextlib.suppress(Exception):
            read(*args)

    return read_quietly


@worker_handlers.WorkerHandler.register_environment(PROCESSES, bytes)
class _ProcessHandler(worker_handlers.GrpcWorkerHandler):
    """Beam's handle of one worker process."""

    def __init__(self, key: bytes, *args: Any) -> None:
        super().__init__(*args)
        self._pool = _pools[key]
        # Beam's threads would print tracebacks if the worker is killed.
        read = _quietly(self.control_conn._read)
        self.control_conn._read_thread = threading.Thread(target=read, daemon=True)
        self.data_conn._read_inputs = _quietly(self.data_conn._read_inputs)

    def start_worker(self) -> None:
        self._pool.add(self)

    def stop_worker(self) -> None:
        """Leave the end of the process to the pool, since Beam has closed its connection."""
