"""What a worker keeps of the runs that it wrote."""

import gc
import weakref

import pytest

from beam_tfrecord.exchange.checkpoints import GroupCheckpoint
from beam_tfrecord.exchange.spill_files import Run
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.job_batch import Part


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("part", [None, Part("key", 3, False)], ids=["no group", "a torn group"])
def test_runs_of_what_is_never_marked_are_not_kept(tmp_path, part):
    checkpoint = GroupCheckpoint(str(tmp_path))
    checkpoint.follow(part)
    run = Run(str(tmp_path / "run"), {})
    kept = weakref.ref(run)
    checkpoint.add(run)
    del run
    gc.collect()
    assert kept() is None
    checkpoint.save(Tally())
    assert list(tmp_path.iterdir()) == []
