"""Logs how long each phase of a job takes, for ``--verbose``."""

from __future__ import annotations

import time
from typing import Any

from beam_tfrecord.cli.log import LOGGER
from beam_tfrecord.progress import Progress, format_seconds


class TimedProgress(Progress):
    """A progress display that logs the duration of a phase when the phase ends."""

    _timed = ""
    _timed_since_s = 0.0

    def update(self, phase: str, *args: Any, **details: Any) -> None:
        """Show the progress of a phase; a new name ends the phase before."""
        if phase != self._timed:
            self._log_phase()
            self._timed, self._timed_since_s = phase, time.monotonic()
        super().update(phase, *args, **details)

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self._log_phase()

    def _log_phase(self) -> None:
        if self._timed:
            seconds = format_seconds(time.monotonic() - self._timed_since_s)
            LOGGER.debug("%s: %s", self._timed, seconds)
