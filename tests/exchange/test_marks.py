"""What a worker keeps of the runs that it wrote."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from beam_tfrecord.exchange.checkpoints import Done, GroupMarks
from beam_tfrecord.exchange.spill_files import Run
from beam_tfrecord.exchange.write_summary import Tally
from beam_tfrecord.job_batch import Part


@pytest.mark.parametrize("part", [None, Part("key", 3, False)], ids=["no group", "a torn group"])
def test_runs_of_what_is_never_marked_are_not_kept(tmp_path: Path, part: Part | None) -> None:
    marks = GroupMarks(str(tmp_path))
    marks.follow(part)
    run = Run(str(tmp_path / "run"), {})
    kept = weakref.ref(run)
    marks.add(Done(Tally(), (run,)))
    del run
    gc.collect()
    assert kept() is None
    marks.end()
    assert list(tmp_path.iterdir()) == []
