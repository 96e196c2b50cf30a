"""The tutorial from a database to Flink: the lines that need a cluster, too."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.helpers.pages import blocks_of, console
from tests.helpers.repository import ROOT

PAGE = ROOT / "docs" / "tutorial-database-to-flink.md"


def _run(commands):
    ran = subprocess.run(["bash", "-c", commands], capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


def test_the_bytes_of_the_tutorial_are_those_of_a_local_run(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    Path("options.txt").write_text(shlex.join(cluster.arguments))
    said, names = "", {}
    for block in blocks_of(PAGE):
        if block.language == "python":
            exec(block.text, names)
        elif block.language == "console":
            said = _run("".join(command for command, _ in console(block)))
        elif "options.txt" in block.text:
            # The cluster of the tests is the one that these lines fetch, start and end.
            said = _run(
                re.sub(r"^(git clone|beam-tfrecord/).*\n", "", block.text, flags=re.MULTILINE)
            )
            assert "wrote 26,952 rows in 2 splits, 2 shards (2.9 MB) to there/" in said
            assert "the data is the same" in said
            assert said.count(": the same bytes") == 2
    assert "the same bytes" in said
