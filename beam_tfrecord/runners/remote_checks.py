"""What has to hold before a job goes to workers on other machines: told before anything is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.sql.secrets import has_held_password, without_password
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import JobSettings

# Beam would write their values into the description of the job, for all who may look at it.
SECRET_OPTIONS = (
    "--azure_connection_string",
    "--s3_access_key_id",
    "--s3_secret_access_key",
    "--s3_session_token",
)

_SECRET_PROPERTY = re.compile(r"pass(word|wd|phrase)|pwd|secret|token|access_?key", re.I)


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


def check_reach(runner: str, settings: JobSettings[Any]) -> None:
    """Refuse input or output that only this machine or this process has.

    Raises:
        UsageError: There is some.
    """
    source: Any = settings.source
    output = settings.target.directory
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
