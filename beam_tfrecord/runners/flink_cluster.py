"""Queries a Flink cluster by its REST interface, starts Beam's job server, and checks both."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfrecord.errors import UsageError

_BOOT = "beam-tfrecord-boot"
# A job in one of these states is over.
ENDED = ("FINISHED", "FAILED", "CANCELED")

_ANSWER_S = 5.0
# The slots of a job that has just ended are free again within this time.
_SLOT_S = 5.0
_SERVER_READY_S, _SERVER_END_S = 60.0, 5.0
# The most failures of a job that Flink stores by default (web.exception-history-size).
_MOST_FAULTS = 16
_VERSIONS = ("1.17", "1.18", "1.19", "1.20", "2.0", "2.1", "2.2")
_WHAT_TO_FETCH = (
    "runner flink needs Beam's job server: name a running one (--job-endpoint HOST:PORT, as "
    "pipelines/flink/up starts it), or fetch org.apache.beam:beam-runners-flink-{flink}-job-server:"
    "{beam} from Maven Central and pass --job-server-jar"
)
# A job server of Beam answers in binary.
_NOT_FLINK = "what answers there is not Flink: are --flink-master and --job-endpoint exchanged?"
# Java packages that Beam's runner accesses by reflection, which Java forbids from version 17 on.
_OPENS = ("java.lang", "java.nio", "java.util", "sun.nio.ch")
# Without the user's proxy, which usually cannot reach clusters.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """Flink did not answer a request; the message says why."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A client of a Flink cluster. Each method raises `NoAnswer` if Flink does not answer."""

    address: str

    @property
    def page(self) -> str:
        """URL of the cluster's web page."""
        return f"http://{self.address}"

    def overview(self) -> Mapping[str, Any]:
        """Return Flink's version, and the numbers of TaskManagers, slots and jobs."""
        overview = self._ask("/v1/overview")
        if not isinstance(overview, dict) or "flink-version" not in overview:
            raise NoAnswer(_NOT_FLINK)
        return overview

    def task_managers(self) -> list[Mapping[str, Any]]:
        """Return Flink's description of each TaskManager."""
        return list(self._ask("/v1/taskmanagers")["taskmanagers"])

    def find_job(self, name: str) -> Mapping[str, Any] | None:
        """Return ``jid``, ``state``, ``duration`` (ms) and more of a job; None if not found."""
        jobs = self._ask("/v1/jobs/overview")["jobs"]
        return next((job for job in jobs if job["name"] == name), None)

    def job_faults(self, id_: str) -> list[str]:
        """Return the stack traces of a job's last failures, the newest first."""
        answer = self._ask(f"/v1/jobs/{id_}/exceptions?maxExceptions={_MOST_FAULTS}")
        return [str(one["stacktrace"]) for one in answer["exceptionHistory"]["entries"]]

    def cancel_job(self, id_: str) -> None:
        """Ask Flink to cancel a job."""
        self._ask(f"/v1/jobs/{id_}?mode=cancel", method="PATCH")

    def _ask(self, path: str, *, method: str = "GET") -> Any:
        request = urllib.request.Request(f"{self.page}{path}", method=method)
        try:
            with _opener.open(request, timeout=_ANSWER_S) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise NoAnswer(f"it answers {error.code} to {path}") from error
        except OSError as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or str(reason)
            raise NoAnswer(text.lower()) from error
        except (ValueError, http.client.HTTPException) as error:
            raise NoAnswer(_NOT_FLINK) from error


def parse_address(text: str, flag: str) -> str:
    """Return ``host:port`` of an address, with or without a scheme."""
    parts = urllib.parse.urlsplit(text if "://" in text else f"//{text}")
    with contextlib.suppress(ValueError):
        if parts.hostname and parts.port:
            return f"{parts.hostname}:{parts.port}"
    raise UsageError(f"{flag} {text!r} is not an address: write HOST:PORT")


def cluster_of(flink_master: str | None) -> Cluster:
    """Return the cluster that the user names."""
    if not flink_master or flink_master.startswith("["):
        raise UsageError(
            "runner flink needs --flink-master HOST:PORT, the address of Flink's REST interface "
            "(pipelines/flink/up starts a cluster on this machine)"
        )
    return Cluster(parse_address(flink_master, "--flink-master"))


@dataclasses.dataclass(frozen=True)
class Capacity:
    """Flink's version, and the slots of a cluster for a job."""

    version: str
    free_slots: int
    slots_each: int


def wait_for_capacity(cluster: Cluster, *, needs_slot: bool = True) -> Capacity:
    """Ask a cluster for its version and slots; wait up to 5 seconds for a free slot if needed."""
    until_s = time.monotonic() + (_SLOT_S if needs_slot else 0)
    while not (capacity := _capacity_now(cluster)).free_slots and time.monotonic() < until_s:
        time.sleep(0.5)
    if needs_slot and not capacity.free_slots:
        raise UsageError(
            f"all slots of {cluster.address} are taken: wait for other jobs, or add TaskManagers"
        )
    return capacity


def _capacity_now(cluster: Cluster) -> Capacity:
    try:
        overview, managers = cluster.overview(), cluster.task_managers()
    except NoAnswer as error:
        raise UsageError(
            f"cannot reach Flink at {cluster.address} ({error}): start it, or correct "
            "--flink-master"
        ) from error
    version = str(overview["flink-version"])
    if _minor(version) not in _VERSIONS:
        raise UsageError(f"Flink {version} is not a version that Beam has a runner for")
    if not managers or not int(overview["slots-total"]):
        raise UsageError(f"no TaskManager is registered at {cluster.address}: start some")
    each = min(int(one["slotsNumber"]) for one in managers)
    return Capacity(version, int(overview["slots-available"]), max(1, each))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def check_job_server(endpoint: str | None, jar: str | None, flink_version: str) -> None:
    """Check that a job server answers, or that there are a jar and a Java to start one."""
    if endpoint:
        address = parse_address(endpoint, "--job-endpoint")
        if not answers(address):
            raise UsageError(
                f"cannot reach the job server at {address}: start it, or correct --job-endpoint"
            )
        return
    minor = _minor(flink_version)
    if not jar:
        beam = importlib.metadata.version("apache-beam")
        raise UsageError(_WHAT_TO_FETCH.format(flink=minor, beam=beam))
    if not os.path.isfile(jar):
        raise UsageError(f"there is no job server {jar!r}: correct --job-server-jar")
    _find_java()
    made_for = re.search(r"flink-(\d+\.\d+)-job-server", os.path.basename(jar))
    if made_for and made_for[1] != minor:
        raise UsageError(
            f"job server {os.path.basename(jar)!r} is for Flink {made_for[1]}, but the cluster is "
            f"{flink_version}: fetch that for {minor}"
        )


def answers(address: str) -> bool:
    """Return whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection((host, int(port)), timeout=2),
    ):
        return True
    return False


def _find_java() -> str:
    if java := shutil.which("java"):
        return java
    raise UsageError(
        "there is no java on this machine: install a Java runtime, or name a job server that "
        "runs elsewhere (--job-endpoint)"
    )


@contextlib.contextmanager
def job_server(jar: str, cluster: Cluster, artifacts: str | None) -> Iterator[str]:
    """Run Beam's job server until the block ends; yield its ``host:port``."""
    with contextlib.ExitStack() as stack:
        own = artifacts or stack.enter_context(tempfile.TemporaryDirectory(prefix="beam-tfrecord-"))
        port = free_port()
        process = subprocess.Popen(
            [
                _find_java(),
                "-Xmx256m",
                *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
                "-jar",
                jar,
                f"--flink-master={cluster.address}",
                "--job-host=localhost",
                f"--job-port={port}",
                "--artifact-port=0",
                "--expansion-port=0",
                f"--artifacts-dir={own}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C must not end the server, which is needed to cancel its jobs.
            start_new_session=True,
        )
        stack.callback(_end, process)
        _await(process, port, jar)
        yield f"localhost:{port}"


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int, jar: str) -> None:
    until_s = time.monotonic() + _SERVER_READY_S
    while not answers(f"localhost:{port}"):
        if process.poll() is not None:
            raise UsageError(
                f"job server {jar!r} ended at once with code {process.returncode}: it is none for "
                "this Java or not Beam's job server for Flink"
            )
        if time.monotonic() > until_s:
            raise UsageError(f"job server {jar!r} is not ready after {_SERVER_READY_S:.0f} seconds")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SERVER_END_S)


def boot_command(own: str | None) -> str:
    """Return the path of the program that starts workers on the hosts of TaskManagers."""
    if own:
        return own
    beside = os.path.join(os.path.dirname(sys.executable), _BOOT)
    if os.path.isfile(beside):
        return beside
    if found := shutil.which(_BOOT):
        return os.path.abspath(found)
    raise UsageError(f"there is no {_BOOT} beside {sys.executable}: install beam-tfrecord again")
