"""A runner tries a step again whose worker has died: whenever that was, the dataset is the same."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.jobs import finishing
from beam_tfrecord.storage import Lease

ROWS = 300
# All by which publishing changes what is there.
_CHANGES = ("replace", "rename", "remove", "unlink", "rmdir", "mkdir")

Made = Callable[[Path], object]


class Held(Lease):
    """The right to write, without a file."""

    def check(self) -> None:
        return


class Killed(BaseException):
    """Ends a step as the death of its worker does."""


@contextlib.contextmanager
def killed(at: int, *, before: bool) -> Iterator[list[str]]:
    """Die at a change of files, before or after it is made; give the changes that were."""
    changes: list[str] = []

    def counted(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            changes.append(name)
            is_last = len(changes) == at + 1
            if is_last and before:
                raise Killed
            result = change(*arguments, **options)
            if is_last:
                raise Killed
            return result

        return changed

    with pytest.MonkeyPatch.context() as patch:
        for name in _CHANGES:
            patch.setattr(os, name, counted(name, getattr(os, name)))
        with contextlib.suppress(Killed):
            yield changes


@dataclasses.dataclass(frozen=True)
class Step:
    """The last step of a job, as it may be tried any number of times.

    Attributes:
        task: What it is given.
        output: Where it publishes.
        before: A copy of what was there when it began.
    """

    task: Any
    output: Path
    before: Path

    def begin(self) -> None:
        shutil.rmtree(self.output)
        shutil.copytree(self.before, self.output)

    def try_once(self) -> list[str]:
        with pytest.MonkeyPatch.context() as patch:
            # That of a dead process is free; here it would be this one's to the end.
            patch.setattr(finishing, "lease", lambda _: contextlib.nullcontext(Held("", "")))
            return list(finishing._published(self.task))


def step_of(make: Made, output: Path, monkeypatch: pytest.MonkeyPatch) -> Step:
    """Run a job, and keep its last step."""
    before, steps = output.with_name("before"), []
    published = finishing._published

    def kept(task: Any) -> Iterator[str]:
        shutil.copytree(output, before, ignore=shutil.ignore_patterns(".lock"))
        job, *others = task
        # As of a job that nobody waits for, so that the step clears up, too.
        steps.append(Step((dataclasses.replace(job, lease=None), *others), output, before))
        return published(task)

    with monkeypatch.context() as patch:
        patch.setattr(finishing, "_published", kept)
        make(output)
    (step,) = steps
    return step


def files(directory: Path) -> dict[str, bytes]:
    """Return all files but ``job.json``, which tells of the try."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "job.json"
    }


@pytest.fixture
def trips(tmp_path: Path) -> str:
    """Return a CSV file with a row that is none."""
    path = tmp_path / "trips.csv"
    lines = [f"{i},{i * 7919 % 1000}" for i in range(ROWS)]
    path.write_text("\n".join(["id,fare", *lines, "1,2,3"]) + "\n")
    return str(path)


def written(trips: str, **options: Any) -> Made:
    def make(output: Path) -> object:
        wanted = {"splits": "train=0.8,test=0.2", "shards": 4, "max_rejects": 1, **options}
        return bt.write(trips, output, **wanted)

    return make


def extracted(trips: str, **options: Any) -> Made:
    return lambda output: bt.extract(trips, output, max_rejects=1, **options)


def nothing(output: Path, trips: str) -> None:
    """Leave the target free."""


def another_dataset(output: Path, trips: str) -> None:
    bt.write(trips, output, shards=9, seed=3, max_rejects="any", key="id")


def the_same_damaged(output: Path, trips: str) -> None:
    written(trips)(output)
    shard = output / "train-00001-of-00003.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-7])
    # So that the same call is not nothing to do.
    os.utime(trips, ns=(1, 1))


def another_stage(output: Path, trips: str) -> None:
    extracted(trips, columns=["id"])(output)


CASES = {
    "dataset": (written, nothing, False),
    "dataset-over-another": (written, another_dataset, True),
    "dataset-over-itself": (written, the_same_damaged, True),
    "stage": (extracted, nothing, False),
    "stage-over-another": (extracted, another_stage, True),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("before", [True, False])
def test_a_step_that_died_at_any_change_of_files_is_tried_again(
    case: str, before: bool, trips: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert step.try_once() == names, at
        assert files(output) == expected, at
        assert bt.verify(output).faults == (), at
        assert not list(output.glob(".*")), at


def test_tried_again_after_all_was_done_it_only_says_so(
    trips: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = step_of(written(trips), tmp_path / "out", monkeypatch)
    inodes = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.tfrecord")}
    assert {os.path.basename(name) for name in step.try_once()} == set(inodes)
    after = {path.name: path.stat().st_ino for path in (tmp_path / "out").glob("*.tfrecord")}
    assert after == inodes


def test_another_dataset_that_came_meanwhile_stays(
    trips: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    step = step_of(written(trips), output, monkeypatch)
    shutil.rmtree(output)
    another_dataset(output, trips)
    there = files(output)
    shutil.copytree(step.before, output, dirs_exist_ok=True)
    with pytest.raises(TargetExists, match="already holds another dataset"):
        step.try_once()
    assert there.items() <= files(output).items()
