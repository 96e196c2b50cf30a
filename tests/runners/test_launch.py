"""Jobs elsewhere are cancelled with whoever waits for them, or left alone."""

import threading

import pytest

from beam_tfrecord.runners.launch_settings import RemoteJob, cancel_all, cancelled_with_us


def job_of(id_, cancel, page=""):
    return RemoteJob("dataflow", id_, page, cancel)


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
