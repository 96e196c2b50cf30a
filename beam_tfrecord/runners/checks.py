"""Checks before a job goes to its runner, so that a job that cannot run fails within seconds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runner_traits import traits_of
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.sql.secrets import has_held_password, without_password
from beam_tfrecord.storage import is_remote

# Beam would write their values into the description of the job, for all who may look at it.
SECRET_OPTIONS = (
    "--azure_connection_string",
    "--s3_access_key_id",
    "--s3_secret_access_key",
    "--s3_session_token",
)

_SECRET_PROPERTY = re.compile(r"pass(word|wd|phrase)|pwd|secret|token|access_?key", re.I)


def preflight(
    runner: str,
    options: Sequence[str],
    source: Source,
    output: str,
    *,
    leftovers: Callable[[], Sequence[str]],
    waits: bool = True,
) -> None:
    """Check that a job can run on its runner, before anything is read or written.

    Args:
        runner: Name of the runner.
        options: The user's Beam options.
        source: Input of the job.
        output: Absolute path or URL of the output directory.
        leftovers: Returns the temporary directories of jobs that did not end.
        waits: True if this process waits for the end of the job.

    Raises:
        UsageError: The job cannot run there.
    """
    name = traits_of(runner).beam_name
    # Lazy, since both import Beam.
    if name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        check_secrets("dataflow", options)
        dataflow.check(options, waits=waits)
        check_reach("dataflow", source, output)
    elif name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        check_secrets("flink", options)
        flink.check(options, leftovers())


def check_secrets(runner: str, options: Sequence[str]) -> None:
    """Refuse options that would put a secret into the description of a job.

    Raises:
        UsageError: There is such an option, or a URL with a password.
    """
    for word in options:
        flag, _, value = word.partition("=")
        if flag in SECRET_OPTIONS:
            raise UsageError(
                f"{flag} would be readable in the description of the {runner} job: give the "
                "workers' account the right instead"
            )
        if without_password(value or word) != (value or word):
            raise UsageError(
                f"a password in {flag if value else 'an option'} would be readable in the "
                f"description of the {runner} job: leave it out"
            )


def check_reach(runner: str, source: Any, output: str) -> None:
    """Refuse input or output that only this machine or this process has.

    Raises:
        UsageError: There is some.
    """
    if not is_remote(output):
        raise UsageError(
            f"{runner} workers cannot write to {output!r}: give an output on gs:// or s3://"
        )
    if source.kind == "sql":
        _check_database(runner, source)
        return
    for path in as_paths(source.paths):
        if not is_remote(path):
            raise UsageError(f"{runner} workers cannot see {path!r}: copy it to gs:// or s3://")


def _check_database(runner: str, source: Any) -> None:
    url = source.url
    if url.startswith(("sqlite:", "duckdb:")) or "://" not in url.removeprefix("jdbc:"):
        raise UsageError(
            f"{runner} workers cannot see the database {url!r}: extract it to gs:// first "
            "(beam-tfrecord extract)"
        )
    for name in source.properties:
        if _SECRET_PROPERTY.search(name):
            raise UsageError(
                f"property {name!r} would be readable in the description of the {runner} job: pass "
                "--password-env or --password-file"
            )
    if source.password_env is None and source.password_file is None and has_held_password(url):
        raise UsageError(
            f"a password given here never leaves this process, and {runner} workers need it: pass "
            "--password-env or --password-file, which are looked up there"
        )
