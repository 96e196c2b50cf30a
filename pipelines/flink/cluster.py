"""A Flink cluster on this machine: a JobManager, TaskManagers and Beam's job server, on loopback.

All that belongs to a cluster is in its state directory: configuration, logs, ids of processes,
temporary files. Every process has the path of that directory in its command line, and only such
processes are ever ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import packages

TASK_MANAGERS, SLOTS = 2, 2
_READY_S, _END_S = 90, 15
_HEAP = "-Xmx256m"
_MAIN = "org.apache.beam.runners.flink.FlinkJobServerDriver"
# What Beam and Flink reach into; Java 17 keeps it closed.
_OPENS = [
    f"--add-opens=java.base/{name}=ALL-UNNAMED"
    for name in ("java.lang", "java.nio", "java.util", "sun.nio.ch")
]

# A step of Beam is a task of its own, and each edge between two of them wants buffers of its own.
# attempts x delay must be longer than heartbeat.timeout and the start of another TaskManager.
CONFIGURATION = """\
jobmanager:
  bind-host: localhost
  rpc: {{address: localhost, port: {rpc_port}}}
  memory: {{process: {{size: 1024m}}}}
taskmanager:
  bind-host: localhost
  host: localhost
  numberOfTaskSlots: {slots}
  memory: {{process: {{size: 1280m}}, network: {{min: 192m, max: 192m}}}}
  network: {{sort-shuffle: {{min-buffers: 64}}}}
parallelism: {{default: {parallelism}}}
rest: {{address: localhost, bind-address: localhost, port: {rest_port}}}
classloader: {{parent-first-patterns: {{additional: org.apache.beam}}}}
blob: {{server: {{port: '{blob_port}'}}}}
io: {{tmp: {{dirs: {state}/tmp}}}}
heartbeat: {{interval: 2000, timeout: 10000}}
restart-strategy:
  type: fixed-delay
  fixed-delay: {{attempts: 10, delay: 12 s}}
"""


def up(state: Path, task_managers: int = TASK_MANAGERS, slots: int = SLOTS) -> str:
    """Start a cluster; return the arguments for ``beam-tfrecord write``.

    Args:
        state: Directory of this cluster alone.
        task_managers: Number of them.
        slots: Of each.

    Raises:
        packages.Missing: A program is missing, or a package cannot be fetched.
    """
    if list((state / "pid").glob("*")):
        raise packages.Missing(f"a cluster is in {state} already: end it first (down {state})")
    packages.need("java")
    home, jars = packages.flink_home(), packages.runner_jars()
    ports = _free_ports(4)
    _prepare(state, home, jars, ports, task_managers, slots)
    try:
        _flink(state, home, "jobmanager.sh")
        for _ in range(task_managers):
            start_task_manager(state)
        _start_job_server(state, jars, rest_port=ports[0], job_port=ports[3])
        _await(state, ports, task_managers * slots)
    except BaseException:
        down(state)
        raise
    return f"--runner flink --flink-master localhost:{ports[0]} --job-endpoint localhost:{ports[3]}"


def start_task_manager(state: Path) -> None:
    """Start one more TaskManager, or one in place of another that has ended."""
    _flink(state, Path((state / "home").read_text(encoding="utf-8")), "taskmanager.sh")


def down(state: Path) -> list[int]:
    """End all processes of a cluster; return the ids of those that had to be killed."""
    killed = []
    for note in sorted((state / "pid").glob("*.pid"), reverse=True):
        # Flink notes several TaskManagers in one file, a line each.
        for pid in map(int, note.read_text(encoding="utf-8").split()):
            if is_of(pid, state) and not _end(pid, state):
                killed.append(pid)
        note.unlink()
    for name in ("tmp", "artifacts", "lib"):
        shutil.rmtree(state / name, ignore_errors=True)
    return killed


def pids(state: Path, kind: str = "*") -> list[int]:
    """Return the ids of the running processes of a cluster: ``*taskexecutor*`` names a kind."""
    noted = [
        note.read_text(encoding="utf-8").split() for note in (state / "pid").glob(f"{kind}.pid")
    ]
    return [pid for of_file in noted for pid in map(int, of_file) if is_of(pid, state)]


def is_of(pid: int, state: Path) -> bool:
    """Tell whether a process is of the cluster in `state`; its number may be another's by now."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        shown = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
        )
        command = shown.stdout
    return os.fsencode(state) in command


def get(url: str) -> Any:
    """Return what Flink's REST interface answers; None where nobody does."""
    with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=2) as answer:
        return json.load(answer)
    return None


def _end(pid: int, state: Path) -> bool:
    for number, wait_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            if not is_of(pid, state):
                return number == signal.SIGTERM
            time.sleep(0.1)
    return False


def _prepare(
    state: Path, home: Path, jars: Path, ports: list[int], task_managers: int, slots: int
) -> None:
    for name in ("pid", "log", "tmp", "artifacts", "lib", "conf"):
        (state / name).mkdir(parents=True, exist_ok=True)
    shutil.copytree(home / "conf", state / "conf", dirs_exist_ok=True)
    shipped = (home / "conf" / "config.yaml").read_text(encoding="utf-8")
    # Of the shipped configuration only the options of the JVM matter.
    java = re.search(r"^env:\n(?:[ \t]+.*\n)+", shipped, re.MULTILINE)
    told = CONFIGURATION.format(
        state=state,
        slots=slots,
        parallelism=task_managers * slots,
        rest_port=ports[0],
        rpc_port=ports[1],
        blob_port=ports[2],
    )
    (state / "conf" / "config.yaml").write_text((java[0] if java else "") + told, encoding="utf-8")
    (state / "home").write_text(str(home), encoding="utf-8")
    _link_jars(state / "lib", home / "lib", jars)


def _link_jars(into: Path, flink: Path, runner: Path) -> None:
    """Give the processes of Flink the runner's classes, so that no job has to bring them."""
    for jar in flink.glob("*.jar"):
        if not jar.name.startswith("flink-table"):
            (into / jar.name).symlink_to(jar)
    for jar in runner.glob("*.jar"):
        if not jar.name.startswith(("flink-", "slf4j-", "log4j-")):
            (into / jar.name).symlink_to(jar)


def _flink(state: Path, home: Path, script: str) -> None:
    environment = {
        **os.environ,
        "FLINK_HOME": str(home),
        "FLINK_CONF_DIR": str(state / "conf"),
        "FLINK_LOG_DIR": str(state / "log"),
        "FLINK_PID_DIR": str(state / "pid"),
        "FLINK_LIB_DIR": str(state / "lib"),
        "NO_GCE_CHECK": "true",
    }
    command = ["bash", str(home / "bin" / script), "start"]
    with open(state / "log" / "start.out", "ab") as log:
        subprocess.run(command, env=environment, stdout=log, stderr=log, check=True)


def _start_job_server(state: Path, jars: Path, *, rest_port: int, job_port: int) -> None:
    artifacts = state / "artifacts"
    # The server sends each jar of its class path along with each job, one after the other: 161 of
    # them take 13 seconds. What is on the boot class path it takes for a part of Java.
    of_flink = {
        jar for jar in jars.glob("*.jar") if jar.name.startswith(("flink-", packages.RUNNER))
    }
    others = sorted(set(jars.glob("*.jar")) - of_flink)
    command = [
        "java", _HEAP, *_OPENS, f"-Xbootclasspath/a:{os.pathsep.join(map(str, others))}",
        "-cp", os.pathsep.join(map(str, sorted(of_flink))), _MAIN,
        f"--flink-master=localhost:{rest_port}", "--job-host=localhost", f"--job-port={job_port}",
        "--artifact-port=0", "--expansion-port=0", f"--artifacts-dir={artifacts}",
    ]  # fmt: skip
    environment = {**os.environ, "NO_GCE_CHECK": "true"}
    with open(state / "log" / "job-server.log", "ab") as log:
        server = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    (state / "pid" / "job-server.pid").write_text(f"{server.pid}\n", encoding="utf-8")


def _await(state: Path, ports: list[int], slots: int) -> None:
    until_s = time.monotonic() + _READY_S
    while time.monotonic() < until_s:
        overview = get(f"http://localhost:{ports[0]}/v1/overview") or {}
        # A TaskManager is counted before it has told of its slots.
        if overview.get("slots-total", 0) >= slots and _answers(ports[3]):
            return
        time.sleep(0.3)
    raise packages.Missing(f"the cluster is not ready after {_READY_S} seconds: see {state}/log")


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
        return True
    return False


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]
