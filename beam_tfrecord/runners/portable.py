"""Chooses default options for Beam's local portable runners: its embedded job service, and Prism.

Both run workers as threads of the launching process (Beam's LOOPBACK) by default, so that nothing
has to be installed for workers, sent to them or kept running.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shutil
from collections.abc import Sequence

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.traits import EMBEDDED_JOB_SERVICE

PRISM_PACKAGE = "github.com/apache/beam/sdks/v2/go/cmd/prism"

# Directories of `go install`, and of Beam's own downloads.
_PRISM_DIRECTORIES = ("~/go/bin", "~/.apache_beam/cache/prism/bin")


def portable_presets(options: Sequence[str]) -> list[str]:
    """Return the default options for Beam's portable runner: its embedded job service."""
    if has_option(options, "--job_endpoint"):
        return []
    presets = [f"--job_endpoint={EMBEDDED_JOB_SERVICE}"]
    if not has_option(options, "--environment_type"):
        presets.append("--environment_type=LOOPBACK")
    return presets


def prism_presets(options: Sequence[str]) -> list[str]:
    """Return the default options for Prism, with the path of the program.

    If Prism is missing, Beam would download it without a timeout. This function raises instead.
    """
    if has_option(options, "--prism_location") or has_option(options, "--job_endpoint"):
        return []
    program = find_prism()
    if program is None:
        from apache_beam.version import __version__ as beam_version

        raise UsageError(
            "there is no prism on this machine: install it "
            f"(go install {PRISM_PACKAGE}@v{beam_version}), or name it "
            "(Beam's option --prism_location=PATH)"
        )
    # At other levels Prism logs its start and its end.
    return [f"--prism_location={program}", "--prism_log_level=error"]


def find_prism() -> str | None:
    """Return the path of Prism on this machine; None if Prism is not found."""
    directories = [os.environ.get("PATH", ""), os.environ.get("GOBIN", "")]
    directories += map(os.path.expanduser, _PRISM_DIRECTORIES)
    return shutil.which("prism", path=os.pathsep.join(filter(None, directories)))


def has_option(options: Sequence[str], flag: str) -> bool:
    """Return whether a flag is among options, with its value in the same word or the next."""
    return any(word == flag or word.startswith(f"{flag}=") for word in options)


def new_job_name() -> str:
    """Return a name that no other job has."""
    now = datetime.datetime.now(datetime.UTC)
    return f"beam-tfrecord-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
