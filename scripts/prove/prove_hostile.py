"""Made-up manifests and odd files: no command crashes, hangs, or opens what it should not."""

from __future__ import annotations

import collections
import random
import tempfile
from pathlib import Path
from typing import Any

import beam_tfrecord as bt
from tests.whole.hostile import (
    check_writing,
    commands,
    copied,
    make,
    odd_things,
    run,
    write_changed,
)

_FILES = ("manifest.json", "schema.json", "job.json", "train-00000-of-00002.tfrecord")

# A job that writes takes longer than a command that reads.
_JOB_EVERY = 5


def prove(*, manifests: int = 1000, seed: int = 0) -> dict[str, Any]:
    """Return how many commands ended how.

    One that crashes, hangs, says more than a line, or opens what it should not ends the proof.
    """
    codes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        sound = make(directory)
        (directory / "in.csv").write_text("a,b\n1,x\n2,y\n")
        bt.extract(directory / "in.csv", directory / "stage")
        (directory / "other.csv").write_text("a,b\n3,x\n")
        for number in range(manifests):
            dataset = copied(sound, directory / "in")
            write_changed(dataset, random.Random(f"{seed} {number}"))
            _all(dataset, sound, directory / f"out-{number}", str(number), codes)
            stage = copied(directory / "stage", directory / "in")
            write_changed(stage, random.Random(f"{seed} {number}"))
            _one(("verify", stage), stage, f"stage {number}", codes)
            _one(("head", stage), stage, f"stage {number}", codes)
            if number % _JOB_EVERY == 0:
                for command, original in (("write", sound), ("extract", directory / "stage")):
                    place = copied(original, directory / "in")
                    write_changed(place, random.Random(f"{seed} {number}"))
                    for code in check_writing(place, directory / "other.csv", command):
                        codes[f"{command} {code}"] += 1
        for name in _FILES:
            for thing in odd_things(Path("x")):
                dataset = copied(sound, directory / "in")
                (dataset / name).unlink(missing_ok=True)
                odd_things(dataset / name)[thing]()
                if (name, thing) != ("manifest.json", "link to nothing"):
                    out = directory / f"out-{name}-{thing}"
                    _all(dataset, sound, out, f"{thing} as {name}", codes)
    return {
        "manifests": manifests,
        "seed": seed,
        "odd files": len(_FILES) * len(odd_things(Path("x"))),
        "commands by exit code": dict(sorted(codes.items())),
    }


def _all(dataset: Path, sound: Path, out: Path, what: str, codes: collections.Counter[str]) -> None:
    for command in commands(dataset, sound, out):
        _one(command, dataset, what, codes)


def _one(
    command: tuple[str | Path, ...], dataset: Path, what: str, codes: collections.Counter[str]
) -> None:
    ended = run(*command, directory=dataset)
    if not ended.is_right:
        raise SystemExit(f"{what}: {command[0]} ended with {ended}")
    codes[f"{command[0]} {ended.code}"] += 1
