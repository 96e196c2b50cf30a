"""Flink's REST interface, as far as a launcher of jobs needs it."""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from beam_tfrecord.errors import UsageError

_ANSWER_S = 5.0
# What Flink itself keeps of a job (web.exception-history-size).
_KEPT_FAULTS = 16
# A job in one of these is over.
ENDED = ("FINISHED", "FAILED", "CANCELED")


class NoAnswer(Exception):
    """Flink cannot be asked; the text says why."""


@dataclasses.dataclass(frozen=True)
class FlinkJob:
    """A job as Flink knows it.

    Attributes:
        id: Flink's.
        state: Such as ``RUNNING``.
        duration_s: Seconds since its start, or from there to its end.
    """

    id: str
    state: str
    duration_s: float


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A Flink cluster.

    Attributes:
        address: ``host:port`` of its REST interface.
    """

    address: str

    @property
    def page(self) -> str:
        """Where people look at it."""
        return f"http://{self.address}"

    def get(self, path: str) -> Any:
        """Return what is answered to a question.

        Raises:
            NoAnswer: Nothing is.
        """
        return self._ask("GET", path)

    def overview(self) -> Mapping[str, Any]:
        """Return versions, TaskManagers, slots and numbers of jobs.

        Raises:
            NoAnswer: Nothing is answered, or not by Flink.
        """
        told = self.get("/v1/overview")
        if not isinstance(told, dict) or "flink-version" not in told:
            raise NoAnswer("what answers there is not Flink")
        return told

    def configuration(self) -> dict[str, str]:
        """Return the configuration of the JobManager."""
        return {one["key"]: str(one["value"]) for one in self.get("/v1/jobmanager/config")}

    def task_managers(self) -> list[Mapping[str, Any]]:
        """Return what is known of each TaskManager."""
        return list(self.get("/v1/taskmanagers")["taskmanagers"])

    def find_job(self, name: str) -> FlinkJob | None:
        """Return a job by its name; None where Flink has none such."""
        for job in self.get("/v1/jobs/overview")["jobs"]:
            if job["name"] == name:
                return FlinkJob(job["jid"], job["state"], job["duration"] / 1000)
        return None

    def job_faults(self, id_: str) -> list[str]:
        """Return the traces of what has failed in a job, the last first; Flink keeps 16."""
        told = self.get(f"/v1/jobs/{id_}/exceptions?maxExceptions={_KEPT_FAULTS}")
        return [str(one["stacktrace"]) for one in told["exceptionHistory"]["entries"]]

    def cancel_job(self, id_: str) -> None:
        """Ask for the end of a job."""
        self._ask("PATCH", f"/v1/jobs/{id_}?mode=cancel")

    def _ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(f"{self.page}{path}", method=method)
        try:
            with _opener.open(request, timeout=_ANSWER_S) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise NoAnswer(f"it answers {error.code} to {path}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or str(reason)
            raise NoAnswer(text.lower()) from error


# The units of Flink's TimeUtils; a number without a unit is of milliseconds.
_UNITS_MS = {
    **dict.fromkeys(("", "ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
}


def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration of Flink's configuration; None where it is unclear.

    Args:
        text: Such as ``5 s``, ``1min``, or ``PT5S``.
    """
    found = re.fullmatch(r"(?:pt)?([0-9]+) *([a-z]*)", text.strip().lower())
    if found is None:
        return None
    unit_ms = _UNITS_MS.get(found[2])
    return None if unit_ms is None else int(found[1]) * unit_ms


# A proxy for the internet knows nothing of clusters.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def parse_address(text: str, flag: str) -> str:
    """Return ``host:port`` of an address that people write in several ways.

    Raises:
        UsageError: It is none.
    """
    parts = urllib.parse.urlsplit(text if "://" in text else f"//{text}")
    try:
        if parts.hostname and parts.port:
            return f"{parts.hostname}:{parts.port}"
    except ValueError:
        pass
    raise UsageError(f"{flag} {text!r} is not an address: write HOST:PORT")
