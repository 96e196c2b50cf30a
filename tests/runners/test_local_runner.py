"""Pipelines on one machine lose no elements, and those that would are refused.

`scripts/prove/run elements` runs the first test twenty times on every runner of one machine.
"""

import gc
import tempfile

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner, SwitchingDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.transforms.environments import EmbeddedPythonGrpcEnvironment

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.launch_settings import Launch, launching
from tests.runners import slow_bundles

THREADS = ["--direct_running_mode=multi_threading", "--direct_num_workers=2"]
PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
EMBEDDED = ["--job_endpoint=embed", "--environment_type=LOOPBACK"]
TIMED = "--experiments=data_buffer_time_limit_ms=1000"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "seconds", "sends_slowly"),
    [
        ("threads", 3.2, True),
        ("processes", 3.2, True),
        # One worker emits both parts, one after the other.
        ("in memory", 1.6, False),
    ],
)
def test_bundles_that_emit_for_seconds_lose_no_element(tmp_path, way, seconds, sends_slowly):
    emitted = slow_bundles.run(way, tmp_path, seconds=seconds, sends_slowly=sends_slowly)
    assert emitted > 100


def read(pipeline):
    _ = pipeline | bt.ReadFromCsv("missing.csv")


def write(pipeline):
    _ = pipeline | beam.Create([b""]).with_output_types(bytes) | bt.WriteToTFRecord("out/")


def extract(pipeline):
    _ = pipeline | beam.Create([{"a": 1}]) | bt.ExtractToParquet("out/")


def gather(pipeline):
    _ = pipeline | beam.Create([{"a": 1}]) | bt.BatchRows(pa.schema({"a": pa.int64()}))


@pytest.mark.parametrize(
    ("runner", "words", "reason"),
    [
        ("FnApiRunner", THREADS, "--direct_running_mode=multi_threading"),
        (FnApiRunner(), THREADS, "--direct_running_mode=multi_threading"),
        (FnApiRunner(), PROCESSES, "--direct_running_mode=multi_processing"),
        ("DirectRunner", THREADS, "--direct_running_mode=multi_threading"),
        (None, ["--runner=FnApiRunner", *THREADS], "--direct_running_mode=multi_threading"),
        (None, ["--runner=DirectRunner", *PROCESSES], "--direct_running_mode=multi_processing"),
        (None, THREADS, "--direct_running_mode=multi_threading"),
        (SwitchingDirectRunner(), THREADS, "--direct_running_mode=multi_threading"),
        (FnApiRunner(EmbeddedPythonGrpcEnvironment()), [], "EmbeddedPythonGrpcEnvironment"),
        ("PortableRunner", EMBEDDED, "--job_endpoint=embed"),
        (PortableRunner(), EMBEDDED, "--job_endpoint=embed"),
    ],
)
@pytest.mark.parametrize("transform", [read, write, extract, gather])
def test_own_pipeline_that_may_lose_elements_is_refused(runner, words, reason, transform):
    pipeline = beam.Pipeline(runner, PipelineOptions(words))
    with pytest.raises(bt.BeamTFRecordError) as refused:
        transform(pipeline)
    assert str(refused.value) == (
        f"Beam's own local runner loses elements with {_spelled(reason)}: make the pipeline by "
        "beam_tfrecord.pipeline(), with the same options, instead of beam.Pipeline()"
    )


def _spelled(reason):
    return reason if reason.startswith("--") else f"workers in the environment {reason}"


@pytest.mark.slow_after(4)
@pytest.mark.parametrize(
    ("runner", "words"),
    [
        ("FnApiRunner", []),
        (None, []),
        (FnApiRunner(), ["--direct_running_mode=in_memory"]),
        (BundleBasedDirectRunner(), THREADS),
        ("PortableRunner", ["--job_endpoint=localhost:1"]),
        ("FlinkRunner", THREADS),
        ("FnApiRunner", ["--experiments=data_buffer_time_limit_ms=0"]),
        ("FnApiRunner", ["--experiments=data_buffer_time_limit_ms=-1"]),
    ],
)
def test_own_pipeline_that_loses_nothing_is_taken(runner, words):
    for transform in (write, gather):
        transform(beam.Pipeline(runner, PipelineOptions(words)))


def test_experiment_that_loses_elements_is_refused_on_every_runner():
    line = (
        "Beam's workers lose elements under the experiment data_buffer_time_limit_ms: leave it out"
    )
    for runner in ("FnApiRunner", "FlinkRunner"):
        with pytest.raises(bt.BeamTFRecordError, match=line):
            write(beam.Pipeline(runner, PipelineOptions([TIMED])))
    for words in ([TIMED], [*PROCESSES, TIMED], ["--experiments=a", TIMED]):
        pipeline = bt.pipeline(options=words)
        _ = pipeline | beam.Create([1])
        with pytest.raises(bt.BeamTFRecordError, match=line):
            pipeline.run()


@pytest.mark.parametrize(
    ("words", "keywords"),
    [
        ((PipelineOptions(),), {}),
        ((), {"options": PipelineOptions()}),
        ((), {"options": "--streaming"}),
        ((["--streaming"],), {}),
        ((None,), {}),
    ],
    ids=["runner", "keyword", "text", "list", "none"],
)
def test_options_of_another_form_are_refused_in_one_line(words, keywords):
    with pytest.raises(
        bt.BeamTFRecordError, match=r"options as words: pipeline\('direct', options="
    ):
        bt.pipeline(*words, **keywords)


def test_options_given_late_are_seen():
    pipeline = bt.pipeline("DirectRunner")
    _ = pipeline | beam.Create([1])
    pipeline.options.view_as(DirectOptions).direct_running_mode = "multi_threading"
    with pytest.raises(bt.BeamTFRecordError, match="loses elements with --direct_running_mode"):
        pipeline.run()


@pytest.mark.slow
def test_keyword_spelling_of_the_running_mode_is_taken(tmp_path):
    for mode in ("in_memory", "multi_threading"):
        with bt.pipeline(direct_running_mode=mode, direct_num_workers=2) as pipeline:
            _ = (
                pipeline
                | beam.Create([{"a": row} for row in range(100)])
                | bt.BatchRows(pa.schema({"a": pa.int64()}))
                | bt.WriteToTFRecord(f"{tmp_path}/{mode}/")
            )
        assert len(bt.load(tmp_path / mode)) == 100


def _is_never_run(out):
    with launching(Launch(runs=False)), bt.pipeline() as pipeline:
        _ = pipeline | beam.Create([1])


def _is_refused(out):
    with pytest.raises(UsageError, match="columns is empty"), bt.pipeline() as pipeline:
        _ = pipeline | bt.ReadFromCsv("a.csv", columns=[])


def _runs(out):
    with bt.pipeline() as pipeline:
        _ = pipeline | beam.Create([1])


@pytest.mark.parametrize("use", [_is_never_run, _is_refused, _runs])
def test_pipelines_leave_no_folder_of_beam(use, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    use(tmp_path)
    gc.collect()
    assert list(tmp_path.iterdir()) == []
