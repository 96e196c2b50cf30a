"""What a Dataflow job would be told, without telling it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    SetupOptions,
    WorkerOptions,
)

from beam_tfrecord.jobs.planning import plan_of
from beam_tfrecord.runners.dataflow import MACHINES, fit_workers, stage_package
from beam_tfrecord.runners.launch import Launch
from beam_tfrecord.runners.pipelines import graph_of

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings


def describe(settings: Settings, launch: Launch) -> dict[str, Any]:
    """Return the plan of a job with what Dataflow is told and its graph.

    Args:
        settings: Of the job.
        launch: It holds the pipeline.

    Raises:
        UsageError: No machine is large enough.
    """
    pipeline = launch.built[-1]
    options = pipeline.options
    fit_workers(pipeline, options)
    stage_package(options, launch.modules)
    cloud, workers = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
    debug, setup = options.view_as(DebugOptions), options.view_as(SetupOptions)
    from apache_beam.runners.dataflow.internal.apiclient import get_container_image_from_options

    planned = plan_of(settings)
    return {
        **planned,
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
        "workers": _workers(planned["groups"], workers, debug),
        "graph": graph_of(pipeline),
    }


def _workers(groups: int, workers: Any, debug: Any) -> dict[str, Any]:
    cores = {machine.name: machine.cores for machine in MACHINES}.get(workers.machine_type)
    if cores is None and (tail := str(workers.machine_type).rpartition("-")[2]).isdecimal():
        cores = int(tail)
    return {
        "machine": workers.machine_type or "by the hints of the steps",
        "cores": cores,
        "threads": debug.number_of_worker_harness_threads,
        # A group of the input is read by one core; a worker more would have nothing to read.
        "most_useful": None if cores is None else max(1, math.ceil(groups / cores)),
        "most_allowed": workers.max_num_workers,
    }
