"""Checks, before a job starts, that its runner can run it and that no secret would leak."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.rows.user_function import MapFunction
from beam_tfrecord.runners import check_runner_name, traits_of
from beam_tfrecord.sources.files import as_paths
from beam_tfrecord.sources.sql.database import stored_password, without_password
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import JobSettings

# Beam would write the values of these options into the description of the job, which everyone with
# access to the runner can read.
SECRET_OPTIONS = (
    "--azure_connection_string",
    "--s3_access_key_id",
    "--s3_secret_access_key",
    "--s3_session_token",
)

_SECRET_PROPERTY = re.compile(r"pass(word|wd|phrase)|pwd|secret|token|access_?key", re.I)


def preflight(settings: JobSettings[Any], *, waits: bool = True) -> None:
    """Check that a job can run on its runner, before anything is read or written."""
    check_runner_name(settings.runner)
    name, options = traits_of(settings.runner).beam_name, settings.pipeline_options
    # Lazy, because both modules import Beam.
    if name == "DataflowRunner":
        from beam_tfrecord.runners import dataflow

        check_secrets("dataflow", options)
        dataflow.check(options, waits=waits)
        check_reach("dataflow", settings.source, settings.target.directory)
    elif name == "FlinkRunner":
        from beam_tfrecord.runners import flink

        check_secrets("flink", options)
        flink.check(options, settings.target.leftovers())


def check_secrets(runner: str, options: Sequence[str]) -> None:
    """Refuse options that would put a secret into the description of a job."""
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
    """Refuse input or output that only this machine or this process can access."""
    if not is_remote(output):
        raise UsageError(
            f"{runner} workers cannot write to {output!r}: give an output on gs:// or s3://"
        )
    if source.kind == "sql":
        _check_database(runner, source)
        return
    if getattr(source, "digest", ""):
        raise UsageError(
            f"{runner} workers cannot see data in memory: write it to gs:// or s3:// first, such "
            "as by to_parquet('gs://…'), and give that path"
        )
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
    if source.password_env is None and source.password_file is None and stored_password(url):
        raise UsageError(
            f"a password given here never leaves this process, and {runner} workers need it: pass "
            "--password-env or --password-file, which are looked up there"
        )


def modules_of(settings: Any) -> tuple[str, ...]:
    """Return the names of the user's top-level modules that remote workers need for a job.

    These are the modules of the map function, of the preprocessing function and of a source of
    another package, and all loaded modules from the same directories, because a function may import
    modules of its directory. The file of a function ``file.py:function`` is not included, because
    its text is pickled.
    """
    preprocessing = getattr(getattr(settings, "transform", None), "function", None)
    functions = (getattr(settings, "map", None), preprocessing)
    needed = [_needed_by(one) for one in functions if isinstance(one, MapFunction)]
    source = _with_neighbours(type(settings.source).__module__)
    return tuple(sorted(source.union(*needed)))


def _needed_by(function: MapFunction) -> set[str]:
    if function.file is not None:
        return _loaded_from(os.path.dirname(function.file[0]))
    name = getattr(function.function, "__module__", None) or type(function.function).__module__
    return _with_neighbours(name)


def _with_neighbours(module: str) -> set[str]:
    """Return the top-level module of a module, and those that are loaded from its directory."""
    top = module.partition(".")[0]
    if top in ("__main__", __name__.partition(".")[0]):
        return set()
    return {top, *_loaded_from(_directory_of(top))}


def _directory_of(top: str) -> str:
    """Return the directory that contains a top-level module; empty if the module has no file."""
    path = getattr(sys.modules.get(top), "__file__", None)
    if not isinstance(path, str):
        return ""
    is_package = os.path.basename(path) == "__init__.py"
    return os.path.dirname(os.path.dirname(path) if is_package else path)


def _loaded_from(directory: str) -> set[str]:
    """Return the names of the loaded top-level modules whose files are in a directory."""
    return {
        name
        for name in list(sys.modules)
        # Modules that `user_function` makes from the text of a file are pickled as that text.
        if directory
        and "." not in name
        and not name.startswith(("__", "_beam_tfrecord_map_"))
        and _directory_of(name) == directory
    }
