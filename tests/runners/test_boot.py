"""`beam-tfrecord-boot`: the container contract without a container."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import beam_tfrecord as bt
from beam_tfrecord.runners import boot
from beam_tfrecord.runners.wheels import package_wheel
from tests.runners.flink_cluster import is_running, wait_for

ROOT = Path(__file__).parents[2]
BOOT = Path(sys.executable).with_name("beam-tfrecord-boot")

# Starts a supervisor whose worker is another program, as the runner that is its parent.
STAND_IN = """
import os, subprocess, sys
from beam_tfrecord.runners import boot
real = subprocess.Popen
def start(command, **options):
    return real([sys.executable, "-c", {worker!r}], **options)
boot.subprocess.Popen = start
os.setpgid(0, 0)
task = boot.Task(id="1-1", provision_endpoint="localhost:1")
sys.exit(boot.supervise(task))
"""


def supervised(tmp_path, worker):
    path = tmp_path / "stand_in.py"
    path.write_text(STAND_IN.format(worker=textwrap.dedent(worker)))
    return str(path)


def started(tmp_path, worker, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), boot.GRACE_S: "1"}
    command = [sys.executable, supervised(tmp_path, worker)]
    return subprocess.Popen(command, env=environment, **options)


def test_words_of_java_and_of_the_worker_pool_are_understood():
    words = ["--id='job-001[job]_3'", "--provision_endpoint=localhost:7", "--of_a_later_version=1"]
    task, directory = boot.parse_task(words)
    assert (task.id, task.provision_endpoint) == ("job-001[job]_3", "localhost:7")
    assert (task.control_endpoint, directory) == ("", "")
    more = ["--control_endpoint=localhost:8", "--semi_persist_dir=/tmp/x"]
    task, directory = boot.parse_task([*words, *more])
    assert (task.control_endpoint, directory) == ("localhost:8", "/tmp/x")


def test_the_exit_code_is_the_workers(tmp_path):
    assert started(tmp_path, "raise SystemExit(7)").wait(20) == 7
    assert started(tmp_path, "import os; os.kill(os.getpid(), 9)").wait(20) == 137


def test_all_output_is_in_the_log(tmp_path, monkeypatch):
    monkeypatch.setenv(boot.LOG, f"{tmp_path}/worker-{{id}}.log")
    worker = "import sys; print('to stdout'); print('to stderr', file=sys.stderr)"
    assert started(tmp_path, worker, stderr=subprocess.DEVNULL).wait(20) == 0
    text = (tmp_path / "worker-1-1.log").read_text()
    assert sorted(text.split("\n")) == ["", "to stderr", "to stdout"]


SLEEPER = """
import os, signal, sys, time
def stop(*_):
    open({said!r}, "w").close()
    sys.exit(0)
{install}
open({pid!r} + ".part", "w").write(str(os.getpid()))
os.rename({pid!r} + ".part", {pid!r})
time.sleep(60)
"""


def sleeper(tmp_path, install):
    return SLEEPER.format(said=str(tmp_path / "said"), pid=str(tmp_path / "pid"), install=install)


def pid_in(tmp_path):
    wait_for((tmp_path / "pid").exists, timeout_s=20)
    return int((tmp_path / "pid").read_text())


def test_a_signal_is_passed_on(tmp_path):
    process = started(tmp_path, sleeper(tmp_path, "signal.signal(signal.SIGTERM, stop)"))
    pid_in(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert (tmp_path / "said").exists()


def test_a_worker_that_does_not_hear_is_killed(tmp_path):
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    process = started(tmp_path, sleeper(tmp_path, ignoring))
    worker = pid_in(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 137
    assert not is_running(worker)


def test_a_worker_ends_with_its_killed_runner(tmp_path):
    script = supervised(tmp_path, sleeper(tmp_path, ""))
    code = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runner = subprocess.Popen([sys.executable, "-c", code, sys.executable, script], env=environment)
    worker = pid_in(tmp_path)
    runner.kill()
    runner.wait()
    wait_for(lambda: not is_running(worker), timeout_s=20, what="the worker has ended")


HERE = {"python": "3.11", "beam": "2.77"}


@pytest.mark.parametrize(
    ("expected", "here", "code"),
    [
        ({}, HERE, 0),
        (HERE, HERE, 0),
        ({"python": "3.12"}, HERE, 81),
        ({"beam": "2.70"}, HERE, 82),
        ({"probe": "/no/such/file"}, HERE, 83),
        ({}, {**HERE, "beam": ""}, 84),
    ],
)
def test_each_fault_has_an_exit_code(expected, here, code):
    assert boot.fault_of(expected, here) == code


def test_the_program_checks_its_machine(tmp_path):
    told = json.dumps({"probe": str(tmp_path / "missing")})
    ran = subprocess.run(
        [str(BOOT), "--id=1", "--provision_endpoint=localhost:1"],
        env={**os.environ, boot.EXPECT: told},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 83
    assert "write to a directory that all workers share" in ran.stderr


def test_the_supervisor_imports_neither_beam_nor_arrow():
    code = (
        "import sys, beam_tfrecord.runners.boot; "
        "print([m for m in ('apache_beam', 'pyarrow', 'numpy', 'grpc') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.slow
def test_a_job_runs_in_workers_that_were_sent_this_package(worker_pool, tmp_path):
    (tmp_path / "in.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(1000)))
    address, cache = worker_pool
    options = [
        *("--job_endpoint=embed", "--environment_type=EXTERNAL"),
        f"--environment_config={address}",
        f"--extra_package={package_wheel()}",
    ]
    there = bt.write(
        tmp_path / "in.csv", tmp_path / "a", runner="portable", pipeline_options=options
    )
    here = bt.write(tmp_path / "in.csv", tmp_path / "b")
    assert [shard.xxh64 for shard in there.shards] == [shard.xxh64 for shard in here.shards]
    assert there == here
    assert len([name for name in os.listdir(cache) if "." not in name]) == 1
