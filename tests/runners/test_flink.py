"""Jobs on a real Flink cluster: the bytes of a local run, through kills, cancels and faults."""

import json
import signal

from tests.helpers.marks import needs
from tests.runners.flink_cluster import (
    SPLIT,
    data_of,
    finish,
    is_running,
    leftovers,
    running_cluster,
    start_writing,
    wait_for,
)

pytestmark = needs("flink")

FAILING = """
def fails(row):
    if row["id"] == 777:
        raise ValueError("no such city")
    return row
"""


def test_the_bytes_are_those_of_a_local_run(cluster, trips, expected, tmp_path):
    words = (str(trips), "out", *SPLIT, *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert "wrote 250,000 rows in 2 splits, 6 shards" in said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    job = json.loads((tmp_path / "out" / "job.json").read_text())
    assert job["runner"] == "flink"
    assert job["flink"]["version"] == "1.19.3"
    assert job["flink"]["restarts"] == 0
    assert job["metrics"]["read-rows"] == 250_000
    assert finish(start_writing(*words, cwd=tmp_path))[1].endswith("nothing to do\n")


def test_appended_rows_are_those_of_a_local_run(cluster, trips, tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("id,fare,city\n" + "".join(f"{i},{i / 7},town-{i % 5}\n" for i in range(999)))
    for output, runner in (("here", ()), ("there", cluster.arguments)):
        words = (str(trips), output, *SPLIT, "--stratify", "city", *runner)
        code, said = finish(start_writing(*words, cwd=tmp_path))
        assert code == 0, said
        words = (str(trips), str(new), output, *runner)
        code, said = finish(start_writing(*words, cwd=tmp_path, command="append"))
        assert said.startswith(f"appended 999 rows to {output}"), said
    assert data_of(tmp_path / "there") == data_of(tmp_path / "here")
    assert leftovers(tmp_path / "there") == []


def test_an_error_of_the_users_function_is_one_line(cluster, trips, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    words = (str(trips), "out", "--map", "failing.py:fails", *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 1
    assert "trips.csv:779: ValueError: no such city (at failing.py:4 in fails: " in said
    assert "java" not in said
    assert "Traceback" not in said


def test_a_module_that_workers_lack_is_one_line(cluster, tmp_path):
    (tmp_path / "few.csv").write_text("id\n1\n2\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "only_here.py").write_text("")
    (tmp_path / "mine.py").write_text("import only_here\ndef keep(row):\n    return row\n")
    words = ("few.csv", "out", "--map", "mine.py:keep", *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path, path=tmp_path / "elsewhere")
    code, said = finish(writing)
    assert code == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert line.startswith(
        "error: a worker cannot load your code (cannot import map 'mine.py:keep'"
    )
    assert "No module named 'only_here'" in line
    assert cluster.jobs()[-1]["state"] == "CANCELED"


def test_ctrl_c_cancels_the_job_and_the_same_command_goes_on(cluster, trips, gate, tmp_path):
    words = (str(trips), "out", *SPLIT, *gate.words, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    gate.met()
    writing.send_signal(signal.SIGINT)
    code, said = finish(writing)
    assert code == 130
    assert "is cancelled; nothing was published" in said
    assert cluster.jobs()[-1]["state"] == "CANCELED"
    assert not (tmp_path / "out" / "manifest.json").exists()
    gate.open()
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert leftovers(tmp_path / "out") == []


def test_a_job_goes_on_without_its_killed_launcher_and_makes_room_for_the_next(
    cluster, trips, expected, gate, tmp_path
):
    words = (str(trips), "out", *SPLIT, *gate.words, *cluster.arguments)
    writing = start_writing(*words, cwd=tmp_path)
    gate.met()
    writing.kill()
    finish(writing)
    first = cluster.jobs()[-1]["jid"]
    again = start_writing(*words, cwd=tmp_path)
    wait_for(lambda: cluster.state_of(first) == "CANCELED", what="the first job is cancelled")
    gate.open()
    code, said = finish(again)
    assert code == 0, said
    assert data_of(tmp_path / "out") == expected
    assert leftovers(tmp_path / "out") == []
    assert cluster.jobs()[-1]["state"] == "FINISHED"


def test_a_detached_job_ends_by_itself(cluster, trips, expected, tmp_path):
    words = (str(trips), "out", *SPLIT, "--detach", *cluster.arguments)
    code, said = finish(start_writing(*words, cwd=tmp_path))
    assert code == 0, said
    assert said.startswith("started flink job beam-tfrecord-")
    wait_for((tmp_path / "out" / "manifest.json").exists, what="the dataset is there")
    assert data_of(tmp_path / "out") == expected
    wait_for(lambda: leftovers(tmp_path / "out") == [], what="nothing is left")


def test_down_leaves_no_process(tmp_path):
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
