"""The simulation of large jobs: near what was measured, within limits, right where it is easy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "scripts" / "bench"
MIB = 2**20


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    import scale

    return scale


def test_measured_runs_are_reproduced_within_a_quarter(scale: Any) -> None:
    told = scale.reproduced()
    assert {row["case"] for row in told} == set(scale.CASES)
    assert len(told) >= 7
    for row in told:
        assert 0.75 < row["ratio"] < 1.25, row


@pytest.mark.parametrize("size", [10**9, 10**12, 10**13])
def test_a_large_job_keeps_all_limits(scale: Any, size: int) -> None:
    machine = scale.machine_of("n2-standard-8")
    told = scale.simulate(scale.large_work(size), machine, 100, failures=scale.OFTEN)
    assert told["kept"] == {"requests": True, "memory": True, "lists": True}
    assert told["rounds"] == (1 if size == 10**9 else 2)


def test_a_hundred_terabytes_keep_all_limits(scale: Any) -> None:
    from beam_tfrecord.jobs.planning_cluster import steps_of
    from beam_tfrecord.jobs.planning_rates import Rates

    work = scale.large_work(10**14)
    spill, runs, shards = steps_of(work, Rates())
    assert spill.tasks == 186_265
    for step in (runs, shards):
        assert step.request_bytes >= 10**6
        assert step.memory_bytes < 2 * 10**9
    assert max(work.units, runs.files, spill.files) < 10**6


def test_what_one_round_cannot_do_is_seen(scale: Any) -> None:
    from beam_tfrecord.exchange.plan import MOST_WINDOW_BYTES, most_fan_in

    # With the largest runs and windows, reads of one round get too small beyond 275 GB.
    assert most_fan_in(MIB) == 512
    assert MOST_WINDOW_BYTES / (10**12 / (512 * MIB)) < 0.3 * MIB


def test_workers_share_tasks_and_the_last_one_ends_the_step(scale: Any) -> None:
    from beam_tfrecord.jobs.planning_cluster import Step
    from beam_tfrecord.jobs.planning_rates import Machine, Rates

    machine = Machine("m", 2, 2**34, 1e12, 0.0)
    step = Step("write", 5, 500, 10.0, 0)
    ran = scale.run_step(step, machine, 1, Rates(barrier_s=1.0), None)
    # Five tasks of 10 s on two cores take three turns.
    assert (ran.seconds, ran.attempts) == (31.0, 5)


def test_a_task_that_fails_comes_again(scale: Any) -> None:
    from beam_tfrecord.jobs.planning_cluster import Step
    from beam_tfrecord.jobs.planning_rates import Machine, Rates

    machine = Machine("m", 4, 2**34, 1e12, 0.0)
    step = Step("write", 200, 2000, 1.0, 0)
    calm = scale.run_step(step, machine, 1, Rates(), None)
    failing = scale.run_step(step, machine, 1, Rates(), scale.Failures(every_s=40, away_s=5))
    assert calm.attempts == 200
    # A task of 10 s outlives a mean time of 40 s in exp(-1/4) of all attempts: 200 / 0.78.
    assert 225 < failing.attempts < 290
    # Each of some forty failures costs about 5 s of work and 5 s away, on one of four cores.
    assert failing.seconds > calm.seconds + 50
