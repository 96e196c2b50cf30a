"""The Java virtual machine inside this process: found, started once, and left in peace at exit."""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import sys
import threading
import time
from typing import Any

from beam_tfrecord.errors import UsageError

# What a user's own choice replaces, by what it begins with. Blocks are of a few MB and rows are
# fetched by bytes: a larger heap only lets garbage pile up. The second compiler would take a core
# from encoding for seconds, which its faster code wins back after some millions of rows only.
_CHOICES = {"-Xmx": "-Xmx512m", "-XX:TieredStopAtLevel=": "-XX:TieredStopAtLevel=1"}

# The driver of MariaDB would write a line to stderr for what is told as an error anyway.
_SETTINGS = ("-Djava.awt.headless=true", "-Dmariadb.logging.disable=true")

# A user of Java knows this variable; what it says wins over our own choice.
_USER_OPTIONS = "JAVA_TOOL_OPTIONS"

_POLL_MS = 100

_lock = threading.Lock()
_started_in: int | None = None


def java() -> Any:
    """Return the module ``jpype``, with a JVM running in this process.

    Raises:
        UsageError: JPype, a Java runtime or the helper's jar is missing, or this process is a
            fork of one that has a JVM.
    """
    global _started_in
    with _lock:
        if _started_in != os.getpid():
            jpype = _imported()
            _start(jpype)
            _started_in = os.getpid()
    return sys.modules["jpype"]


def helper(name: str) -> Any:
    """Return a class of the Java helper."""
    return java().JClass(f"beamtfrecord.{name}")


def result_of(task: Any, *, within_s: float | None = None) -> Any:
    """Wait for a task of the Java helper, and for Ctrl-C.

    Raises:
        TimeoutError: It has not ended within `within_s` seconds.
    """
    ends = None if within_s is None else time.monotonic() + within_s
    # Inside a call into Java no signal is seen.
    while not task.isDoneWithin(_POLL_MS):
        if ends is not None and time.monotonic() > ends:
            raise TimeoutError(f"no answer within {within_s:g} seconds")
    return task.result()


def _imported() -> Any:
    try:
        import jpype
        import jpype.config
    except ImportError as error:
        raise UsageError(
            f"cannot read jdbc: databases ({error}): pip install 'beam-tfrecord[jdbc]'"
        ) from None
    return jpype


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
        # Waiting for threads of drivers at exit can take for ever.
        jpype.config.destroy_jvm = False
        jpype.addClassPath(jar)
        chosen = os.environ.get(_USER_OPTIONS, "")
        options = [option for start, option in _CHOICES.items() if start not in chosen]
        try:
            # Without -Xrs the JVM takes Ctrl-C for itself.
            jpype.startJVM(path, *options, "-Xrs", "-XX:+UseSerialGC", *_SETTINGS, interrupt=False)
        except (RuntimeError, OSError) as error:
            raise UsageError(
                f"cannot start Java at {path!r} ({str(error).splitlines()[0]}): install a "
                "runtime of version 11 or later, or set JAVA_HOME"
            ) from None
        _stop_reference_queue(jpype)
    # Some drivers read times in the zone of the JVM, whatever the session's.
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
    """Stop the thread by which Java tells Python of every garbage collection.

    Python would then collect its own, with all threads waiting, many times a second; and at exit
    that thread can abort the process. It frees what Java holds of Python: here that is nothing.
    """
    # Not every version of JPype has it, and nothing but speed depends on it.
    with contextlib.suppress(Exception):
        jpype.JClass("org.jpype.ref.JPypeReferenceQueue").getInstance().stop()
