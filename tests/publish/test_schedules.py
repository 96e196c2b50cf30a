"""Several writers on a store that waits, fails and kills: a dataset is whole at every moment."""

import itertools
from collections import deque

import pytest

import beam_tfrecord as bt
from tests.helpers.effort import examples
from tests.helpers.seeded_store import seeded_store
from tests.publish.last_steps import files
from tests.publish.schedules import APPENDS, FAULTS, OUT, publish


def test_a_dataset_is_whole_after_every_request_and_each_command_ends_well_when_run_again():
    ends = [end for seed in range(examples(2000, part=33)) for end in publish(seed)[0]]
    # All that can happen has happened.
    for end in ("done", "killed", "another job is writing", "is no longer this job's", "is gone"):
        assert any(end in one for one in ends), end


def test_appends_and_a_compaction_lose_and_double_nothing_though_requests_come_late():
    for seed in range(examples(2000, part=66)):
        publish(seed, commands=APPENDS)
        publish(seed, commands=APPENDS[:2], is_prompt=False)


def test_a_seed_is_one_schedule():
    assert publish(7) == publish(7)


@pytest.mark.parametrize("fault", [*FAULTS, "late requests"])
def test_what_publishing_relies_on_is_needed(fault, monkeypatch):
    """Requests arrive while the lease is held that was checked just before."""
    if fault in FAULTS:
        monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError, match=r"seed \d+ of "):
        deque(publish(seed, is_prompt=fault in FAULTS) for seed in range(400))


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_job_killed_at_any_request_leaves_a_dataset_or_none_and_goes_on(tmp_path, overwrite):
    trips, clean = tmp_path / "trips.csv", tmp_path / "out"
    trips.write_text("\n".join(["id,fare", *(f"{i},{i * 7919 % 1000}" for i in range(300))]))
    options = {"splits": "train=0.8,test=0.2", "shards": 2, "overwrite": overwrite}
    bt.write(trips, clean, **options)
    expected = files(clean)
    with seeded_store(0, lambda _: None) as (store, schedule):
        for number in itertools.count(0, 4):
            store.objects.clear()
            if overwrite:
                bt.write(trips, OUT, shards=4, compression="gzip")
            with schedule.killed_at(number):
                bt.write(trips, OUT, **options)
                break
            if f"{OUT}/manifest.json" in store.objects:
                # Of a dataset that was replaced, shards that nothing names may be left.
                faults = [fault.message for fault in bt.verify(OUT).faults]
                assert [message for message in faults if "remove it" not in message] == [], number
                assert sum(1 for _ in bt.load(OUT).rows()) == 300, number
            bt.write(trips, OUT, **options)
            found = {path[len(OUT) + 1 :]: data for path, (data, _) in store.objects.items()}
            del found["job.json"]
            assert found == expected, number
    assert number > 72
