"""Extracts a one-line message about a failed job from the traces that its runner reports.

Runners wrap the error of a worker in stack traces of their own; these functions find it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from apache_beam.runners.runner import PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, StorageError, UsageError, error_in
from beam_tfrecord.rows.user_function import is_users_file
from beam_tfrecord.runners.boot import FAULTS, fault_text, unloadable_line
from beam_tfrecord.runners.launch_settings import RemoteJob

_MAX_CHARACTERS = 400
_STEP = re.compile(r"\s*\[while running '([^']*)'\]")
# In the last line, since Beam wraps the interrupt of a function in this process.
_INTERRUPTED = re.compile(r"^(?:RuntimeError: )?KeyboardInterrupt\b.*\Z", re.M)
# Beam adds the step to the key of a `KeyError`, whose text is then all in quotes.
_KEY_WITH_STEP = re.compile(r"""^KeyError: "(.*) (\[while running '[^']*'\])"$""")
# The function of Beam that iterates over what `process` of a `DoFn` returned.
_ITERATES_RESULT = "_OutputHandler.handle_process_outputs\n"
# The last line of a Python traceback: a class with its module, and its message.
_RAISED = re.compile(r"^(?!java|org\.|io\.)(?:[A-Za-z_]\w*\.)*([A-Z]\w*): (.+)$", re.M)
_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'^  File "(.+)", line \d+, in .+\n(?:    .*\n)*', re.M)
_JAVA_CAUSE = re.compile(r"^(?:Caused by: )?(?:[a-z_]\w*\.)+([A-Z][\w$]*)(: .+)?$", re.M)
_EXIT_CODE = re.compile(r"exit (?:code|value):? (\d+)")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)".*?error=\d+, (.+?)$', re.MULTILINE)
# Errors of a machine: another attempt may succeed.
_TRANSIENT = re.compile(
    r"(OS|IO|BlockingIO|FileNotFound|Permission|Timeout|Memory|EOF|Conn\w+)Error\b"
)

# Texts in Java's reports, and what they mean for users.
_KNOWN = (
    (
        "CANCELLED: client cancelled",
        "Python workers died, perhaps out of memory, more often than the cluster's restart "
        "strategy allows",
    ),
    (
        "CANCELLED: call already cancelled",
        "a Python worker died and was not replaced: see the log of the TaskManager",
    ),
    (
        "Insufficient number of network buffers",
        "TaskManagers have too few network buffers: set taskmanager.memory.network.min and max to "
        "192m, or lower the parallelism (Beam's option --parallelism=N)",
    ),
    (
        "NoResourceAvailableException",
        "the cluster has no free slot: end other jobs, or add TaskManagers",
    ),
    (
        "No client connected within timeout",
        "a Python worker could not start, usually because one of your modules is missing on the "
        "worker or has another version: see the log of the TaskManager",
    ),
    (
        "Heartbeat of TaskManager",
        "a TaskManager was lost more often than the cluster's restart strategy allows",
    ),
)


def error_of(text: str) -> str:
    """Return the error of a worker in one line, without traces; empty if the text is empty."""
    step = _STEP.search(text)
    plain = _STEP.sub("", text)
    if "Traceback" in plain:
        # Users understand its text without the name of the class.
        if (ours := error_in(plain)) is not None:
            return _cut(" ".join(ours.message.split()))
        if raised := _RAISED.findall(plain[plain.rfind("Traceback") :]):
            return _cut(": ".join(raised[-1]) + (f" in step {step[1]!r}" if step else ""))
    for pattern, meaning in _KNOWN:
        if pattern in plain:
            return meaning
    if causes := _JAVA_CAUSE.findall(plain):
        return _cut("".join(causes[-1]))
    return _cut(next((line.strip() for line in plain.splitlines() if line.strip()), ""))


def short_error(error: Exception) -> BaseException | None:
    """Return an error of a local runner without the frames of libraries."""
    if isinstance(error, BeamTFRecordError):
        return type(error)(error.message)
    text = str(error)
    if _INTERRUPTED.search(text.rstrip()):
        return KeyboardInterrupt()
    if (ours := error_in(text)) is not None:
        return ours
    last = text.rpartition(_TRACEBACK)[2]
    frames = list(_FRAME.finditer(last))
    users = [frame[0] for frame in frames if is_users_file(frame[1])]
    # Beam raises a RuntimeError instead of an error whose class needs further arguments.
    raised = last[frames[-1].end() if frames else 0 :].strip().removeprefix("RuntimeError: ")
    beams = [frame[0] for frame in frames if "apache_beam/" in frame[1]]
    if not users and beams and beams[-1].endswith(_ITERATES_RESULT):
        # The cause of the error of a generator that let a StopIteration out has its frames.
        users = [frame[0] for frame in _FRAME.finditer(text) if is_users_file(frame[1])] or [
            "  the function of this step returned no list: yield the value, or return [value]"
            if "object is not iterable" in raised
            else "  in the iterator that the function of this step returned"
        ]
    if not users:
        return None
    raised = _KEY_WITH_STEP.sub(lambda found: f"KeyError: {found[1]!r} {found[2]}", raised)
    return RuntimeError("\n".join([raised, *users]).rstrip())


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def start_fault(traces: Sequence[str], expected: Mapping[str, str]) -> str | None:
    """Return in one line why workers do not start, or cannot load the code of a job."""
    for trace in traces:
        if found := _NO_PROGRAM.search(trace):
            program, reason = found.groups()
            return (
                f"a worker cannot run {program!r} ({reason.lower()}): install beam-tfrecord there, "
                "or pass --worker-command"
            )
        for code in map(int, _EXIT_CODE.findall(trace)):
            if code in FAULTS:
                return fault_text(code, expected)
        # Beam's workers load the functions of a job with `pickler.loads`.
        if "pickler.loads(" in trace and not _TRANSIENT.match(error := error_of(trace)):
            return unloadable_line(error)
    return None


def failure(job: RemoteJob, state: str, reasons: Sequence[str]) -> JobFailed:
    """Return the error to raise for a job that failed or was cancelled."""
    if state == PipelineState.CANCELLED:
        return JobFailed(f"{job} was cancelled: see {job.page}")
    reason = best_reason(reasons)
    why = f": {reason}" if reason else " and the service does not say why"
    ended = "failed" if state == PipelineState.FAILED else f"ended as {state.lower()}"
    return JobFailed(f"{job} {ended}{why}: see {job.page}")


def best_reason(reasons: Sequence[str]) -> str:
    """Return the most useful of some error messages in one line; empty if there are none.

    Python tracebacks are more useful than other messages, and newer messages than older ones. The
    message that a work item was attempted several times is the least useful.
    """

    def rank(at: int) -> tuple[bool, bool, int]:
        text = reasons[at]
        return "Traceback" in text, "work item was attempted" not in text, at

    return error_of(reasons[max(range(len(reasons)), key=rank)]) if reasons else ""


def refusal(error: BaseException) -> BeamTFRecordError:
    """Return the error to raise for a job that Dataflow, or Beam's Dataflow client, refused."""
    # Classes are compared by name, since Google's packages may not be installed.
    kinds = {cls.__name__ for cls in type(error).__mro__}
    text = error_of(str(error)) or type(error).__name__
    code = getattr(error, "code", None)
    if kinds & {"DefaultCredentialsError", "RefreshError"}:
        return UsageError(
            "there are no credentials for Dataflow: run 'gcloud auth application-default login', "
            "or set GOOGLE_APPLICATION_CREDENTIALS"
        )
    if "DataflowJobAlreadyExistsError" in kinds:
        return UsageError(f"a job with that name already exists ({text}): pass another --job-name")
    if code in (401, 403):
        return UsageError(
            f"Dataflow does not permit the job ({text}): check --project and your account's "
            "permissions"
        )
    if isinstance(code, int) and 400 <= code < 500 and code != 429:
        return UsageError(f"Dataflow refuses the job ({text}): check --project and --region")
    if kinds & {"GoogleAPICallError", "RetryError", "TransportError"}:
        return JobFailed(f"cannot reach Dataflow ({text}): try again later")
    if isinstance(error, ImportError):
        return UsageError("the Dataflow runner needs an extra: pip install 'beam-tfrecord[gcp]'")
    if isinstance(error, OSError):
        return StorageError(f"cannot stage the job ({text}): check --temp-location")
    if isinstance(error, ValueError | RuntimeError):
        return UsageError(f"Dataflow cannot run the job: {text}")
    return JobFailed(f"cannot submit the job to Dataflow: {type(error).__name__}: {text}")
