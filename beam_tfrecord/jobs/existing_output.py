"""Compares the output that is at the target of a job with what the job would write."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.base.text import cell, listed
from beam_tfrecord.errors import BeamTFRecordError, TargetExists
from beam_tfrecord.format import manifest, manifest_parts
from beam_tfrecord.format.job_file import (
    INPUT,
    INPUT_STATE,
    JOB_NAME,
    SETTINGS,
    WITHOUT_FUNCTIONS,
    read_job,
)
from beam_tfrecord.job_state.job import Identity, check_free
from beam_tfrecord.jobs.fingerprint import input_info
from beam_tfrecord.jobs.settings import JobSettings, M
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.storage import exists


def same_output(
    settings: JobSettings[M], identity: Identity, files: Sequence[InputFile]
) -> M | None:
    """Return the output at the target if this job would write the same one, else None.

    Raises `TargetExists` if there is another output that the job may not replace.
    """
    if not exists(settings.target.manifest):
        return None
    present: M | None = None
    with contextlib.suppress(BeamTFRecordError):
        present = settings.load_output()
    job_file = settings.target.path(JOB_NAME)
    if isinstance(present, manifest.Manifest):
        job_file = manifest.generation_files(settings.target.manifest, present)[0][0]
    before = read_job(job_file)
    appended = getattr(present, "appended", ())
    is_same_job = present is not None and present.fingerprint == identity.fingerprint != ""
    is_same_job = is_same_job and not appended
    is_edited = _is_edited(before, files)
    if is_same_job and not is_edited:
        return present
    if settings.overwrite:
        return None
    if is_same_job:
        raise TargetExists(
            f"the input was edited since the dataset in {settings.target.directory!r} was written: "
            "pass --overwrite to write it again"
        )
    without_functions = present and identity.without_functions
    if without_functions and before.get(WITHOUT_FUNCTIONS) == without_functions and not is_edited:
        return None
    differences = "" if present is None else _differences(settings, identity, present, before)
    check_free(settings.target, overwrite=False, differences=differences)
    return None


def _differences(
    settings: JobSettings[M], identity: Identity, present: M, before: Mapping[str, Any]
) -> str:
    """Return how a job differs from the one that wrote the output at its target."""
    if not settings.source.is_stable:
        return "the input may have changed: a database or a table of images does not show it"
    found = _changed_settings(before.get(SETTINGS, settings.asked), settings.asked)
    if getattr(present, "appended", ()):
        found.append("rows were appended there")
    if isinstance(present, manifest.Manifest) and present.rules != manifest_parts.RULES:
        found.append(
            f"writing rules: {present.rules} there, {manifest_parts.RULES} now (see the changelog)"
        )
    found += _changed_files(_files_of(present.source), _files_of(identity.source))
    return f"different: {'; '.join(found)}" if found else ""


def _changed_settings(there: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{flag}: {cell(there.get(flag, 'unset'))} there, {cell(now.get(flag, 'unset'))} now"
        for flag in dict.fromkeys([*there, *now])
        if there.get(flag) != now.get(flag)
    ]


def _changed_files(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return a line for the files that were edited, for those that were added, and so on."""
    changes: dict[str, list[str]] = {}
    for name in dict.fromkeys([*there, *now]):
        if there.get(name) != now.get(name):
            both = name in there and name in now
            change = "edited" if both else "added" if name in now else "removed"
            inside = max(of.get(name, {}).get("files", 1) for of in (there, now))
            shown = f"some of the files from {name} on" if inside > 1 else name
            changes.setdefault(change, []).append(shown)
    return [f"input {change}: {listed(names)}" for change, names in changes.items()]


def _files_of(source: Mapping[str, Any] | None) -> dict[str, Any]:
    return {str(file.get("path")): file for file in (source or {}).get("files", ())}


def _is_edited(before: Mapping[str, Any], files: Sequence[InputFile]) -> bool:
    """Return whether the input was edited since a dataset was made, given equal names and sizes."""
    # The manifest has no times of files, because it must be equal for copies of the same files.
    now = input_info(files)
    state = before.get(INPUT_STATE)
    return before.get(INPUT, now[INPUT]) != now[INPUT] or state not in (None, now[INPUT_STATE])
