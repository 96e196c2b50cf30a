"""Presets for runners behind Beam's job service: the one inside Beam's Python package, and Prism.

Both run workers as threads of the launcher's own process (Beam's LOOPBACK) unless told otherwise,
so that nothing has to be installed, staged or kept running.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from beam_tfrecord.errors import UsageError

_PRISM = "prism"
# Where `go install` puts programs, and where Beam keeps those it has fetched.
_PRISM_PLACES = ("~/go/bin", "~/.apache_beam/cache/prism/bin")
PRISM_PACKAGE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def portable_presets(options: Sequence[str]) -> list[str]:
    """Return Beam's options for any job service: the embedded one where none is named.

    Args:
        options: The user's own.
    """
    if has_option(options, "--job_endpoint"):
        return []
    presets = ["--job_endpoint=embed"]
    if not has_option(options, "--environment_type"):
        presets.append("--environment_type=LOOPBACK")
    return presets


def prism_presets(options: Sequence[str]) -> list[str]:
    """Return Beam's options for Prism: which program it is.

    Beam would fetch one from the internet, without a timeout, where it finds none.

    Args:
        options: The user's own.

    Raises:
        UsageError: There is no such program here.
    """
    if has_option(options, "--prism_location") or has_option(options, "--job_endpoint"):
        return []
    program = find_prism()
    if program is None:
        from apache_beam.version import __version__ as beam_version

        raise UsageError(
            "there is no prism on this machine: install it "
            f"(go install {PRISM_PACKAGE}@v{beam_version}), or name it "
            "(-- --prism_location=PATH)"
        )
    # It tells of its own coming and going, line by line.
    return [f"--prism_location={program}", "--prism_log_level=error"]


def find_prism() -> str | None:
    """Return the path of Prism on this machine; None where it is not."""
    places = [os.environ.get("GOBIN", ""), *map(os.path.expanduser, _PRISM_PLACES)]
    path = os.pathsep.join([os.environ.get("PATH", ""), *filter(None, places)])
    return shutil.which(_PRISM, path=path)


def has_option(options: Sequence[str], flag: str) -> bool:
    """Tell whether a flag is among options, as one word or two."""
    return any(word == flag or word.startswith(f"{flag}=") for word in options)
