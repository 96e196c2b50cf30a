"""The program that the local runner starts for worker processes: imports once, then forks.

It unpickles the user's functions, so that their modules are imported only once, and then forks one
process for each worker. The workers share the memory of what was imported. This is safe because
nothing here starts a thread before the fork, unlike in the process of the user.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import logging
import multiprocessing.connection
import os
import pickle
import random
import signal
import sys
import threading
import traceback
from typing import Any, NoReturn

import grpc
import numpy as np
from apache_beam.internal import pickler
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.worker import sdk_worker

from beam_tfrecord import runners

# What a message may have, since all processes write to one socket: Python sends it by one call.
_MOST_CHARACTERS, _MOST_BYTES = 3_000, 15_000
_LOOK_S = 0.2
# More than a batch has rows, so that the garbage collector does not look at these again and again.
_NEW_OBJECTS = 100_000
# What the launcher gets: why the functions cannot be loaded, the rows that a worker is at, the wait
# status of a worker that has ended, and a log record.
UNLOADABLE, ROWS, ENDED, LOG = "unloadable", "rows", "ended", "log"

Launcher = multiprocessing.connection.Connection


def main(fd: int) -> NoReturn:
    """Load the functions of a job, fork its workers, and report the end of each."""
    launcher = Launcher(fd)
    setup: dict[str, Any] = launcher.recv()
    sys.argv[:] = setup["argv"]
    options = PipelineOptions.from_dictionary(setup["options"])
    pickler.set_library(options.view_as(SetupOptions).pickle_library)
    FileSystems.set_options(options)
    _log_to(launcher, setup["log_levels"])
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(line_buffering=True)
    # It prints the traceback of a failed step, which the launcher shows in short.
    sdk_worker.print = lambda *_, **__: None
    try:
        for function in setup["functions"]:
            pickler.loads(function)
        if threading.active_count() > 1:
            raise RuntimeError("a module starts threads when it is imported")
    except BaseException as error:
        launcher.send((UNLOADABLE, "", f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]))
        os._exit(1)
    # Modules may have set up handlers and levels of their own.
    _log_to(launcher, setup["log_levels"])
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    try:
        workers: dict[int, str] = {}
        for number, (worker, address) in enumerate(launcher.recv()):
            pid = os.fork()
            if not pid:
                _work(launcher, number, worker, address, setup)
            workers[pid] = worker
        while workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                launcher.send((ENDED, workers.pop(pid), status))
            elif launcher.poll(_LOOK_S):
                launcher.recv()  # the launcher has ended, since it sends no more
    except (EOFError, ConnectionError):
        os.killpg(0, signal.SIGKILL)
    # To take down TensorFlow takes seconds.
    os._exit(0)


def _log_to(launcher: Launcher, levels: dict[str, int]) -> None:
    """Send all log records to the launcher, which alone has handlers."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.handlers.clear()
    logging.root.handlers[:] = [_ToLauncher(launcher)]
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)


def _seed(number: int, state: Any, numpy_state: Any) -> None:
    """Give a worker the random state of the launcher, and the others states that follow from it."""
    random.setstate(state)
    with contextlib.suppress(ValueError):  # the launcher has another generator of bits
        np.random.set_state(numpy_state)
    if number:
        random.seed(random.getrandbits(64) + number)
        np.random.seed(np.random.randint(2**31) + number)


def _work(
    launcher: Launcher, number: int, worker: str, address: str, setup: dict[str, Any]
) -> NoReturn:
    """Run Beam's worker until the runner closes its connection, or is gone."""
    # Threads of Beam meet the end of the launcher, which is no news.
    show = threading.excepthook
    threading.excepthook = lambda of: None if issubclass(of.exc_type, grpc.RpcError) else show(of)
    code = 1
    try:
        _seed(number, *setup["random_states"])
        runners.report_rows = lambda rows: launcher.send((ROWS, worker, rows))
        sdk_worker.SdkHarness(
            address,
            worker_id=worker,
            state_cache_size=100 * 2**20,
            runner_capabilities=setup["capabilities"],
        ).run()
        code = 0
    except Exception as error:
        if not isinstance(error, grpc.RpcError):  # the launcher is gone
            traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        # A thread of the user's code must not keep the process.
        os._exit(code)


class _ToLauncher(logging.Handler):
    """Sends log records to the launcher, whose handlers and filters show them."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__()
        self._launcher = launcher

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record with its text; without further fields if these are large or odd."""
        try:
            sent = copy.copy(record)
            text = self.format(record)
            if len(text) > _MOST_CHARACTERS:
                half = _MOST_CHARACTERS // 2
                text = f"{text[:half]} … {text[-half:]}"
            sent.msg, sent.args = text, ()
            sent.exc_info = sent.exc_text = sent.stack_info = None
            self._launcher.send((LOG, "", _small_fields(vars(sent))))
        except Exception:
            self.handleError(record)


def _small_fields(fields: dict[str, Any]) -> dict[str, Any]:
    with contextlib.suppress(Exception):
        if len(pickle.dumps(fields)) < _MOST_BYTES:
            return fields
    return {name: fields[name] for name in vars(logging.makeLogRecord({}))}
