"""What must hold where a worker starts, checked before anything heavy is imported there.

The launcher says what it expects in an environment variable of the worker's command. A runner
tells the launcher of a worker that does not start nothing but its exit code, so each fault has one.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

EXPECT = "BEAM_TFRECORD_BOOT_EXPECT"

# Free of the codes that shells, signals and Python itself use.
PYTHON_DIFFERS, BEAM_DIFFERS, NOT_SHARED, NOT_INSTALLED, PACKAGE_FAILS = 81, 82, 83, 84, 85

FAULTS: Mapping[int, str] = {
    PYTHON_DIFFERS: (
        "a worker has another version of Python than this machine (here {python}): "
        "install the same minor version there, or launch from such a machine"
    ),
    BEAM_DIFFERS: (
        "a worker has another version of apache-beam than this machine (here {beam}): "
        "install the same minor version there"
    ),
    NOT_SHARED: (
        "a worker does not see the output directory {probe!r}: write to a directory that all "
        "workers share under one path, or to gs:// or s3://"
    ),
    NOT_INSTALLED: "apache-beam is not installed for the Python of the worker command: install it",
    PACKAGE_FAILS: (
        "a package that was sent cannot be installed on a worker: see the worker's log, and pass "
        "a wheel that suits its platform"
    ),
}


def expectation(probe: str | None, directory: str = "") -> dict[str, str]:
    """Return what a launcher expects of its workers, and where they tell of what they cannot do.

    Args:
        probe: A file that workers must be able to see; None: there is none.
        directory: Temporary directory of the job; empty where there is none.
    """
    expected = {key: str(value) for key, value in found().items() if key in ("python", "beam")}
    told = {"probe": probe, "directory": directory}
    return expected | {key: value for key, value in told.items() if value}


def expected_here() -> dict[str, str]:
    """Return what a launcher has said that it expects; empty where none has."""
    return dict(json.loads(os.environ.get(EXPECT) or "{}"))


def found() -> dict[str, Any]:
    """Return what there is on this machine: versions, and the host's name."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "beam": _beam_minor(),
        "host": platform.node(),
        "executable": sys.executable,
    }


def _beam_minor() -> str:
    try:
        version = importlib.metadata.version("apache-beam")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return ".".join(version.split(".")[:2])


def fault_of(expected: Mapping[str, str], here: Mapping[str, Any]) -> int:
    """Return the exit code for what is not as expected; 0 where all is."""
    if not here["beam"]:
        return NOT_INSTALLED
    if expected.get("python", here["python"]) != here["python"]:
        return PYTHON_DIFFERS
    if expected.get("beam", here["beam"]) != here["beam"]:
        return BEAM_DIFFERS
    probe = expected.get("probe")
    return NOT_SHARED if probe is not None and not os.path.exists(probe) else 0


def check_here() -> int:
    """Compare this machine with what is expected; return an exit code, 0 where all is well."""
    expected = expected_here()
    if code := fault_of(expected, found()):
        print(f"boot: {fault_text(code, expected)}", file=sys.stderr, flush=True)  # noqa: T201
        return code
    return 0


def fault_text(code: int, expected: Mapping[str, str]) -> str:
    """Return the line for an exit code of `check_here`."""
    blank = {"python": "?", "beam": "?", "probe": "?"}
    return FAULTS[code].format(**{**blank, **expected})
