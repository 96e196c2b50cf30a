"""What went wrong with a Dataflow job, in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from apache_beam.runners.runner import PipelineState

from beam_tfrecord.errors import BeamTFRecordError, JobFailed, StorageError, UsageError
from beam_tfrecord.runners.waiting import RemoteJob

_CHARACTERS = 400
# The last line of a Python traceback: a class with its module, and its message.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*(?P<kind>[A-Za-z_]\w*): (?P<what>.+)$", re.M)
_STEP = re.compile(r"\s*\[while running '(?P<step>[^']*)'\]")
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
    step = _STEP.search(text)
    plain = _STEP.sub("", text)
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
