"""What a Dataflow job is told besides what its user says."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    WorkerOptions,
)
from apache_beam.pipeline import PipelineVisitor

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners import runner_options
from beam_tfrecord.runners.dataflow import (
    STAGE_BYTES,
    check_options,
    fit_workers,
    machine_for,
)
from beam_tfrecord.runners.launch import Launch, launching
from beam_tfrecord.runners.pipelines import LaunchedPipeline

PLACE = ("--project=my-project", "--region=r", "--temp_location=gs://b/tmp")
MIN_RAM = "beam:resources:min_ram_bytes:v1"


class Labels(PipelineVisitor):
    def __init__(self):
        self.hints = {}

    def enter_composite_transform(self, transform_node):
        self.visit_transform(transform_node)

    def visit_transform(self, transform_node):
        self.hints[transform_node.full_label] = transform_node.resource_hints


def built(directory, exchange, *, ram=None):
    """Return the pipeline of a shuffled write, with a step of the user's own."""
    (directory / "in.csv").write_text("a\n1\n")
    pipeline = LaunchedPipeline(PipelineOptions(["--runner=FnApiRunner"]))
    with launching(Launch(runs=False)), pipeline as root:
        rows = root | bt.ReadFromCsv(str(directory / "in.csv"))
        mine = beam.Map(lambda batch: batch)
        if ram is not None:
            mine = mine.with_resource_hints(min_ram=ram)
        kept = rows | "Mine" >> mine.with_output_types(bt.Batch)
        _ = kept | bt.WriteToTFRecord(str(directory / "out/"), exchange=exchange)
    return pipeline


def hints_of(pipeline):
    labels = Labels()
    pipeline.visit(labels)
    return labels.hints


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
    ("process_gb", "worker_gb", "name"),
    [
        (3.4, 0, "n2-standard-4"),
        (3.5, 0, "n2-highmem-4"),
        (0, 17, "n2-standard-4"),
        (0, 18, "n2-highmem-4"),
        (1, 60, "n2-highmem-8"),
    ],
)
def test_the_machine_is_the_least_that_is_enough(process_gb, worker_gb, name):
    assert machine_for(int(process_gb * 1e9), int(worker_gb * 1e9)).name == name


@pytest.mark.slow
def test_every_step_whose_need_is_known_is_there(tmp_path):
    labels = [*hints_of(built(tmp_path, "files")), *hints_of(built(tmp_path, "runner"))]
    steps = {label.rpartition("/")[2].rstrip("0123456789") for label in labels}
    # A second round is only made for datasets that need it.
    assert set(STAGE_BYTES) - {"MergeRuns"} <= steps


def test_the_largest_need_chooses_the_machine(tmp_path):
    pipeline = built(tmp_path, "runner", ram="40GB")
    options = PipelineOptions([*PLACE])
    fit_workers(pipeline, options)
    assert options.view_as(WorkerOptions).machine_type == "n2-highmem-8"
    # Hints that have no effect would only break the fusion of steps.
    assert {label for label, of in hints_of(pipeline).items() if MIN_RAM in of} == {"Mine"}


def test_the_users_machine_is_kept(tmp_path):
    options = PipelineOptions([*PLACE, "--worker_machine_type=e2-standard-2"])
    fit_workers(built(tmp_path, "runner"), options)
    assert options.view_as(WorkerOptions).machine_type == "e2-standard-2"


def test_prime_is_given_hints_instead(tmp_path):
    pipeline = built(tmp_path, "runner", ram="40GB")
    options = PipelineOptions([*PLACE, "--dataflow_service_options=enable_prime"])
    fit_workers(pipeline, options)
    assert options.view_as(WorkerOptions).machine_type is None
    hints = hints_of(pipeline)
    assert hints["Mine"][MIN_RAM] == b"40000000000"
    (merge,) = (of for label, of in hints.items() if label.endswith("/MergeShards"))
    assert merge[MIN_RAM] == b"5200000000"
