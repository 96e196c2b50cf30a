"""Notebooks: jobs run there without the interactive parts of Beam."""

from __future__ import annotations

import os
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beam_tfrecord as bt

Cell = Callable[[str], Any]


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Give a function that runs the code of a cell in a session, in a directory with ``a.csv``."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x\n1\n2\n3\n")
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    names: dict[str, Any] = {"__name__": "__main__", "bt": bt}

    def run(code: str) -> Any:
        exec(compile(code, "<cell>", "exec"), names)
        return names.get("result")

    return run


def written(column: str = "y") -> list[Any]:
    return sorted(row[column] for row in bt.load("out").rows())


def test_writing_in_ipython_needs_none_of_the_interactive_parts_of_beam(
    cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = types.ModuleType("IPython")
    stand_in.get_ipython = lambda: types.SimpleNamespace(  # type: ignore[attr-defined]
        config={}, execution_count=3
    )
    monkeypatch.setitem(sys.modules, "IPython", stand_in)
    # The import of a module that is None fails.
    monkeypatch.setitem(sys.modules, "apache_beam.runners.interactive", None)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    cell("bt.write('a.csv', 'out', map=lambda row: {'y': row['x']})")
    assert written() == [1, 2, 3]
    assert os.listdir(scratch) == []
