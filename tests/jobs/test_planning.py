"""`plan`: runs, rounds and requests as the exchange chooses them, and cost at the user's prices."""

import json
import math

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange.plan import MOST_WINDOW_BYTES, REMOTE_REQUEST_BYTES
from beam_tfrecord.jobs.plan import merge_rounds
from beam_tfrecord.sources.base import MOST_UNITS
from tests.helpers.cli_stand_ins import run
from tests.helpers.datasets import sample_table, write_parquet

MIB = 2**20


def test_little_goes_in_one_round_of_small_runs():
    runs, (merge,) = merge_rounds(2**30, REMOTE_REQUEST_BYTES)
    assert runs == 16
    # 29 windows of 36 MiB read from sixteen runs each.
    assert merge.reads == 29 * 16


def test_much_goes_in_two_rounds():
    runs, (first, last) = merge_rounds(2**42, REMOTE_REQUEST_BYTES)
    assert (runs, first.tasks) == (8192, 1024)
    assert (first.reads, 2**42 // first.reads) == (8192 * 512, MIB)
    assert (last.reads, 2**42 // last.reads) == (8192 * 16, 32 * MIB)


@pytest.mark.parametrize(
    ("size", "rounds", "runs"),
    [(10**9, 1, 15), (10**12, 2, 1863), (10**13, 2, 18_627), (10**14, 2, 186_265)],
)
def test_jobs_of_any_size_keep_all_limits(size, rounds, runs):
    planned_runs, merges = merge_rounds(size, REMOTE_REQUEST_BYTES)
    assert (planned_runs, len(merges)) == (runs, rounds)
    for merge in merges:
        assert size / merge.reads >= 10**6
        assert merge.window_bytes <= MOST_WINDOW_BYTES
    # What one worker lists: units of the input, and files of each round.
    assert max(runs, MOST_UNITS, *(merge.tasks for merge in merges)) < 10**6


@pytest.mark.parametrize(("request_bytes", "most"), [(MIB, 137.4e9), (MIB // 8, 1.0995e12)])
def test_one_round_reaches_as_far_as_documented(request_bytes, most):
    sizes = int(most), int(1.001 * most)
    assert [len(merge_rounds(size, request_bytes)[1]) for size in sizes] == [1, 2]


def test_plan_counts_runs_requests_and_shuffled_bytes(tmp_path):
    source = write_parquet(tmp_path / "in", sample_table(1000), files=2)
    planned = bt.plan(source, tmp_path / "out")
    nbytes = planned["estimated_record_bytes"]
    assert (planned["exchange"], planned["runs"], planned["rounds"]) == ("files", 1, 1)
    assert planned["estimated_shuffle_bytes"] == nbytes > 0
    assert planned["estimated_temporary_bytes"] == 2 * nbytes
    # One read of the input, one of the run and two of its footer; one file and one upload each.
    assert planned["estimated_read_requests"] == 4
    assert planned["estimated_write_requests"] == 3
    direct = bt.plan(source, tmp_path / "out", shuffle=False)
    assert (direct["runs"], direct["rounds"], direct["estimated_shuffle_bytes"]) == (0, 0, 0)
    elsewhere = bt.plan(source, tmp_path / "out", runner="dataflow")
    assert (elsewhere["exchange"], elsewhere["estimated_shuffle_bytes"]) == ("runner", nbytes)
    assert elsewhere["estimated_read_requests"] is None


def test_cost_follows_from_the_users_prices_alone(tmp_path):
    source = write_parquet(tmp_path / "in", sample_table(1000), files=2)
    assert "cost" not in bt.plan(source, tmp_path / "out")
    prices = {"read_requests": 250_000.0, "shuffle_bytes": 10**9}
    planned = bt.plan(source, tmp_path / "out", prices=prices)
    nbytes = planned["estimated_shuffle_bytes"]
    assert planned["cost"] == {"read_requests": 1.0, "shuffle_bytes": nbytes, "total": 1 + nbytes}
    elsewhere = bt.plan(source, tmp_path / "out", runner="dataflow", prices=prices)["cost"]
    assert (elsewhere["read_requests"], elsewhere["total"]) == (None, None)
    with pytest.raises(UsageError, match="no price of 'hours': give one of read_requests, write_"):
        bt.plan(source, tmp_path / "out", prices={"hours": 1})


def test_prices_on_the_command_line(tmp_path):
    source = write_parquet(tmp_path / "in", sample_table(1000), files=2)
    words = ("plan", source, tmp_path / "out", "--json")
    prices = ("--price", "read_requests=250000", "--price", "write_requests=1000000")
    cost = json.loads(run(*words, *prices).stdout)["cost"]
    assert math.isclose(cost["total"], cost["read_requests"] + cost["write_requests"])
    assert run(*words, "--price", "read_requests").exit_code == 2
    assert "write read_requests=0.4" in run(*words, "--price", "read_requests").stderr


@pytest.mark.slow
def test_a_dry_run_says_what_is_read_and_written_and_its_steps_if_asked(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n2\n")
    words = ("write", tmp_path / "a.csv", tmp_path / "out", "--dry-run", "--seed", "7")
    short = run(*words).stdout
    assert short.startswith("input:\n  kind: csv\n  files: 1\n")
    assert short.endswith(f"output: {tmp_path}/out\nrunner: direct\nsettings:\n  --seed: 7\n")
    assert "graph" not in short
    assert "\ngraph:\n  Read: " in run(*words, "--verbose").stdout
    assert not (tmp_path / "out").exists()
