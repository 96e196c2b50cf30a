"""The last step of a pipeline, which checks the written files and publishes them exactly once.

A runner may retry this step, run it on two workers, or lose a worker in the middle. Each of these
tries computes the same *publication id* from the job and its files. If a try finds that id at the
target, it only completes the cleanup of the earlier try. Otherwise it publishes (see
`publish.transaction`).
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam

from beam_tfrecord._version import __version__
from beam_tfrecord.errors import DataError, StorageError, TargetExists
from beam_tfrecord.exchange.write_steps import Written
from beam_tfrecord.format.job_file import PUBLICATION
from beam_tfrecord.format.tally import Tally, merge_tallies
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, Target, check_free
from beam_tfrecord.job_state.progress_files import PUBLISHING, ProgressLog
from beam_tfrecord.job_state.worker_errors import Guarded, recorded_fault
from beam_tfrecord.publish.append import append_to_dataset
from beam_tfrecord.publish.assemble import publish_dataset, publish_stage
from beam_tfrecord.publish.transaction import clear_published, finish_publishing, published_names
from beam_tfrecord.storage import Lease, exists, lease, make_directory, remove_tree

# Publishing takes seconds: a job that holds the output for longer is not in its last step.
LEASE_WAIT_S = 60.0
_LOOK_EVERY_S = 0.2


def publish_once(root: beam.Pipeline, job: Job, written: Written) -> beam.PCollection[str]:
    """Add the last step to a pipeline: publish all files that the pipeline has written."""
    tally, shards = beam.pvalue.AsSingleton(written.tally), beam.pvalue.AsList(written.files)
    return (
        root
        | "Once" >> beam.Impulse()
        | "Publish" >> beam.FlatMap(_publish, job, tally, shards).with_output_types(str)
    )


def _publish(_: bytes, job: Job, tally: Tally, shards: Sequence[FinishedShard]) -> Iterator[str]:
    yield from Guarded(_published, job.directory)((job, tally, shards))
    # A launcher that waits for the job looks for the fault itself.
    if job.lease is None and (fault := recorded_fault(job.directory)) is not None:
        raise fault


def _published(task: tuple[Job, Tally, Sequence[FinishedShard]]) -> Iterator[str]:
    job, tally, shards = task
    copies = merge_tallies(shard.copies for shard in shards)
    if recorded_fault(job.directory) is not None:
        # Steps look for faults about once a second, so this one may have gone on after a fault
        # elsewhere. All earlier steps have recorded their faults by now.
        return
    tally = tally.without(copies)
    _check_counts(job, tally, shards)
    publish_rows = append_to_dataset if job.appends_to else _publish_or_finish
    info = _job_info(job, tally, shards)
    progress = ProgressLog(job.directory, PUBLISHING)
    progress.add(total=len(shards))
    progress.add()
    progress.flush()
    make_directory(job.target.directory)
    if job.lease is not None:
        # The temporary directory stays until the launcher removes it at the end of the job: before
        # that, a runner that lost the results of earlier steps may repeat them.
        names = publish_rows(job, tally, shards, lease=job.lease, info=info)
    else:
        with contextlib.ExitStack() as stack:
            held = _hold(job.target, stack)
            if not job.appends_to:
                clear_published(job.target, job.directory, held.check)
            names = publish_rows(job, tally, shards, lease=held, info=info)
            if not (job.appends_to and job.is_resumable):  # else the launcher removes it
                remove_tree(job.directory)
    for name in names:
        yield os.path.join(job.target.directory, name)


def _check_counts(job: Job, tally: Tally, shards: Sequence[FinishedShard]) -> None:
    written = sum(shard.examples for shard in shards)
    if written == tally.records:
        return
    files, rows, source = ("shards", "records", "encoded")
    if job.output == "stage":
        files, rows, source = ("files", "rows", "read")
    raise DataError(
        f"{files} hold {written:,} {rows}, but {tally.records:,} were {source}: run the job again"
    )


def _publish_or_finish(
    job: Job, tally: Tally, shards: Sequence[FinishedShard], *, lease: Lease, info: dict[str, Any]
) -> Sequence[str]:
    names = published_names(job.target, info[PUBLICATION])
    if names is not None and not _is_another_run(job, shards):
        finish_publishing(job.target, job.directory, lease.check)
        return names
    if names is not None:
        info = {**info, PUBLICATION: f"{info[PUBLICATION]} {uuid.uuid4().hex}"}
    check_free(job.target, overwrite=job.overwrite)
    if not tally.records and exists(job.target.manifest):
        # Most often a fault of what made the input, for which nobody wants to lose a dataset.
        raise TargetExists(
            f"no rows are left to replace the dataset in {job.target.output!r}: check the input, "
            "or remove the dataset first"
        )
    publish = publish_stage if job.output == "stage" else publish_dataset
    return publish(job, tally, shards, lease=lease, info=info)


def _hold(target: Target, stack: contextlib.ExitStack) -> Lease:
    """Take the lease of a target until `stack` closes; first wait for jobs that publish there."""
    until_s = time.monotonic() + LEASE_WAIT_S
    while True:
        try:
            return stack.enter_context(lease(target.directory))
        except TargetExists as error:
            if time.monotonic() >= until_s:
                raise StorageError(str(error)) from error
        time.sleep(_LOOK_EVERY_S)


def _is_another_run(job: Job, shards: Sequence[FinishedShard]) -> bool:
    """Return whether the files at the target are from an earlier run of the same template.

    If so, they are overwritten. The sign is that all files of this run still have their temporary
    names.
    """
    may_be = job.lease is None and job.overwrite and bool(shards)
    return may_be and all(exists(shard.path) for shard in shards)


def _publication_id(job: Job, tally: Tally, shards: Sequence[FinishedShard]) -> str:
    """Return an id of the publication of these files, which is the same in every try.

    The id depends on the files too, because all runs of a template have the same job.
    """
    files = sorted((shard.split, shard.order, shard.bytes, shard.xxh64) for shard in shards)
    run = [job.directory, dict(job.info), tally.rows, tally.rejects, files]
    return hashlib.sha256(json.dumps(run).encode()).hexdigest()[:32]


def _job_info(job: Job, tally: Tally, shards: Sequence[FinishedShard]) -> dict[str, Any]:
    return {
        **job.info,
        "finished": datetime.datetime.now(datetime.UTC).isoformat(),
        "rows_read": tally.rows,
        "beam_tfrecord": __version__,
        "beam": beam.version.__version__,
        "python": platform.python_version(),
        PUBLICATION: _publication_id(job, tally, shards),
    }
