"""Starts the Java virtual machine (JVM) of this process, and finds the jars of JDBC drivers.

A jar is named by its path, a URL that Beam can open, or Maven coordinates. Workers find a jar by
its file name if it was staged with the job. The *Java helper* is a jar of this package that reads
results of JDBC.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.resources
import os
import re
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from beam_tfrecord.base.extras import require
from beam_tfrecord.errors import UsageError

# Options, before those of the user, of which the last one counts. Blocks have a few MB and rows are
# fetched by bytes, so a larger heap only accumulates garbage. Java's second compiler would use a
# core for seconds, which its faster code regains only after some millions of rows. Without -Xrs the
# JVM takes Ctrl-C for itself. The driver of MariaDB would also write errors to stderr.
_OPTIONS = (
    *("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xrs"),
    *("-Djava.awt.headless=true", "-Dmariadb.logging.disable=true"),
)
# The standard variable for options of the user.
_USER_OPTIONS = "JAVA_TOOL_OPTIONS"

_POLL_MS = 100

_lock = threading.Lock()
_started_in: int | None = None


def java() -> Any:
    """Return the module ``jpype``, with a JVM running in this process."""
    global _started_in
    with _lock:
        if _started_in != os.getpid():
            require("jdbc", "reading jdbc: databases")
            import jpype.config

            _start(jpype)
            _started_in = os.getpid()
    return sys.modules["jpype"]


def helper(name: str) -> Any:
    """Return a class of the Java helper."""
    return java().JClass(f"beamtfrecord.{name}")


def result_of(task: Any, *, within_s: float | None = None) -> Any:
    """Wait for a task of the Java helper, and for Ctrl-C."""
    ends = None if within_s is None else time.monotonic() + within_s
    # Python does not see signals during a call into Java.
    while not task.isDoneWithin(_POLL_MS):
        if ends is not None and time.monotonic() > ends:
            raise TimeoutError(f"no answer within {within_s:g} seconds")
    return task.result()


def _start(jpype: Any) -> None:
    if _started_in is not None:
        raise UsageError(
            "cannot use Java in a forked process: its parent had already started Java: "
            "start processes by spawn, or use threads"
        )
    jar = _helper_jar()
    if jpype.isJVMStarted():
        jpype.addClassPath(jar)
    else:
        try:
            path = jpype.getDefaultJVMPath()
        except jpype.JVMNotFoundException:
            raise UsageError(
                "cannot read jdbc: databases: no Java runtime is found: install one of version "
                "11 or later, or set JAVA_HOME"
            ) from None
        # Otherwise the exit waits for threads of drivers, which may never end.
        jpype.config.destroy_jvm = False
        jpype.addClassPath(jar)
        options = (*_OPTIONS, *shlex.split(os.environ.get(_USER_OPTIONS, "")))
        try:
            jpype.startJVM(path, *options, interrupt=False)
        except (RuntimeError, OSError) as error:
            raise UsageError(
                f"cannot start Java at {path!r} ({str(error).splitlines()[0]}): install a "
                "runtime of version 11 or later, or set JAVA_HOME"
            ) from None
        _stop_reference_queue(jpype)
    os.register_at_fork(after_in_child=_stop_java_collections)
    # Some drivers read times in the zone of the JVM instead of the session's.
    zones = jpype.JClass("java.util.TimeZone")
    zones.setDefault(zones.getTimeZone("UTC"))


def _helper_jar() -> str:
    jar = importlib.resources.files("beam_tfrecord") / "java" / "beam-tfrecord.jar"
    if not jar.is_file():
        raise UsageError(
            "cannot read jdbc: databases: this installation was built without its Java helper: "
            "install a JDK of version 11 or later, then reinstall beam-tfrecord, or install "
            "its wheel"
        )
    return str(jar)


def _stop_reference_queue(jpype: Any) -> None:
    """Stop the thread that makes Python collect garbage whenever Java does.

    The thread would stop all Python threads many times per second, and can abort the process at
    exit. It is not needed: it frees Python objects that Java holds, and Java holds none here.
    """
    # Not every version of JPype has this thread, and only speed depends on it.
    with contextlib.suppress(Exception):
        jpype.JClass("org.jpype.ref.JPypeReferenceQueue").getInstance().stop()


def _stop_java_collections() -> None:
    """Remove JPype's hook of Python's garbage collector, which makes Java collect garbage, too.

    In a forked process it would never return: no thread of the JVM is there to answer.
    """
    gc.callbacks[:] = [
        hook for hook in gc.callbacks if getattr(hook, "__module__", None) != "_jpype"
    ]


# Variable of the directory of workers that holds files sent with the job.
_STAGED = "SEMI_PERSISTENT_DIRECTORY"
_COORDINATES = re.compile(r"([\w.-]+):([\w.-]+):([\w.-]+)")


def local_jars(jars: Sequence[str]) -> tuple[str, ...]:
    """Find jars, download them if needed, and return their local paths."""
    return tuple(map(_located, jars))


def jars_to_send(jars: Sequence[str]) -> tuple[str, ...]:
    """Return the names under which workers find jars, for a job that this machine submits.

    Coordinates become the path of the jar here. URLs do not change, nor do paths
    that do not exist here, since they may exist on the workers.
    """

    def is_here(jar: str) -> bool:
        return os.path.isfile(jar.removeprefix("file://")) or bool(_COORDINATES.fullmatch(jar))

    return tuple(_located(jar) if is_here(jar) else jar for jar in jars)


def _located(jar: str) -> str:
    path = jar.removeprefix("file://")
    if os.path.isfile(path):
        return os.path.abspath(path)
    if "://" in path:
        return _downloaded(path)
    if coordinates := _COORDINATES.fullmatch(jar):
        return _resolved(*coordinates.groups())
    staged = os.path.join(os.environ.get(_STAGED, ""), "staged", os.path.basename(path))
    if _STAGED in os.environ and os.path.isfile(staged):
        return staged
    raise UsageError(f"cannot read driver jar {jar!r}: no such file: correct --jar")


def _downloaded(url: str) -> str:
    """Return the copy of a jar in Beam's cache, into which Beam downloads it if it is not there."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    folder = os.path.join(JavaJarServer.JAR_CACHE, hashlib.sha256(url.encode()).hexdigest()[:16])
    path = os.path.join(folder, url.rpartition("/")[2])
    if not os.path.isfile(path):
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as part:
                os.replace(JavaJarServer.local_jar(url, part), path)
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise UsageError(f"cannot read driver jar {url!r} ({reason}): correct --jar") from error
    return path


def _resolved(group: str, artifact: str, version: str) -> str:
    """Return the copy of a jar from Maven Central."""
    from apache_beam.utils.subprocess_server import JavaJarServer

    return _downloaded(JavaJarServer.path_to_maven_jar(artifact, group, version))
