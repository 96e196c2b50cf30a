"""Runs jobs on Google Cloud Dataflow: default options, machines, submission, and waiting.

Beam's own client talks to the service. This module chooses the machine type and the packages of a
job, asks for the state of a job more often than Beam at first, and explains every failure in one
line.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.runners import new_job_name
from beam_tfrecord.runners.failures import failure, refusal
from beam_tfrecord.runners.launch_settings import RemoteJob, current_launch
from beam_tfrecord.runners.pipelines import Finished, RemoteResult, silenced
from beam_tfrecord.runners.wheels import stage_wheels
from beam_tfrecord.storage import gcs

# The service reports the reason of a failure up to half a minute after the failure itself.
REASON_SECONDS = 50.0
_REASON_POLL_SECONDS = 1.0

_CONSOLE = "https://console.cloud.google.com/dataflow/jobs/{region}/{id}?project={project}"
# A project has an id, which may begin with a domain, or a number.
_FORMS = {
    "project": (r"[a-z][a-z0-9.:-]*|\d+", "my-project"),
    "region": ("[a-z][a-z0-9-]*", "us-central1"),
}
_MISSING = "the Dataflow runner needs an extra: pip install 'beam-tfrecord[gcp]'"

# Number of bundles that each process works on at once; there is one process per core, and each
# bundle has its own buffers. With two, one bundle reads and writes while the other computes.
THREADS = 2

# Of its 16 GiB each of four processes has 4. A step of this package needs up to 1.3 GB of them: 0.3
# with Beam and Arrow loaded, and 0.5 for a section of a shard, its sorted copy and the bytes that
# are being written, for each bundle.
MACHINE = "n2-standard-4"


def presets(options: Sequence[str]) -> list[str]:
    """Return the default options for a job, except those that depend on its steps."""
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    words = [
        "--experiments=use_runner_v2",
        # Else Beam would stage a list of all packages here, with the URLs that some came from.
        "--experiments=disable_logging_submission_environment",
        f"--number_of_worker_harness_threads={THREADS}",
        f"--job_name={new_job_name()}",
    ]
    if given.staging_location is None and given.temp_location is not None:
        words.append(f"--staging_location={given.temp_location.rstrip('/')}/staging")
    return words


def check(options: Sequence[str], *, waits: bool = True) -> None:
    """Check that Beam's client is installed and that the options of a job are complete."""
    try:
        import apache_beam.runners.dataflow.internal.apiclient  # noqa: F401
    except ImportError as error:
        raise UsageError(_MISSING) from error
    check_options(options)
    if waits and PipelineOptions(list(options)).view_as(GoogleCloudOptions).template_location:
        raise UsageError(
            "a template is written and not run: pass --template-location before '--', or --detach"
        )


def check_credentials() -> None:
    """Check that this process has credentials of Google Cloud.

    Without them, Beam tries to get some for minutes while it builds a pipeline.
    """
    gcs.client()


def check_options(options: Sequence[str]) -> None:
    """Check that the options name the project, the region and the temporary directory of a job."""
    given = PipelineOptions(list(options)).view_as(GoogleCloudOptions)
    needed = ("project", "region", "temp_location")
    missing = [_flag(name) for name in needed if not getattr(given, name)]
    if missing:
        *first, last = missing
        needed_flags = f"{', '.join(first)} and {last}" if first else last
        raise UsageError(f"the Dataflow runner needs {needed_flags}")
    for name, (pattern, example) in _FORMS.items():
        if not re.fullmatch(pattern, value := str(getattr(given, name))):
            raise UsageError(f"{_flag(name)} {value!r} is not a {name}: write it like {example}")
    for name in ("temp_location", "staging_location", "template_location"):
        value = getattr(given, name)
        if value and not re.fullmatch(r"gs://[^/]+(/.+)?", value):
            raise UsageError(
                f"{_flag(name)} {value!r} is not on Google Cloud Storage: "
                "give gs://BUCKET/DIRECTORY"
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def start(pipeline: beam.Pipeline, run: Callable[[], PipelineResult]) -> PipelineResult:
    """Submit a pipeline to the service, or write it as a template."""
    launch, options = current_launch(), pipeline.options
    choose_machine(options)
    stage_wheels(options, launch.modules)
    with silenced("apache_beam"):
        try:
            result: Any = run()
        except BeamTFRecordError:
            raise
        except Exception as error:
            raise refusal(error) from error
    if not result.has_job:
        return Finished()
    cloud, id_ = options.view_as(GoogleCloudOptions), result.job_id()

    def cancel() -> None:
        with silenced("apache_beam"):
            result._runner.dataflow_client.modify_job_state(id_, "JOB_STATE_CANCELLED")

    page = _CONSOLE.format(region=cloud.region, id=id_, project=cloud.project)
    launch.job = RemoteJob("dataflow", id_, page, cancel)
    launch.facts["job"] = {"id": id_, "name": cloud.job_name}
    return DataflowResult(result, launch.job, launch)


class DataflowResult(RemoteResult):
    """The result of a job on Dataflow, which waits for the service's reason if the job fails."""

    def _failure(self, state: str) -> BeamTFRecordError:
        """Return the error for a job; wait for the reason, which may come after the job's end."""
        texts: list[str] = []
        end_s = time.monotonic() + (REASON_SECONDS if state == PipelineState.FAILED else 0)
        while time.monotonic() < end_s and not (texts := self._error_messages()):
            time.sleep(_REASON_POLL_SECONDS)
        return failure(self._remote, state, texts)

    def _error_messages(self) -> list[str]:
        from google.cloud import dataflow

        least = dataflow.JobMessageImportance.JOB_MESSAGE_ERROR
        client = self._result._runner.dataflow_client
        texts: list[str] = []
        token = None
        while True:
            messages, token = client.list_messages(
                self._remote.id, page_token=token, minimum_importance="JOB_MESSAGE_ERROR"
            )
            texts += [one.message_text for one in messages if one.message_importance == least]
            if not token:
                return texts


def choose_machine(options: PipelineOptions) -> None:
    """Set the type of the workers, unless the user or Dataflow Prime chooses it."""
    is_prime = "enable_prime" in (
        *(options.view_as(GoogleCloudOptions).dataflow_service_options or ()),
        *(options.view_as(DebugOptions).experiments or ()),
    )
    workers = options.view_as(WorkerOptions)
    if not is_prime and not workers.machine_type:
        workers.machine_type = MACHINE


def describe(pipeline: beam.Pipeline, modules: Sequence[str], tasks: int) -> dict[str, Any]:
    """Return a description of a job as it would be submitted, without a request to the service."""
    from apache_beam.runners.dataflow.internal.apiclient import get_container_image_from_options

    options = pipeline.options
    choose_machine(options)
    stage_wheels(options, modules)
    cloud, workers = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
    debug, setup = options.view_as(DebugOptions), options.view_as(SetupOptions)
    # Names of machine types end with the number of cores.
    cores = re.search(r"-(\d+)$", workers.machine_type or "")
    return {
        "job": {
            "project": cloud.project,
            "region": cloud.region,
            "name": cloud.job_name,
            "temp_location": cloud.temp_location,
            "staging_location": cloud.staging_location,
            "image": get_container_image_from_options(options),
            "packages": [os.path.basename(path) for path in setup.extra_packages or ()],
            "experiments": list(debug.experiments or ()),
        },
        "workers": {
            "machine": workers.machine_type or "chosen by Dataflow Prime",
            "cores": int(cores[1]) if cores else None,
            "threads": debug.number_of_worker_harness_threads,
            # Each core reads a task, so more workers would find nothing to read.
            "most_useful": max(1, math.ceil(tasks / int(cores[1]))) if cores else None,
            "most_allowed": workers.max_num_workers,
        },
    }
