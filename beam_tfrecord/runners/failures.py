"""What a runner tells of a failed job, in one line: the own error of a worker, not its traces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from beam_tfrecord.runners.boot_checks import FAULTS, fault_text

_SHOWN_CHARACTERS = 300
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)$")
_STEP = re.compile(r"\s*\[while running '[^']*'\]\s*$")
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z_]\w*\.)+([A-Z][\w$]*)(?:: (.+))?$")
_EXIT_CODE = re.compile(r"exit (?:code|value):? (\d+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)".*?error=\d+, (.+?)$', re.MULTILINE)

# What Java says, and what that means for whoever runs a job.
_KNOWN = (
    (
        "CANCELLED: client cancelled",
        "a Python worker has ended, perhaps for want of memory, more often than the cluster's "
        "restart strategy allows",
    ),
    (
        "CANCELLED: call already cancelled",
        "a Python worker has ended, and another one has not taken its place: see the log of the "
        "TaskManager",
    ),
    (
        "Insufficient number of network buffers",
        "TaskManagers have too few network buffers: give them taskmanager.memory.network.min and "
        "max of 192m, or fewer slots (-- --parallelism=N)",
    ),
    (
        "NoResourceAvailableException",
        "the cluster has no free slot: end other jobs, or add TaskManagers",
    ),
    (
        "No client connected within timeout",
        "a Python worker could not begin its part, most often because a module of yours is not "
        "there or is another one: see the log of the TaskManager",
    ),
    (
        "Heartbeat of TaskManager",
        "a TaskManager was lost more often than the cluster's restart strategy allows",
    ),
)


def error_of(text: str) -> str:
    """Return the error of a worker in one line, out of the traces around it.

    Args:
        text: What a runner tells, of any length.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Errors of Python stand without indentation at the end of their trace; the last one counts.
    own = [found for line in lines if (found := _python_error(line))]
    if own and "Traceback" in text:
        return _short(own[-1])
    for pattern, meaning in _KNOWN:
        if pattern in text:
            return meaning
    causes = [cause for line in lines if (cause := _CAUSE.match(line))]
    if causes:
        name, message = causes[-1].groups()
        return _short(f"{name}: {message}" if message else name)
    if own:
        return _short(own[-1])
    return _short(lines[0]) if lines else "it does not say why"


def _python_error(line: str) -> str | None:
    line = _STEP.sub("", line)
    if line.startswith(("Caused by:", "at ", "java.", "org.apache.")):
        return None
    found = _PYTHON_ERROR.match(line)
    if found is None or line.split(":")[0].startswith(("java", "org.", "io.")):
        return None
    name, message = found.groups()
    # Of our own errors the text says all.
    return message if line.startswith("beam_tfrecord.errors.") else f"{name}: {message}"


def start_fault(traces: Sequence[str], expected: Mapping[str, str]) -> str | None:
    """Return why workers do not start, in one line; None where they do.

    Args:
        traces: What failed in a job.
        expected: What the launcher expects of its workers; see `boot_checks`.
    """
    for trace in traces:
        if found := _NO_PROGRAM.search(trace):
            program, reason = found.groups()
            return (
                f"a worker cannot run {program!r} ({reason.lower()}): install beam-tfrecord there, "
                "or pass --worker-command"
            )
        code = next((int(one) for one in _EXIT_CODE.findall(trace) if int(one) in FAULTS), None)
        if code is not None:
            return fault_text(code, expected)
    return None


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} …"
