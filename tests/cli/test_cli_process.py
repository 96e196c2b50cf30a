"""The command line as a program: end to end, pipes, interrupts, and what it imports."""

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time

import pytest

from tests.helpers import warm
from tests.helpers.cli_stand_ins import run

# Programs started elsewhere find the package of this tree, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
REAL = (sys.executable,)
INSTALLED = pathlib.Path(sys.executable).with_name("beam-tfrecord")


def process(*words, cwd=None, python=None):
    program = [*(python or warm.program()), "-m", "beam_tfrecord"]
    return subprocess.run(
        [*program, *words], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True
    )


def test_version_and_module():
    from beam_tfrecord import __version__

    for program in ([*REAL, "-m", "beam_tfrecord"], [INSTALLED]):
        command = [*program, "--version"]
        ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        assert (ran.returncode, ran.stdout) == (0, f"beam-tfrecord, version {__version__}\n")
    ran = process("show", "nowhere", python=REAL)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: cannot read 'nowhere': no such file")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A dataset of 1,000 rows, written by the program from a CSV file."""
    directory = tmp_path_factory.mktemp("cli")
    rows = "".join(f"{i},name {i}\n" for i in range(1000))
    (directory / "t.csv").write_text(f"id,name\n{rows}")
    ran = process(*WRITE, cwd=directory)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.startswith("wrote 1,000 rows in 2 splits, 2 shards (")
    return directory


WRITE = ["write", "t.csv", "out/", "--split", "train=0.9,test=0.1"]


def test_written_twice_is_written_once(dataset):
    ran = process(*WRITE, cwd=dataset)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == "out/ already holds this dataset: nothing to do\n"


def test_reading_commands(dataset):
    out = dataset / "out"
    shown = run("show", out)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].endswith("(shuffled, seed 0)")
    assert "to read it: beam_tfrecord.load(" in shown.stderr
    assert json.loads(run("show", out, "--json").stdout)["examples"] == 1000
    found = json.loads(run("stats", out, "--json", "--top", "1").stdout)["splits"]
    assert sum(of["examples"] for of in found.values()) == 1000
    assert "name" in run("stats", out, "--split", "test").stdout

    lines = run("head", out, "--json", "-n", "3", "--split", "test").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 3
    assert all(row["name"] == f"name {row['id']}" for row in rows)
    assert len(run("head", out).stdout.splitlines()) == 11
    none = run("head", out, "-n", "0")
    assert (none.stdout, none.stderr) == ("", "no rows\n")

    sound = run("verify", out)
    assert (sound.exit_code, sound.stdout) == (0, "")
    assert sound.stderr == "verified 2 shards, 1,000 examples: no faults\n"


def test_verify_and_diff_exit_with_1_where_the_data_is_at_fault(dataset, tmp_path):
    import shutil

    damaged = tmp_path / "damaged"
    shutil.copytree(dataset / "out", damaged)
    same = run("diff", dataset / "out", damaged)
    assert (same.exit_code, same.stderr) == (0, "the data is the same\n")

    shard = next(damaged.glob("test-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    found = run("verify", damaged)
    assert found.exit_code == 1
    assert found.stdout.startswith(shard.name)
    assert json.loads(run("verify", damaged, "--json").stdout)["ok"] is False

    (tmp_path / "u.csv").write_text("id,name\n1,other\n")
    assert run("write", tmp_path / "u.csv", tmp_path / "other").exit_code == 0
    differs = run("diff", dataset / "out", tmp_path / "other")
    assert differs.exit_code == 1
    assert differs.stdout != ""
    assert differs.stderr == "the data differs\n"
    as_json = run("diff", dataset / "out", tmp_path / "other", "--json")
    assert json.loads(as_json.stdout)["same_data"] is False


def test_a_reader_that_goes_away_is_no_fault(dataset):
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [*warm.program(), "-m", "beam_tfrecord", "head", "out", "-n", "1000", "--json"],
        cwd=dataset,
        env=ENVIRONMENT,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.slow_after(7)
@pytest.mark.parametrize(
    "closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"]
)
@pytest.mark.parametrize("words", ["head out", "verify out --json", "--help"])
def test_a_closed_stream_is_no_fault(dataset, words, closed):
    ran = in_shell(f"{words} {closed}", dataset)
    assert ran.returncode == 0, ran.stderr
    assert "rror" not in ran.stderr
    assert bool(ran.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_dataset_is_written_with_closed_streams(dataset, tmp_path, closed):
    assert in_shell(f"write t.csv {tmp_path}/out {closed}", dataset).returncode == 0
    assert process("verify", "out", cwd=tmp_path).returncode == 0
    assert in_shell(f"write none.csv {tmp_path}/none {closed}", dataset).returncode == 2


@pytest.mark.parametrize("words", ["head out", "head out --json", "show out", "--help"])
def test_a_full_disk_behind_stdout_is_one_line(dataset, words):
    ran = in_shell(f"{words} >/dev/full", dataset)
    assert ran.returncode == 1
    assert ran.stderr == "error: cannot write to standard output: no space left on device\n"


def in_shell(words, cwd):
    # The words that import nothing heavy show that a fork and a process do the same.
    python = REAL if words.startswith("--help") else warm.program()
    return subprocess.run(
        f"{shlex.join(python)} -m beam_tfrecord {words}",
        shell=True,
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("python", "number"),
    [
        (None, signal.SIGINT),
        (None, signal.SIGTERM),
        pytest.param(REAL, signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_job_publishes_nothing(tmp_path, python, number):
    (tmp_path / "t.csv").write_text("id\n1\n2\n")
    # The job tells that it runs, then waits to be interrupted.
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "def wait(row):\n"
        "    pathlib.Path('running').touch()\n"
        "    time.sleep(60)\n"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    python = python or warm.program()
    job_process = subprocess.Popen(
        [*python, "-m", "beam_tfrecord", "write", "t.csv", "out", "--map", "slow.py:wait"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with job_process:
        while not (tmp_path / "running").exists():
            assert job_process.poll() is None, job_process.stderr.read()
            time.sleep(0.05)
        job_process.send_signal(number)
        out, err = job_process.communicate()
    assert job_process.returncode == 128 + number
    # On a busy machine the job has already told of its progress.
    assert (out, err.splitlines()[-1]) == (
        "",
        "error: interrupted: nothing was published, and no part of the input was done yet",
    )
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert list(scratch.iterdir()) == []
