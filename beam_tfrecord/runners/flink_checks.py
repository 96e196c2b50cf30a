"""What has to hold before a job is handed to Flink: each fault is one line, within seconds."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners import boot_checks
from beam_tfrecord.runners.flink_rest import Cluster, NoAnswer, parse_address, parse_duration_ms
from beam_tfrecord.runners.job_server import answers

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
            env={**os.environ, boot_checks.EXPECT: json.dumps(expected)},
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
    if tried.returncode in boot_checks.FAULTS:
        raise UsageError(boot_checks.fault_text(tried.returncode, expected))
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
