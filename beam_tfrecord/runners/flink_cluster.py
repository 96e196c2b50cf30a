"""Flink's REST interface, as far as a launcher of jobs needs it."""

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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners import boot

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


BOOT = "beam-tfrecord-boot"
_DELAYS = {
    "fixeddelay": "restart-strategy.fixed-delay.delay",
    "failurerate": "restart-strategy.failure-rate.delay",
}
_START_S = 30
# A job that has just ended gives its slots back within that.
_SLOT_S = 5.0
_VERSIONS = ("1.17", "1.18", "1.19", "1.20", "2.0", "2.1", "2.2")
_WHAT_TO_FETCH = (
    "runner flink needs Beam's job server: name a running one (--job-endpoint HOST:PORT, as "
    "pipelines/flink/up starts it), or fetch org.apache.beam:beam-runners-flink-{flink}-job-server:"
    "{beam} from Maven Central and pass --job-server-jar"
)


@dataclasses.dataclass(frozen=True)
class Room:
    """What a cluster has for a job.

    Attributes:
        version: Of Flink.
        free_slots: Slots that no job has.
        slots_each: Slots of the smallest TaskManager.
        restarts: The cluster starts jobs anew by itself.
        restart_delay_ms: Milliseconds before it does, always the same; None: they grow, or it does
            not tell.
    """

    version: str
    free_slots: int
    slots_each: int
    restarts: bool
    restart_delay_ms: int | None = None


def cluster_of(flink_master: str | None) -> Cluster:
    """Return the cluster that was named.

    Raises:
        UsageError: None was, or not by an address.
    """
    if not flink_master or flink_master.startswith("["):
        raise UsageError(
            "runner flink needs --flink-master HOST:PORT, the address of Flink's REST interface "
            "(pipelines/flink/up starts a cluster on this machine)"
        )
    return Cluster(parse_address(flink_master, "--flink-master"))


def room_of(cluster: Cluster, *, needs_slot: bool = True) -> Room:
    """Return what a cluster has for a job.

    Args:
        cluster: The cluster.
        needs_slot: Refuse one without a free slot, once a while has shown that none gets free.

    Raises:
        UsageError: It cannot be asked, is of an unknown version, or has no free slot.
    """
    until_s = time.monotonic() + (_SLOT_S if needs_slot else 0)
    while not (room := _room_now(cluster)).free_slots and time.monotonic() < until_s:
        time.sleep(0.5)
    if needs_slot and not room.free_slots:
        raise UsageError(
            f"all slots of {cluster.address} are taken: wait for other jobs, or add TaskManagers"
        )
    return room


def _room_now(cluster: Cluster) -> Room:
    try:
        overview, managers = cluster.overview(), cluster.task_managers()
        configured = cluster.configuration()
    except NoAnswer as error:
        raise UsageError(
            f"cannot reach Flink at {cluster.address} ({error}): start it, or correct "
            "--flink-master"
        ) from error
    version = str(overview["flink-version"])
    if ".".join(version.split(".")[:2]) not in _VERSIONS:
        raise UsageError(f"Flink {version} is not a version that Beam has a runner for")
    total, free = int(overview["slots-total"]), int(overview["slots-available"])
    if not managers or not total:
        raise UsageError(f"no TaskManager is registered at {cluster.address}: start some")
    each = min(int(one["slotsNumber"]) for one in managers)
    kind = configured.get("restart-strategy.type", configured.get("restart-strategy", "none"))
    restarts = kind.lower() not in ("none", "off", "disable")
    return Room(version, free, max(1, each), restarts, _restart_delay_ms(kind.lower(), configured))


def _restart_delay_ms(kind: str, configured: Mapping[str, str]) -> int | None:
    key = _DELAYS.get(kind.replace("-", ""))
    # One second is what Flink takes where nothing is set.
    return None if key is None else parse_duration_ms(configured.get(key, "1 s"))


def check_job_server(endpoint: str | None, jar: str | None, flink_version: str) -> None:
    """Make sure that there is a job server, or a jar to start one from.

    Raises:
        UsageError: There is neither, or the jar is for another version of Flink.
    """
    if endpoint:
        address = parse_address(endpoint, "--job-endpoint")
        if not answers(address):
            raise UsageError(
                f"cannot reach the job server at {address}: start it, or correct --job-endpoint"
            )
        return
    minor = ".".join(flink_version.split(".")[:2])
    if not jar:
        beam = importlib.metadata.version("apache-beam")
        raise UsageError(_WHAT_TO_FETCH.format(flink=minor, beam=beam))
    if not os.path.isfile(jar):
        raise UsageError(f"there is no job server {jar!r}: correct --job-server-jar")
    if shutil.which("java") is None:
        raise UsageError(
            "there is no java on this machine: install a Java runtime, or name a job server that "
            "runs elsewhere (--job-endpoint)"
        )
    made_for = re.search(r"flink-(\d+\.\d+)-job-server", os.path.basename(jar))
    if made_for and made_for[1] != minor:
        raise UsageError(
            f"job server {os.path.basename(jar)!r} is for Flink {made_for[1]}, but the cluster is "
            f"{flink_version}: fetch that for {minor}"
        )


def boot_command(given: str | None) -> str:
    """Return the program that starts workers, by the path that it has on every TaskManager's host.

    Args:
        given: As the user says; None: as it is installed here.

    Raises:
        UsageError: It is not installed here.
    """
    if given:
        return given
    beside = os.path.join(os.path.dirname(sys.executable), BOOT)
    if os.path.isfile(beside):
        return beside
    if found := shutil.which(BOOT):
        return os.path.abspath(found)
    raise UsageError(f"there is no {BOOT} beside {sys.executable}: install beam-tfrecord again")


def check_boot(command: str, cluster: Cluster, expected: Mapping[str, str]) -> None:
    """Start the worker program where that can be tried: if TaskManagers are on this machine.

    On other machines it checks the same when it is started there, and the job ends with its word.

    Raises:
        UsageError: It does not start, or finds other versions than those of this process.
    """
    if not any(map(_is_here, _hosts(cluster))):
        return
    try:
        tried = subprocess.run(
            [command, "--check"],
            env={**os.environ, boot.EXPECT: json.dumps(expected)},
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = (getattr(error, "strerror", None) or "it does not end").lower()
        raise UsageError(
            f"cannot run the worker command {command!r} ({reason}): correct --worker-command"
        ) from error
    if tried.returncode in boot.FAULTS:
        raise UsageError(boot.fault_text(tried.returncode, expected))
    if tried.returncode:
        said: Sequence[str] = tried.stderr.strip().splitlines() or ["it says nothing"]
        raise UsageError(
            f"the worker command {command!r} ends with code {tried.returncode} ({said[-1][:200]}): "
            "correct --worker-command"
        )


def _hosts(cluster: Cluster) -> set[str]:
    # pekko.tcp://flink@host:port/user/rpc/taskmanager_0
    paths = [str(one.get("path", "")) for one in cluster.task_managers()]
    return {found[1] for path in paths if (found := re.search(r"@([^:/]+)[:/]", path))}


def _is_here(host: str) -> bool:
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(host)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            # Only an address of this machine can be bound to.
            one.bind((address, 0))
            return True
    return False


_READY_S = 60.0
_END_S = 5.0
_OPENS = ("java.lang", "java.nio", "java.util", "sun.nio.ch")


@contextlib.contextmanager
def job_server(jar: str, flink_master: str, artifacts: str | None) -> Iterator[str]:
    """Run a job server until the block ends; give its ``host:port``.

    Args:
        jar: Path of the job server's jar.
        flink_master: ``host:port`` of the cluster.
        artifacts: Directory for what is staged, which all workers share and which outlives this
            process; None: a temporary one.

    Raises:
        UsageError: There is no Java or no such jar, or it does not start.
    """
    java = shutil.which("java")
    if java is None:
        raise UsageError(
            "there is no java on this machine: install a Java runtime, or name a job server that "
            "runs elsewhere (--job-endpoint)"
        )
    if not os.path.isfile(jar):
        raise UsageError(f"there is no job server {jar!r}: correct --job-server-jar")
    with contextlib.ExitStack() as stack:
        own = artifacts or stack.enter_context(tempfile.TemporaryDirectory(prefix="beam-tfrecord-"))
        log = stack.enter_context(tempfile.TemporaryFile())
        port = _free_port()
        process = subprocess.Popen(
            [
                java,
                "-Xmx256m",
                *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENS),
                "-jar",
                jar,
                f"--flink-master={flink_master}",
                "--job-host=localhost",
                f"--job-port={port}",
                "--artifact-port=0",
                "--expansion-port=0",
                f"--artifacts-dir={own}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C is for us: the server is needed to cancel what it has started.
            start_new_session=True,
        )
        stack.callback(_end, process)
        _await(process, port, jar)
        yield f"localhost:{port}"


def answers(address: str) -> bool:
    """Tell whether something listens at ``host:port``."""
    host, _, port = address.rpartition(":")
    with (
        contextlib.suppress(OSError, ValueError),
        socket.create_connection((host, int(port)), timeout=2),
    ):
        return True
    return False


def _await(process: subprocess.Popen[bytes], port: int, jar: str) -> None:
    until_s = time.monotonic() + _READY_S
    while not answers(f"localhost:{port}"):
        if process.poll() is not None:
            raise UsageError(
                f"job server {jar!r} ended at once with code {process.returncode}: it is none for "
                "this Java or not Beam's job server for Flink"
            )
        if time.monotonic() > until_s:
            raise UsageError(f"job server {jar!r} is not ready after {_READY_S:.0f} seconds")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])
