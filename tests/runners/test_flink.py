"""Jobs on a real Flink cluster: the bytes of a local run, through kills, cancels and faults."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import beam_tfrecord as bt
from tests.runners.flink_cluster import (
    Cluster,
    finish,
    is_running,
    running_cluster,
    start_writing,
    wait_for,
)

pytestmark = pytest.mark.slow

ROWS = 850_000
SPLIT = ("--split", "train=0.9,test=0.1", "--shards", "6")

# A row function that takes long enough to be met by a kill, and says so once it has begun.
SLOW = """
import os, time
def slowly(row):
    if row["id"] % 2_000 == 0:
        open({begun!r}, "w").close()
        time.sleep(0.02)
    return row
"""
FAILING = """
def fails(row):
    if row["id"] == 777:
        raise ValueError("no such city")
    return row
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("flink")) as running:
        yield running


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a CSV file of several groups of units."""
    path = tmp_path_factory.mktemp("input") / "trips.csv"
    with open(path, "w") as file:
        file.write("id,fare,city\n")
        file.writelines(f"{i},{i * 7919 % 100_003 / 100},town-{i % 97}\n" for i in range(ROWS))
    return path


@pytest.fixture(scope="module")
def expected(trips: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of the same dataset written by threads of one process, without a map."""
    output = tmp_path_factory.mktemp("local") / "out"
    bt.write(trips, output, splits="train=0.9,test=0.1", shards=6)
    return data_of(output)


@pytest.fixture
def slow_map(tmp_path: Path) -> tuple[str, Path]:
    """Return a map function, and the file that is there once it was called."""
    begun = tmp_path / "begun"
    (tmp_path / "slow.py").write_text(SLOW.format(begun=str(begun)))
    return f"{tmp_path}/slow.py:slowly", begun


def data_of(output: Path) -> dict[str, bytes]:
    """Return the shards of a dataset by name."""
    shards = [shard.path for shard in bt.Manifest.load(str(output / "manifest.json")).shards]
    return {name: (output / name).read_bytes() for name in shards}


def leftovers(output: Path) -> list[str]:
    return [name for name in os.listdir(output) if name.startswith(".")]


def test_the_bytes_are_those_of_a_local_run(
    cluster: Cluster, trips: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    words = (str(trips), "out", *SPLIT, *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert "wrote 850,000 rows in 2 splits, 6 shards" in said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    job = json.loads((tmp_path / "out" / "job.json").read_text())
    assert job["runner"] == "flink"
    assert job["flink"]["version"] == "1.19.3"
    assert job["flink"]["restarts"] == 0
    assert job["metrics"]["read-rows"] == ROWS
    assert finish(start_writing(*words, cwd=tmp_path))[1].endswith("nothing to do\n")


def test_no_worker_outlives_its_job(cluster: Cluster) -> None:
    # Workers are kept for a minute in case that the job goes on.
    wait_for(lambda: not cluster.workers(), timeout_s=120, what="workers are gone")


def test_an_error_of_the_users_function_is_one_line(
    cluster: Cluster, trips: Path, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    words = (str(trips), "out", "--map", "failing.py:fails", *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 1
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert "trips.csv row 777: ValueError: no such city (at failing.py:4: " in line
    assert "java" not in said
    assert "Traceback" not in said


def test_a_module_and_its_neighbour_are_sent(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("id\n1\n2\n")
    (tmp_path / "mine.py").write_text(
        "import beside\ndef double(row):\n    return {'id': beside.twice(row['id'])}\n"
    )
    (tmp_path / "beside.py").write_text("def twice(number):\n    return 2 * number\n")
    words = ("few.csv", "out", "--map", "mine:double", *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert sorted(row["id"] for row in bt.load(tmp_path / "out").rows()) == [2, 4]


def test_a_killed_task_manager_costs_nothing_but_time(
    cluster: Cluster,
    trips: Path,
    expected: dict[str, bytes],
    slow_map: tuple[str, Path],
    tmp_path: Path,
) -> None:
    function, begun = slow_map
    words = (str(trips), "out", *SPLIT, "--map", function, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    wait_for(begun.exists, what="the map function is called")
    workers, victim = cluster.workers(), cluster.task_managers()[0]
    os.kill(victim, signal.SIGKILL)
    cluster.start_task_manager()
    code, said = finish(writing)
    assert code == 0, said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    assert json.loads((tmp_path / "out" / "job.json").read_text())["flink"]["restarts"] >= 1
    assert workers
    wait_for(lambda: len(cluster.task_managers()) == 2, what="another TaskManager is there")


def test_a_killed_python_worker_costs_nothing_but_time(
    cluster: Cluster,
    trips: Path,
    expected: dict[str, bytes],
    slow_map: tuple[str, Path],
    tmp_path: Path,
) -> None:
    function, begun = slow_map
    words = (str(trips), "out", *SPLIT, "--map", function, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    wait_for(begun.exists, what="the map function is called")
    os.kill(cluster.workers()[0], signal.SIGKILL)
    code, said = finish(writing)
    assert code == 0, said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []


def test_ctrl_c_cancels_the_job_and_the_same_command_goes_on(
    cluster: Cluster, trips: Path, slow_map: tuple[str, Path], tmp_path: Path
) -> None:
    function, begun = slow_map
    words = (str(trips), "out", *SPLIT, "--map", function, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    wait_for(begun.exists, what="the map function is called")
    writing.send_signal(signal.SIGINT)
    code, said = finish(writing, timeout_s=60)
    assert code == 130
    assert "is cancelled; nothing was published" in said
    assert cluster.jobs()[-1]["state"] == "CANCELED"
    assert not (tmp_path / "out" / "manifest.json").exists()
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert leftovers(tmp_path / "out") == []


def test_a_job_goes_on_without_its_killed_launcher_and_makes_room_for_the_next(
    cluster: Cluster,
    trips: Path,
    expected: dict[str, bytes],
    slow_map: tuple[str, Path],
    tmp_path: Path,
) -> None:
    function, begun = slow_map
    words = (str(trips), "out", *SPLIT, "--map", function, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    wait_for(begun.exists, what="the map function is called")
    writing.kill()
    finish(writing)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    assert [job["state"] for job in cluster.jobs()[-2:]] == ["CANCELED", "FINISHED"]


def test_a_detached_job_ends_by_itself(
    cluster: Cluster, trips: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    words = (str(trips), "out", *SPLIT, "--detach", *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert said.startswith("started flink job beam-tfrecord-")
    wait_for((tmp_path / "out" / "manifest.json").exists, what="the dataset is there")
    assert data_of(tmp_path / "out") == expected
    wait_for(lambda: leftovers(tmp_path / "out") == [], what="nothing is left")


def test_a_worker_command_that_does_not_start_is_one_line(
    cluster: Cluster, trips: Path, tmp_path: Path
) -> None:
    words = (str(trips), "out", *cluster.arguments, "--worker-command", "/no/such/boot")
    code, said = finish(start_writing(*words, cwd=tmp_path), timeout_s=30)
    assert code == 2
    assert (
        "error: cannot run the worker command '/no/such/boot' (no such file or directory)" in said
    )


def test_down_leaves_no_process(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "state") as running:
        pids = [
            int(text)
            for file in (tmp_path / "state" / "pid").iterdir()
            for text in file.read_text().split()
        ]
        assert len(pids) == 4
        assert all(map(is_running, pids))
        assert running.get("/v1/overview")["slots-total"] == 4
    assert not any(map(is_running, pids))
