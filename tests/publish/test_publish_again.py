"""A runner tries a step again whose worker has died: whenever that was, the dataset is the same."""

import os
import shutil

import pytest

import beam_tfrecord as bt
from tests.publish.last_steps import files, killed, step_of

ROWS = 300


@pytest.fixture
def trips(tmp_path):
    """Return a CSV file with a row that is none."""
    path = tmp_path / "trips.csv"
    lines = [f"{i},{i * 7919 % 1000}" for i in range(ROWS)]
    path.write_text("\n".join(["id,fare", *lines, "1,2,3"]) + "\n")
    return str(path)


def written(trips, **options):
    def make(output):
        wanted = {"splits": "train=0.8,test=0.2", "shards": 4, "max_rejects": 1, **options}
        return bt.write(trips, output, **wanted)

    return make


def extracted(trips, **options):
    return lambda output: bt.extract(trips, output, max_rejects=1, **options)


def nothing(output, trips):
    """Leave the target free."""


def another_dataset(output, trips):
    bt.write(trips, output, shards=9, seed=3, max_rejects="any", key="id")


def the_same_damaged(output, trips):
    written(trips)(output)
    shard = output / "train-00001-of-00003.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-7])
    # So that the same call is not nothing to do.
    os.utime(trips, ns=(1, 1))


def another_stage(output, trips):
    extracted(trips, columns=["id"])(output)


CASES = {
    "dataset": (written, nothing, False),
    "dataset-over-another": (written, another_dataset, True),
    "dataset-over-itself": (written, the_same_damaged, True),
    "stage": (extracted, nothing, False),
    "stage-over-another": (extracted, another_stage, True),
}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("before", [True, False])
def test_a_step_that_died_at_any_change_of_files_is_tried_again(
    case, before, trips, tmp_path, monkeypatch
):
    make, prepare, overwrite = CASES[case]
    output = tmp_path / "out"
    make(trips)(output)
    expected = files(output)
    shutil.rmtree(output)
    prepare(output, trips)
    step = step_of(make(trips, overwrite=overwrite), output, monkeypatch)
    assert files(output) == expected
    step.begin()
    with killed(-1, before=before) as changes:
        names = step.try_once()
    assert len(changes) > len(names) > 0
    for at in range(len(changes)):
        step.begin()
        with killed(at, before=before):
            step.try_once()
        if prepare is not the_same_damaged and (output / "manifest.json").exists():
            # Shards of a dataset that was replaced may be left.
            faults = bt.verify(output).faults
            assert [fault for fault in faults if "remove it" not in fault.message] == [], at
        assert step.try_once() == names, at
        assert files(output) == expected, at
        assert bt.verify(output).faults == (), at
        assert not list(output.glob(".*")), at


def test_tried_again_after_all_was_done_it_only_says_so(trips, tmp_path, monkeypatch):
    step = step_of(written(trips), tmp_path / "out", monkeypatch)
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.tfrecord")}
    assert {os.path.basename(name) for name in step.try_once()} == set(inodes)
    after = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.tfrecord")}
    assert after == inodes
