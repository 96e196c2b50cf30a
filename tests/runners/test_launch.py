"""Jobs elsewhere are cancelled with whoever waits for them, or left alone."""

import contextlib
import gc
import tempfile
import threading

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beam_tfrecord as bt
from beam_tfrecord.runners.launch import (
    Launch,
    RemoteJob,
    cancel_all,
    cancelled_with_us,
    current_launch,
    launching,
)
from beam_tfrecord.runners.pipelines import LaunchedPipeline


def job_of(id_, cancel, page=""):
    return RemoteJob("dataflow", id_, page, cancel)


def test_without_a_launch_jobs_are_run_and_waited_for():
    assert (current_launch().waits, current_launch().runs) == (True, True)
    with launching(Launch(waits=False)) as launch:
        assert current_launch() is launch
    assert current_launch().waits


def test_a_pipeline_is_built_and_not_run():
    seen = []
    with launching(Launch(runs=False)) as launch:
        with LaunchedPipeline(PipelineOptions(["--runner=FnApiRunner"])) as root:
            _ = root | beam.Create([1]) | beam.Map(seen.append)
        assert launch.built == [root]
    assert seen == []


@pytest.mark.parametrize("fails", [False, True], ids=["planned", "failed"])
def test_a_pipeline_that_is_not_run_leaves_no_directory(tmp_path, monkeypatch, fails):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def build():
        with launching(Launch(runs=False)), bt.pipeline() as root:
            _ = root | beam.Create([1])
            assert len(list(tmp_path.iterdir())) == 1
            if fails:
                raise ValueError("mine")

    with contextlib.suppress(ValueError):
        build()
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_cancels_what_is_waited_for(interrupt):
    cancelled = []
    job = job_of("1", lambda: cancelled.append("1"))
    with pytest.raises(interrupt), cancelled_with_us(job):
        raise interrupt
    assert cancelled == ["1"]
    assert cancel_all() == []


def test_any_other_end_cancels_nothing():
    job = job_of("1", lambda: pytest.fail("was cancelled"))
    with cancelled_with_us(job):
        pass
    with pytest.raises(ValueError, match="mine"), cancelled_with_us(job):
        raise ValueError("mine")
    assert cancel_all() == []


def test_what_became_of_each_job_is_told():
    never = threading.Event()

    def fail():
        raise OSError("no network\nsecond line")

    with (
        cancelled_with_us(job_of("1", lambda: None)),
        cancelled_with_us(job_of("2", fail, "https://page/2")),
        cancelled_with_us(job_of("3", never.wait)),
    ):
        told = cancel_all(timeout_s=0.2)
    never.set()
    assert told == [
        "dataflow job 1 is cancelled",
        "dataflow job 2 could not be cancelled (no network) and goes on: see https://page/2",
        "dataflow job 3 could not be cancelled (it did not answer) and goes on",
    ]
