"""What is told of a running job follows from the files of its temporary directory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from beam_tfrecord import progress


class Seen:
    """Stands for what shows progress; ends when it was told something."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int | None]] = []
        self.is_told = threading.Event()

    def update(self, phase: str, done_bytes: int, total_bytes: int | None = None) -> None:
        self.told.append((phase, done_bytes, total_bytes))
        self.is_told.set()


def told_of(directory: Path, input_bytes: int) -> tuple[str, int, int | None]:
    seen = Seen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "INTERVAL_S", 0.001)
        with progress.watch(str(directory), input_bytes, seen):  # type: ignore[arg-type]
            assert seen.is_told.wait(10)
    return seen.told[-1]


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    assert told_of(tmp_path, 1234) == ("reading 1,234 bytes", 0, None)
    assert told_of(tmp_path / "not made yet", 1234) == ("reading 1,234 bytes", 0, None)


def test_runs_and_then_shards_grow(tmp_path: Path) -> None:
    (tmp_path / "run-a").write_bytes(bytes(300))
    (tmp_path / "run-b").write_bytes(bytes(100))
    assert told_of(tmp_path, 1000) == ("encoding", 400, None)
    (tmp_path / "shard-train-0").write_bytes(bytes(80))
    assert told_of(tmp_path, 1000) == ("writing shards", 80, 400)


def test_nobody_looks_where_nothing_is_shown(tmp_path: Path) -> None:
    before = threading.active_count()
    with progress.watch(str(tmp_path), 10, None):
        assert threading.active_count() == before
