"""Publishes the shards of a job as one more generation of a dataset that readers may have open.

Several jobs may append at once, and none has to encode its rows again: each takes the next free
number, names its shards by it, and replaces the manifest that it read. If the manifest changed
since, it reads it again (see `publish.transaction.put_beside`).
"""

from __future__ import annotations

import dataclasses
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.base.text import counted, listed
from beam_tfrecord.errors import DataError, StorageError, TargetExists
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.format.job_file import ARGUMENTS, INPUTS, PUBLICATION, STORED_HASHES
from beam_tfrecord.format.manifest import Manifest, generation_jobs, prefix_of
from beam_tfrecord.format.rejects import SAVED_FILE, join_rejects, load_rejects, rejects_hash
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.publish.assemble import checked_text, describe
from beam_tfrecord.publish.publication import Publication
from beam_tfrecord.publish.transaction import clear_published, finish_publishing, put_beside
from beam_tfrecord.storage import Lease, list_names, status

# More than the jobs that append at once.
_MOST_ATTEMPTS = 1000
_MARKED_JOB = re.compile(r"job-g(\d+)\.json$")
# What the rows of all generations of a dataset have in common, by name in the manifest.
_SHARED_SETTINGS = ("order", "seed", "compression", "key", "group", "split_by")


def append_to_dataset(
    job: Job,
    tally: Tally,
    shards: Sequence[FinishedShard],
    *,
    lease: Lease,
    info: Mapping[str, Any],
) -> list[str]:
    """Publish finished shards as the next generation of the dataset at the target of a job.

    If the job compacts the dataset, they take the place of all generations.

    Returns:
        The names of the new shards.

    Raises:
        TargetExists: The dataset was replaced since the job began, or has some of its input.
        DataError: The rows do not fit the dataset.
    """
    target = job.target
    rejects = join_rejects(tally.reject_files, os.path.join(job.directory, SAVED_FILE))
    for _ in range(_MOST_ATTEMPTS):
        # Before the manifest is read, so that an older version never replaces a newer one.
        entry = status(target.manifest)
        if entry is None:
            raise _replaced(target)
        before = Manifest.load(target.manifest)
        jobs = generation_jobs(target.manifest, before)
        published = [one.get(PUBLICATION) for one in jobs]
        if info[PUBLICATION] in published:
            _clean(job, lease)
            number = published.index(info[PUBLICATION]) + 1
            return [shard.path for shard in before.shards if shard.generation == number]
        if before.origin != job.appends_to:
            raise _replaced(target)
        mark = _next_mark(target, before)
        template = f"{mark}{job.layout.names.template}"
        names = dataclasses.replace(job.layout.names, template=template)
        marked_job = dataclasses.replace(job, layout=dataclasses.replace(job.layout, names=names))
        new, named, _, remarks = describe(marked_job, tally, shards, rejects)
        info = {**info, **remarks, "try": uuid.uuid4().hex}
        made = Publication(job, named, "", {}, rejects, info, mark)
        if job.compacts:
            made, manifest = _compacted(made, before, new, jobs)
        else:
            _check_inputs(target, jobs, info)
            if new.examples:
                check_compatible(before, new)
            manifest = before.with_appended(new, made.job_names)
        made = dataclasses.replace(made, manifest_text=checked_text(manifest))
        if put_beside(made, lease, entry.version):
            _clean(job, lease)
            return [name for name, _ in named]
    raise StorageError(f"{target.manifest!r} keeps changing: run the same command again")


def _compacted(
    made: Publication, before: Manifest, new: Manifest, jobs: Sequence[Mapping[str, Any]]
) -> tuple[Publication, Manifest]:
    """Return the publication that replaces all generations, and its manifest."""
    target = made.job.target
    if (new.examples, new.content) != (before.examples, before.content):
        raise TargetExists(
            f"rows were appended to {target.output!r} during the job, or it is damaged: nothing "
            "was compacted: run the same command again, or check it with verify"
        )
    prefix = prefix_of(target.manifest)
    rejects = [name for one in before.generations for name in one.names(prefix)[1:]]
    table = load_rejects(os.path.join(target.directory, name) for name in rejects)
    new = dataclasses.replace(
        new, rejects={"rows": before.rejected_rows, "xxh64": rejects_hash(table)}
    )
    hashes = [one.get(STORED_HASHES, {}) for one in jobs]
    info = {
        **made.info,
        ARGUMENTS: jobs[0].get(ARGUMENTS),
        INPUTS: [file for one in jobs for file in one.get(INPUTS, ())],
    }
    kept = {name: of[name] for of in hashes for name in rejects if name in of}
    old = frozenset(before.names(prefix))
    made = dataclasses.replace(made, info=info, stored=kept, replaces=old)
    return made, before.compacted(new, [*made.job_names, *rejects])


def _clean(job: Job, lease: Lease) -> None:
    """Remove what dead jobs and earlier attempts left; call it only after the manifest is replaced.

    Before, another try could still replace the manifest, and would name files that are gone.
    """
    finish_publishing(job.target, job.directory, lease.check)
    clear_published(job.target, job.directory, lease.check)


def _replaced(target: Target) -> TargetExists:
    return TargetExists(
        f"the dataset in {target.output!r} was replaced since this job began: nothing was "
        "appended: run the same command again"
    )


def _check_inputs(
    target: Target, jobs: Sequence[Mapping[str, Any]], info: Mapping[str, Any]
) -> None:
    taken = {tuple(file) for job in jobs for file in job.get(INPUTS, ())}
    if both := [file[0] for file in map(tuple, info.get(INPUTS, ())) if file in taken]:
        raise TargetExists(
            f"another job has appended {listed(both)} to {target.output!r} in the meantime: run "
            "the same command again, which appends the other files"
        )


def _next_mark(target: Target, manifest: Manifest) -> str:
    """Return a mark for the names of the next generation that no generation and no try has.

    A number is not given twice, even if the files of a try that failed were removed. It has leading
    zeros, because files are read in the order of their names.
    """
    names = (*list_names(target.directory), *manifest.names(prefix_of(target.manifest)))
    numbers = [int(found[1]) for name in names if (found := _MARKED_JOB.search(name))]
    return f"-g{max(numbers, default=1) + 1:05d}"


def check_compatible(dataset: Manifest, rows: Manifest) -> None:
    """Check that rows fit a dataset: their features, order and splits.

    Raises:
        DataError: They do not.
    """
    facts = [(name, getattr(dataset, name), getattr(rows, name)) for name in _SHARED_SETTINGS]
    for feature in dataset.schema.features:
        other = next((of for of in rows.schema.features if of.name == feature.name), None)
        facts.append(
            (
                f"column {feature.name!r}",
                _type_and_storage(feature),
                other and _type_and_storage(other),
            )
        )
        if other and other.nullable and not feature.nullable:
            facts.append((f"column {feature.name!r}", "never null", "sometimes null"))
        if other and other.labels not in ((), feature.labels):
            raise DataError(
                f"nothing was appended: the classes of {feature.name!r} are "
                f"{listed(feature.labels)} in the dataset, and {listed(other.labels)} in the new "
                "rows: pass --labels with the labels.txt of the dataset"
            )
    more = set(rows.schema.names) - set(dataset.schema.names)
    facts += [(f"column {name!r}", "absent", "present") for name in sorted(more)]
    if differing := [fact for fact in facts if fact[1] != fact[2]]:
        what, old, new = differing[0]
        others = f" ({counted(len(differing) - 1, 'more difference')})" if differing[1:] else ""
        raise DataError(
            f"nothing was appended: {what} is {_text(old)} in the dataset, and {_text(new)} in the "
            f"new rows{others}: make them equal, or write a dataset of all rows"
        )


def _type_and_storage(feature: Feature) -> str:
    store = "" if feature.store == "auto" else f" stored as {feature.store}"
    return f"{feature.type}{store}"


def _text(value: Any) -> str:
    return "unset" if value is None or value == "" else str(value)
