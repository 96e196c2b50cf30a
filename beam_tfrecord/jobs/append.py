"""Appends the rows of new input to a dataset, with the settings that the dataset was written with.

``job.json`` holds these settings and the listed input files of every generation. So the same
command appends only the files that are new.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.base.progress import Progress
from beam_tfrecord.errors import TargetExists, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.job_file import ARGUMENTS, INPUTS
from beam_tfrecord.format.manifest import Manifest, generation_jobs
from beam_tfrecord.job_state.job import Target, directory_target
from beam_tfrecord.jobs.fingerprint import listed_file, time_text
from beam_tfrecord.jobs.run import run_beside
from beam_tfrecord.jobs.settings import Settings, make_settings
from beam_tfrecord.options.jobs import AppendOptions, WriteOptions
from beam_tfrecord.publish.transaction import clear_dead
from beam_tfrecord.sources.files import Listing, list_input


def append_rows(call: AppendOptions, progress: Progress | None) -> Manifest:
    """Append the rows of new input files to a dataset; see `beam_tfrecord.append`."""
    target = directory_target(call.output)
    manifest = Manifest.load(target.manifest)
    jobs = _known_jobs(target, manifest)
    settings = _settings(call, target, manifest, jobs[0])
    if not settings.source.is_stable:
        raise UsageError(
            "append takes files, of which it knows which ones the dataset has: extract the new "
            "rows to a directory (beam-tfrecord extract), and append that"
        )
    listing = _new_files(list_input(settings.source), jobs, target)
    if not listing.outlines:
        return manifest
    return run_beside(settings, listing, progress)


def compact_dataset(
    dataset: str | os.PathLike[str], progress: Progress | None, **options: Any
) -> Manifest:
    """Write all generations of a dataset as one; see `beam_tfrecord.compact`."""
    target, manifest = directory_target(dataset), Manifest.load(dataset)
    if not manifest.appended:
        return manifest
    arguments = _known_jobs(target, manifest)[0].get(ARGUMENTS, {})
    # A pipeline leaves no arguments.
    same = {
        "shuffle": manifest.order == "shuffled",
        "key": manifest.key,
        "seed": manifest.seed,
        "compression": manifest.compression,
        "shard_size": arguments.get("shard_size"),
    }
    settings = make_settings(
        WriteOptions(target.directory, target.directory, from_="tfrecord", **same, **options)
    )
    settings = dataclasses.replace(
        settings, appends_to=manifest.origin, compacts=True, arguments=arguments
    )
    made = run_beside(settings, list_input(settings.source), progress)
    clear_dead(target)
    return made


def _known_jobs(target: Target, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the ``job.json`` of each generation; refuse a dataset that has lost one."""
    jobs = generation_jobs(target.manifest, manifest)
    if not all(jobs):
        name = manifest.generations[jobs.index({})].names("")[0]
        raise UsageError(
            f"{target.path(name)!r} is missing or damaged, so nobody knows which files the dataset "
            "has: restore it, or write a dataset of all rows"
        )
    return jobs


def _settings(
    call: AppendOptions, target: Target, manifest: Manifest, job: Mapping[str, Any]
) -> Settings:
    """Return the settings of a job that writes the new rows as those of the dataset."""
    arguments = job.get(ARGUMENTS)
    if arguments is None:
        raise UsageError(
            f"{target.path('job.json')!r} does not say how the dataset was made, so nothing can be "
            "appended: write a dataset of all rows"
        )
    if not manifest.schema.features:
        raise UsageError("the dataset has records of unknown features: nothing can be appended")
    if manifest.rules != Manifest.rules or arguments.get("dedup"):
        why = "--dedup, which compares all rows" if arguments.get("dedup") else "other rules"
        raise UsageError(f"the dataset was written by {why}: write a dataset of all rows")
    name, sha256 = arguments.get("map") or ("", None)
    map_function = name if call.map is None else call.map
    given = {field.name: getattr(call, field.name) for field in dataclasses.fields(AppendOptions)}
    options = {**arguments, **{name: of for name, of in given.items() if of is not None}}
    options["map"] = map_function or None
    if options.pop("is_fitted"):
        options["transform_fn"] = target.directory
    else:
        options["schema"] = _unlabelled(manifest.schema)
    settings = make_settings(WriteOptions(**options))
    found = settings.map
    if (found.sha256 if found else None) != sha256 or bool(found) != bool(name):
        was = f"{name!r} as it was then" if name else "no function"
        raise UsageError(
            f"the rows of the dataset were made by {was}, and the new ones would be made by "
            f"{found.name if found else 'none'}: pass the same function, or write a dataset of all "
            "rows"
        )
    layout = settings.layout
    # Counting the new rows would change the limits of the splits.
    splits = dataclasses.replace(layout.splits, strata=manifest.strata)
    return dataclasses.replace(
        settings,
        layout=dataclasses.replace(layout, splits=splits),
        appends_to=manifest.origin,
        arguments={},
    )


def _unlabelled(schema: Schema) -> Schema:
    """Return a schema to enforce; the new rows have their own class names, which are compared."""
    features = (
        dataclasses.replace(feature, labels=(), observed=None) for feature in schema.features
    )
    return Schema(tuple(features))


def _new_files(listing: Listing, jobs: Sequence[Mapping[str, Any]], target: Target) -> Listing:
    """Return the listed files that no generation of a dataset has."""
    known: dict[Any, Sequence[Any]] = {
        tuple(file): file for job in jobs for file in job.get(INPUTS, ())
    }
    known |= {file[0]: file for file in known.values() if len(file) == 4}
    packs = [file for file in known.values() if len(file) > 4]
    pairs = []
    for file in listing.outlines:
        now = listed_file(file)
        before = known.get(tuple(now)) or known.get(now[0])
        if before is None and file.last:
            _check_apart(file.path, now, packs)
        pairs.append((file, before, now))
    for file, before, now in pairs:
        if before not in (None, now):
            raise TargetExists(
                f"{file.name!r} changed since its rows were written (then {time_text(before)}, now "
                f"{time_text(now)}): append cannot replace rows: restore the file, or write a "
                "dataset of all rows"
            )
    outlines = tuple(file for file, before, _ in pairs if before is None)
    if outlines and listing.sent is None:
        raise UsageError(
            "the input has too many files to tell which are new: pass only the new ones"
        )
    new = {tuple(listed_file(file)) for file in outlines}
    sent = tuple(file for file in listing.sent or () if tuple(listed_file(file)) in new)
    return Listing(outlines, sum(file.bytes for file in outlines), sent)


def _check_apart(directory: str, now: Sequence[Any], packs: Sequence[Sequence[Any]]) -> None:
    """Check that a pack of files lies before or after those that a dataset has, by path."""
    for first, *_, last in packs:
        if now[0] <= last and first <= now[-1]:
            raise TargetExists(
                f"{directory!r} has files that the dataset has, and append cannot tell which ones "
                "are new or changed: put the new ones in a directory of their own, and append that"
            )
