"""Notebooks: an edited cell writes its dataset anew, and nothing else is replaced unasked."""

import os
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, TargetExists, options_named_by
from beam_tfrecord.format.job_file import WITHOUT_FUNCTIONS, dump_job, load_job
from tests.helpers.datasets import visible_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")


@pytest.fixture
def cell(tmp_path, monkeypatch):
    """Give a function that runs the code of a cell in a session, in a directory with ``a.csv``."""
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x\n1\n2\n3\n")
    monkeypatch.setattr(sys, "ps1", "In : ", raising=False)
    names = {"__name__": "__main__", "bt": bt}

    def run(code):
        exec(compile(code, "<cell>", "exec"), names)

    return run


def written(column="y"):
    return sorted(row[column] for row in bt.load("out").rows())


@pytest.mark.slow
def test_an_edited_lambda_replaces_what_the_cell_wrote(cell, caplog, capsys):
    cell("bt.write('a.csv', 'out', shards=3, map=lambda row: {'y': row['x'] * 2})")
    assert written() == [2, 4, 6]
    assert caplog.messages == []
    cell("bt.write('a.csv', 'out', shards=3, map=lambda row: {'y': row['x'] - 1})")
    assert written() == [0, 1, 2]
    assert caplog.messages == []
    assert capsys.readouterr().out == (
        f"replaced the dataset in {os.path.abspath('out')!r}, because the function was edited\n"
    )
    # Fewer shards: what only the old dataset had is gone.
    cell("bt.write('a.csv', 'out', shards=3, map=lambda row: {'y': 0} if row['x'] == 1 else None)")
    index, shard, *others = visible_names(Path("out"))
    assert (index, len(os.listdir("out/_index"))) == ("_index", 1)
    assert shard == "data-00000-of-00001.tfrecord"
    assert others == ["job.json", "manifest.json", "schema.json", "schema.pbtxt"]
    assert sorted(os.listdir(".")) == ["a.csv", "out"]


@pytest.mark.slow
def test_a_cell_that_fails_leaves_the_old_dataset(cell, capsys):
    cell("bt.write('a.csv', 'out', map=lambda row: {'y': 1})")
    before = bt.load("out").manifest
    with pytest.raises(DataError, match="KeyError: 'z'"):
        cell("bt.write('a.csv', 'out', map=lambda row: {'y': row['z']})")
    assert bt.load("out").manifest == before
    assert written() == [1, 1, 1]
    assert "replaced" not in capsys.readouterr().out


def _edit_job(edit):
    path = Path("out/job.json")
    job = load_job(path.read_text())
    edit(job)
    path.write_text(dump_job(job))


def _edit_input():
    Path("a.csv").write_text("x\n7\n8\n9\n")


def _damage_job_file():
    job = Path("out/job.json")
    job.write_text(job.read_text().replace("direct", "indirect"))


EDITED = "bt.write('a.csv', 'out', map=lambda row: {'y': 2})"
OTHERS = {
    "another seed": (lambda: None, EDITED.replace("})", "}, seed=1)")),
    "without function": (lambda: None, "bt.write('a.csv', 'out')"),
    "an edited input": (_edit_input, EDITED),
    "of a program": (lambda: _edit_job(lambda job: job.pop(WITHOUT_FUNCTIONS)), EDITED),
    "a damaged job file": (_damage_job_file, EDITED),
    "a damaged manifest": (lambda: Path("out/manifest.json").write_text("{}"), EDITED),
}


@pytest.mark.slow
@pytest.mark.parametrize("other", OTHERS)
def test_anything_else_is_only_replaced_when_asked(cell, other):
    cell("bt.write('a.csv', 'out', map=lambda row: {'y': 1})")
    shard = Path("out/data-00000-of-00001.tfrecord").read_bytes()
    change, code = OTHERS[other]
    change()
    with pytest.raises(TargetExists) as refused:
        cell(code)
    assert refused.value.message.startswith(
        f"{os.path.abspath('out')!r} already holds another dataset: pass --overwrite to replace "
        "it, or choose another output"
    )
    with options_named_by("keyword"):
        assert "pass overwrite=True to replace it" in str(refused.value)
    assert Path("out/data-00000-of-00001.tfrecord").read_bytes() == shard
    cell(code.replace("'out'", "'out', overwrite=True"))
    assert bt.verify("out").ok


def test_a_program_replaces_nothing(cell, monkeypatch):
    cell("bt.write('a.csv', 'out', map=lambda row: {'y': 1})")
    monkeypatch.delattr(sys, "ps1")
    with pytest.raises(TargetExists):
        cell("bt.write('a.csv', 'out', map=lambda row: {'y': 2})")
    assert written() == [1, 1, 1]


def test_writing_in_ipython_needs_none_of_the_interactive_parts_of_beam(
    cell, tmp_path, monkeypatch
):
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


def prompt(code, *arguments, path=""):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), path)))}
    return subprocess.run(
        [sys.executable, *arguments],
        input=code,
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


@pytest.mark.slow
def test_the_prompt_of_python_is_a_session(cell):
    done = prompt(
        "import beam_tfrecord as bt\n"
        "scale = 2\n"
        "_ = bt.write('a.csv', 'out', map=lambda row: {'y': row['x']})\n"
        "_ = bt.write('a.csv', 'out', map=lambda row: {'y': row['x'] * scale})\n"
        "bt.load('out')\n",
        *("-i", "-q"),
    )
    assert done.stdout.splitlines() == [
        f"replaced the dataset in {os.path.abspath('out')!r}, because the function was edited",
        f"<Dataset {os.path.abspath('out')!r}: data=3; y>",
    ]
    assert written() == [2, 4, 6]


@pytest.mark.slow
def test_ipython_is_a_session(cell, tmp_path):
    packages = tmp_path / "packages"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages), "ipython"]
    subprocess.run(pip, check=True, capture_output=True)
    done = prompt(
        "import sys\n"
        f"sys.path.append({str(packages)!r})\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "def run(cell):\n"
        "    shell.run_cell(cell).raise_error()\n"
        "run('import math\\nimport beam_tfrecord as bt')\n"
        'run(\'bt.write("a.csv", "out", map=lambda row: {"y": row["x"]});\')\n'
        'run(\'bt.write("a.csv", "out", map=lambda row: {"y": math.floor(row["x"] / 2)});\')\n'
        "html, _ = shell.display_formatter.format(shell.ev('bt.load(\"out\")'))\n"
        "print(sorted(html))\n",
        "-",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("replaced the dataset in") == 1
    assert done.stdout.splitlines()[-1] == "['text/html', 'text/plain']"
    assert written() == [0, 1, 1]


@pytest.mark.slow
def test_the_page_of_notebooks_runs(cell, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(blocks) == PAGE.count("```python") > 3
    for block in blocks:
        cell(block)
    assert capsys.readouterr().out.count("replaced the dataset in") == 2
    assert bt.load("flights").schema.names == ("flight", "delay", "late")
