"""`plan --workers`: sizes as the exchange chooses them, and figures that follow from rates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs.planning_cluster import Work, on_cluster, steps_of
from beam_tfrecord.jobs.planning_rates import Machine, Rates, machine_of
from tests.cli_stand_ins import run
from tests.datasets import sample_table, write_parquet

MIB = 2**20
PLAIN = Machine("plain", 2, 8 * 2**30, 1e9, 3.6)


def work(record_bytes: int, **fields: object) -> Work:
    given = {"input_bytes": record_bytes, "units": 10, "is_shuffled": True, "scans": 0}
    return Work(record_bytes=record_bytes, is_remote=True, **{**given, **fields})


def test_one_pass_in_source_order_is_one_step() -> None:
    (step,) = steps_of(work(10**9, is_shuffled=False), Rates())
    assert (step.name, step.tasks, step.reads) == ("read, encode and write", 10, 0)


def test_little_goes_in_one_round_of_small_runs() -> None:
    spill, merge = steps_of(work(2**30), Rates())
    assert spill.tasks == 16
    # 29 windows of 36 MiB read from sixteen runs each.
    assert merge.reads == 29 * 16
    assert merge.request_bytes == 2**30 // (29 * 16)


def test_much_goes_in_two_rounds() -> None:
    spill, runs, shards = steps_of(work(2**42), Rates())
    assert spill.tasks == 8192
    assert runs.tasks == 1024
    assert (runs.reads, runs.request_bytes) == (8192 * 512, MIB)
    assert (shards.reads, shards.request_bytes) == (8192 * 16, 32 * MIB)


def test_time_and_money_follow_from_the_rates() -> None:
    rates = Rates(encode_bytes_s=1e6, start_s=0, barrier_s=0, read_usd=0, write_usd=0)
    told = on_cluster(work(8 * 10**9, is_shuffled=False, units=8), PLAIN, 2, rates, shards=8)
    # 8 tasks of 1000 s on 4 cores: two turns.
    assert told["hours"] == pytest.approx(2000 / 3600, abs=1e-3)
    assert told["usd"] == pytest.approx(2000 / 3600 * 2 * 3.6, abs=1e-2)
    dear = on_cluster(
        work(8 * 10**9, is_shuffled=False, units=8),
        PLAIN,
        2,
        Rates(encode_bytes_s=1e6, read_usd=1.0, write_usd=0),
        shards=8,
    )
    # 8 GB are read in requests of 16 MiB.
    assert dear["usd"] - told["usd"] == pytest.approx(477, abs=1)


def test_a_slow_network_is_what_is_waited_for() -> None:
    slow = Machine("slow", 64, 2**40, 1e6, 0.0)
    (step,) = steps_of(work(10**9, is_shuffled=False, units=64), Rates())
    assert step.seconds(slow, 1, Rates(barrier_s=0)) == pytest.approx(2000)


def test_what_goes_beyond_the_limits_is_told() -> None:
    told = on_cluster(work(2**30), PLAIN, 1, Rates(), shards=2 * 10**6)
    assert told["limits"] == ["one worker lists 2,000,000 shards"]
    told = on_cluster(work(2**42), PLAIN, 1, Rates(process_bytes=6 * 10**9), shards=1)
    assert [line.split(" of ")[0] for line in told["limits"]] == [
        "a task takes 7.0 GB",
        "plain has too little memory for tasks on all",
    ]


def test_unknown_machines_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="'n2-standart-4': did you mean n2-standard-4"):
        machine_of("n2-standart-4")


def test_plan_tells_it_on_the_command_line(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "in", sample_table(1000), files=2)
    words = ("plan", source, tmp_path / "out", "--json", "--workers", 3)
    plain = json.loads(run("plan", source, tmp_path / "out", "--json").stdout)
    assert "cluster" not in plain
    told = json.loads(run(*words).stdout)["cluster"]
    assert (told["machine"], told["workers"], told["cores"]) == ("n2-standard-4", 3, 12)
    assert told["rates"]["usd_hour"] == 0.194
    assert told["rounds"] == 1
    told = json.loads(run(*words, "--machine", "m6i.xlarge", "--usd-hour", "5").stdout)["cluster"]
    assert (told["machine"], told["rates"]["usd_hour"]) == ("m6i.xlarge", 5.0)
    assert run(*words, "--machine", "nothing").exit_code == 2
    assert bt.plan(source, tmp_path / "out", workers=3)["cluster"]["cores"] == 12
