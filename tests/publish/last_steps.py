"""The last step of a job, taken out of it so that it can be tried any number of times."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_tfrecord.publish import last_step
from beam_tfrecord.storage import Lease

# All by which publishing changes what is there.
_CHANGES = ("replace", "rename", "remove", "unlink", "rmdir", "mkdir")

Made = Callable[[Path], object]


class Held(Lease):
    """The right to write, without a file."""

    def check(self):
        return


class Killed(BaseException):
    """Ends a step as the death of its worker does."""


@contextlib.contextmanager
def killed(at, *, before):
    """Die at a change of files, before or after it is made; give the changes that were."""
    changes = []

    def counted(name, change):
        def changed(*arguments, **options):
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


@contextlib.contextmanager
def killed_before(path):
    """Die before a file gets its name."""
    replace = os.replace

    def replaced(old, new):
        if os.fspath(new) == str(path):
            raise Killed
        replace(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replaced)
        with pytest.raises(Killed):
            yield


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

    def begin(self):
        shutil.rmtree(self.output)
        shutil.copytree(self.before, self.output)

    def try_once(self, *, clears=True):
        """Do the step; return the paths it gives.

        Args:
            clears: As of a job that nobody waits for, which clears up by itself.
        """
        job, *others = self.task
        if not clears:
            return list(
                last_step._published((dataclasses.replace(job, lease=Held("", "")), *others))
            )
        with pytest.MonkeyPatch.context() as patch:
            # That of a dead process is free; here it would be this one's to the end.
            patch.setattr(last_step, "lease", lambda _: contextlib.nullcontext(Held("", "")))
            return list(last_step._published(self.task))


def step_of(make, output, monkeypatch):
    """Run a job, and keep its last step."""
    before, steps = output.with_name("before"), []
    published = last_step._published

    def kept(task):
        shutil.copytree(output, before, ignore=shutil.ignore_patterns(".lock"))
        job, *others = task
        # As of a job that nobody waits for, so that the step clears up, too.
        steps.append(Step((dataclasses.replace(job, lease=None), *others), output, before))
        return published(task)

    with monkeypatch.context() as patch:
        patch.setattr(last_step, "_published", kept)
        make(output)
    (step,) = steps
    return step


def files(directory):
    """Return all files but ``job.json``, which tells of the try."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "job.json"
    }
