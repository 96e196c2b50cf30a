"""What a runner tells of a failed job, in one line: the own error of a worker, not its traces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from apache_beam.runners.runner import PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, StorageError, UsageError
from beam_tfrecord.runners.boot import FAULTS, fault_text
from beam_tfrecord.runners.launch import RemoteJob

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


_CHARACTERS = 400
# The last line of a Python traceback: a class with its module, and its message.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<kind>[A-Za-z_]\w*): (?P<what>.+)$", re.M)
_STEP_NAME = re.compile(r"\s*\[while running '(?P<step>[^']*)'\]")
_OURS = re.compile(r"\bbeam_tfrecord\.errors\.\w+: (?P<what>.+)")


def failure(job: RemoteJob, state: str, reasons: Sequence[str]) -> JobFailed:
    """Return what a job's bad end means.

    Args:
        job: The job.
        state: Its last state.
        reasons: The service's messages of errors, the oldest first.
    """
    if state == PipelineState.CANCELLED:
        return JobFailed(f"{job} was cancelled: see {job.page}")
    why = best_reason(reasons)
    told = f": {why}" if why else " and the service does not say why"
    ended = "failed" if state == PipelineState.FAILED else f"ended as {state.lower()}"
    return JobFailed(f"{job} {ended}{told}: see {job.page}")


def best_reason(reasons: Sequence[str]) -> str:
    """Return the message that says the most, in one line; empty where there is none.

    A traceback of Python, the newest, comes before what the service says in its own words; its
    word that a work item was tried several times says nothing.
    """

    def rank(at: int) -> tuple[bool, bool, int]:
        text = reasons[at]
        return "Traceback" in text, "work item was attempted" not in text, at

    if not reasons:
        return ""
    return in_one_line(reasons[max(range(len(reasons)), key=rank)])


def in_one_line(text: str) -> str:
    """Return the error at the end of a worker's traceback; the first line of any other text."""
    step = _STEP_NAME.search(text)
    plain = _STEP_NAME.sub("", text)
    if (ours := _OURS.findall(plain)) and "Traceback" in text:
        return _cut(ours[-1])
    raised = _RAISED.findall(plain[plain.rfind("Traceback") :]) if "Traceback" in text else []
    if raised:
        kind, what = raised[-1]
        where = f" in step {step['step']!r}" if step else ""
        return _cut(f"{kind}: {what}{where}")
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return _cut(lines[0]) if lines else ""


def refusal(error: BaseException) -> BeamTFRecordError:
    """Return what kept a job from being handed over."""
    kinds = {cls.__name__ for cls in type(error).__mro__}
    text = in_one_line(str(error)) or type(error).__name__
    if "DefaultCredentialsError" in kinds or "RefreshError" in kinds:
        return UsageError(
            "there are no credentials for dataflow: run 'gcloud auth application-default login', "
            "or set GOOGLE_APPLICATION_CREDENTIALS"
        )
    if "DataflowJobAlreadyExistsError" in kinds:
        return UsageError(f"there is a job of that name already: pass another --job-name ({text})")
    code = getattr(error, "code", None)
    if isinstance(code, int) and code in (401, 403):
        return UsageError(
            f"dataflow does not permit the job ({text}): check --project and the rights of your "
            "account"
        )
    if isinstance(code, int) and 400 <= code < 500 and code != 429:
        return UsageError(f"dataflow refuses the job ({text}): check --project and --region")
    if "GoogleAPICallError" in kinds or "RetryError" in kinds or "TransportError" in kinds:
        return JobFailed(f"cannot reach dataflow ({text}): try again later")
    if isinstance(error, ImportError):
        return UsageError("runner dataflow needs pip install 'beam-tfrecord[gcp]'")
    if isinstance(error, OSError):
        return StorageError(f"cannot stage the job ({text}): check --temp-location")
    if isinstance(error, ValueError | RuntimeError):
        return UsageError(f"dataflow cannot take the job: {text}")
    return JobFailed(f"cannot hand the job to dataflow: {type(error).__name__}: {text}")


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
