"""Tries of a job on Flink, and for how long its workers are kept between them.

Only the cluster says whether a job is tried again: Beam's runner heeds its own options for that in
streaming jobs alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.flink_checks import Room

_CACHE = "--environment_cache_millis"
# Within this after a fault all tasks of a job have ended, on all hosts.
_CLOSING_MS = 2_000
_LEAST_CACHE_MS, _USUAL_CACHE_MS, _MOST_CACHE_MS = 3_000, 10_000, 60_000
_LOGGER = logging.getLogger(__name__)


def cache_ms(room: Room) -> int:
    """Return for how many milliseconds a worker without work is kept.

    Where it is let go, and there is work for it in a later step, its start takes seconds; hosts
    that wait for it let go of theirs meanwhile, and so on to the end of the job. But a try that
    comes while workers are kept is given those that have died, and fails like the one before.

    Args:
        room: What the cluster says.
    """
    if not room.restarts:
        return _MOST_CACHE_MS
    if room.restart_delay_ms is None:
        return _USUAL_CACHE_MS
    return min(max(room.restart_delay_ms - _CLOSING_MS, _LEAST_CACHE_MS), _MOST_CACHE_MS)


def warn_of_tries(options: Sequence[str], room: Room) -> None:
    """Tell of a cluster where a worker that is killed ends the job.

    Args:
        options: The user's own.
        room: What the cluster says.

    Raises:
        UsageError: The time for which workers are kept is no number.
    """
    if not room.restarts:
        _LOGGER.warning(
            "the cluster has no restart strategy: the first worker that is lost ends the job, and "
            "the same command goes on from there; set restart-strategy.type to fixed-delay"
        )
        return
    kept_ms = _number_of(options, _CACHE, cache_ms(room))
    if room.restart_delay_ms is not None and room.restart_delay_ms <= kept_ms:
        _LOGGER.warning(
            "the cluster tries a job again after %g s, and workers are kept for %g s: one that is "
            "killed may end the job; set restart-strategy.fixed-delay.delay to 12 s",
            room.restart_delay_ms / 1000,
            kept_ms / 1000,
        )


def _number_of(options: Sequence[str], flag: str, otherwise: int) -> int:
    """Return the number after a flag, as one word with it or the next; the last one counts."""
    number = str(otherwise)
    for word, following in zip(options, [*options[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name == flag:
            number = value if equals else following
    if not number.isdecimal():
        raise UsageError(f"{flag} takes a number of milliseconds, not {number!r}")
    return int(number)
