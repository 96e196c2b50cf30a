"""The program that the local runner starts for worker processes: imports once, then forks.

It unpickles the user's functions, so that their modules are imported only once, and then forks one
process for each worker. The workers share the memory of what was imported. This is safe because
nothing here starts a thread before the fork, unlike in the process of the user.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import multiprocessing.connection
import os
import random
import sys
from typing import Any, NoReturn

import numpy as np
from apache_beam.internal import pickler
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.worker import sdk_worker

from beam_tfrecord.runners import current_rows

# What a message may have, since all processes write to one socket: Python sends it by one call.
_MOST_CHARACTERS = 3_000
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
    # Only the launcher has handlers: those that an import sets up here would show a record twice.
    logging.getLogger().handlers[:] = [_ToLauncher(launcher)]
    for name, level in setup["log_levels"].items():
        logging.getLogger(name or None).setLevel(level)
    # It prints the traceback of a failed step, which the launcher shows in short.
    sdk_worker.print = lambda *_, **__: None
    try:
        for function in setup["functions"]:
            pickler.loads(function)
    except BaseException as error:
        launcher.send((UNLOADABLE, "", f"{type(error).__name__}: {error}"[:_MOST_CHARACTERS]))
        os._exit(1)
    # The launcher closes the connection of a pipeline that has no rows.
    with contextlib.suppress(EOFError, ConnectionError):
        workers: dict[int, str] = {}
        for number, (worker, address) in enumerate(launcher.recv()):
            pid = os.fork()
            if not pid:
                _seed(number, *setup["random_states"])
                current_rows.report = lambda rows: launcher.send((ROWS, worker, rows))  # noqa: B023
                _work(worker, address, setup["capabilities"])
            workers[pid] = worker
        while workers:
            pid, status = os.wait()
            launcher.send((ENDED, workers.pop(pid), status))
    # To take down TensorFlow takes seconds.
    os._exit(0)


def _seed(number: int, state: Any, numpy_state: Any) -> None:
    """Give a worker the random state of the launcher, and the others states that follow from it."""
    random.setstate(state)
    np.random.set_state(numpy_state)
    if number:
        random.seed(random.getrandbits(64) + number)
        np.random.seed(np.random.randint(2**31) + number)


def _work(worker: str, address: str, capabilities: frozenset[str]) -> NoReturn:
    """Run Beam's worker until the runner closes its connection, or is gone."""
    try:
        sdk_worker.SdkHarness(
            address,
            worker_id=worker,
            state_cache_size=100 * 2**20,
            runner_capabilities=capabilities,
        ).run()
    finally:
        sys.stdout.flush()
        # A thread of the user's code must not keep the process.
        os._exit(0)


class _ToLauncher(logging.Handler):
    """Sends log records to the launcher, whose handlers and filters show them."""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__()
        self._launcher = launcher

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record with its text and without further objects."""
        sent = copy.copy(record)
        sent.msg = self.format(record)[:_MOST_CHARACTERS]
        sent.args = sent.exc_info = sent.exc_text = sent.stack_info = None
        known = {name: vars(sent)[name] for name in vars(logging.makeLogRecord({}))}
        with contextlib.suppress(OSError):
            self._launcher.send((LOG, "", known))
