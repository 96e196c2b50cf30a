"""What a Dataflow job is told besides what its user says."""

import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    WorkerOptions,
)

from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.dataflow import check_options, choose_machine
from beam_tfrecord.runners.start import runner_options

PLACE = ("--project=my-project", "--region=r", "--temp_location=gs://b/tmp")


def test_presets_come_before_the_users_own():
    words = runner_options("dataflow", [*PLACE, "--number_of_worker_harness_threads=5"])
    options = PipelineOptions(words)
    assert words[0] == "--runner=DataflowRunner"
    assert options.view_as(DebugOptions).number_of_worker_harness_threads == 5
    assert options.view_as(GoogleCloudOptions).staging_location == "gs://b/tmp/staging"
    assert "use_runner_v2" in options.view_as(DebugOptions).experiments


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (PLACE[:2], "the Dataflow runner needs --temp-location"),
        (
            (*PLACE, "--temp_location=/tmp"),
            "--temp-location '/tmp' is not on Google Cloud Storage: give gs://BUCKET/DIRECTORY",
        ),
        (
            (*PLACE, "--project=My Project!"),
            "--project 'My Project!' is not a project: write it like my-project",
        ),
        (
            (*PLACE, "--template_location=t.json"),
            "--template-location 't.json' is not on Google Cloud Storage: give "
            "gs://BUCKET/DIRECTORY",
        ),
    ],
)
def test_a_place_that_is_missing_is_told(words, line):
    with pytest.raises(UsageError) as caught:
        check_options(words)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("words", "machine"),
    [
        ((), "n2-standard-4"),
        (("--worker_machine_type=e2-standard-2",), "e2-standard-2"),
        # It chooses machines itself.
        (("--dataflow_service_options=enable_prime",), None),
    ],
)
def test_the_machine_is_chosen_unless_somebody_else_does(words, machine):
    options = PipelineOptions([*PLACE, *words])
    choose_machine(options)
    assert options.view_as(WorkerOptions).machine_type == machine
