"""What is checked before a job is handed to Flink: each fault is one line that says what to do."""

import argparse
import json
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners import flink_cluster
from beam_tfrecord.runners.flink import cancel
from beam_tfrecord.runners.flink_cluster import Cluster, parse_address
from tests.helpers.emulators.serving import Handler, serving

# As Flink 1.19.3 answers, shortened to what is asked for.
ANSWERS = {
    "/v1/overview": {
        "taskmanagers": 2,
        "slots-total": 4,
        "slots-available": 3,
        "flink-version": "1.19.3",
    },
    "/v1/taskmanagers": {
        "taskmanagers": [
            {"path": "pekko.tcp://flink@127.0.0.1:37/user/rpc/taskmanager_0", "slotsNumber": 2},
            {"path": "pekko.tcp://flink@127.0.0.1:38/user/rpc/taskmanager_0", "slotsNumber": 3},
        ]
    },
}


# What answers differently from time to time: the first answer of a list, which is then removed.
_IN_TURN = ("/v1/jobs/overview", "/v1/jobs/7?mode=cancel")


class _Handler(Handler):
    # Answers without their size end with the connection.
    protocol_version = "HTTP/1.0"
    answers: dict[str, Any]

    def do_GET(self):  # noqa: N802
        answer = self.answers.get(self.path)
        if isinstance(answer, list) and self.path in _IN_TURN:
            answer = answer.pop(0)
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def do_PATCH(self):  # noqa: N802
        self.do_GET()


@pytest.fixture
def flink(monkeypatch):
    """Give a stand-in for Flink, and its answers, to be changed."""
    answers = json.loads(json.dumps(ANSWERS))
    monkeypatch.setattr(flink_cluster, "_SLOT_S", 0.0)
    with serving(_Handler, answers=answers) as port:
        yield Cluster(f"127.0.0.1:{port}"), answers


def test_a_job_server_in_place_of_flink_is_one_readable_line():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                # As a gRPC server begins.
                connection.sendall(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00")
                connection.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UsageError) as raised:
            flink_cluster.wait_for_capacity(Cluster(f"127.0.0.1:{server.getsockname()[1]}"))
        thread.join()
    assert "not Flink: are --flink-master and --job-endpoint exchanged?" in raised.value.message
    assert raised.value.message.isprintable()


@pytest.mark.parametrize("words", [["--flink-master=h:1"], ["--flink-master", "h:1"]])
def test_a_pipeline_takes_the_flags_of_the_command(words, monkeypatch):
    def refuse(name, address):
        raise UsageError(f"{name} is {address}")

    monkeypatch.setattr(flink_cluster, "cluster_of", lambda at: refuse("master", at))
    for spelled in (words, [word.replace("-master", "_master") for word in words]):
        with pytest.raises(UsageError, match="master is h:1"):
            bt.pipeline("flink", options=spelled)
        with pytest.raises(UsageError, match="master is h:1"):
            bt.write("in.csv", "out", runner="flink", pipeline_options=spelled)


def test_there_is_no_cluster_to_end(tmp_path):
    down = Path(__file__).parents[2] / "pipelines" / "flink" / "down"
    ran = subprocess.run([sys.executable, down, tmp_path], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (2, f"down: no cluster in {tmp_path}\n")


def test_the_capacity_of_a_cluster(flink):
    assert flink_cluster.wait_for_capacity(flink[0]) == flink_cluster.Capacity("1.19.3", 3, 2)


def test_a_job_is_cancelled_though_its_server_hangs_and_flink_misses_requests(flink, monkeypatch):
    monkeypatch.setattr("beam_tfrecord.runners.flink._LOOK_S", 0.0)

    def overview(state):
        return {"jobs": [{"name": "trips", "jid": "7", "state": state}]}

    states = [None, overview("RUNNING"), overview("RUNNING"), None, overview("CANCELED")]
    flink[1]["/v1/jobs/overview"] = states
    # The first request to cancel the job is missed.
    flink[1]["/v1/jobs/7?mode=cancel"] = [None, {}]
    end = threading.Event()
    cancel(flink[0], "trips", argparse.Namespace(cancel=end.wait))
    assert flink[1]["/v1/jobs/7?mode=cancel"] == states == []
    end.set()


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("/v1/overview", {"slots-available": 0}, "all slots of .* are taken: wait for other jobs"),
        ("/v1/overview", {"slots-total": 0}, "no TaskManager is registered at .*: start some"),
        ("/v1/overview", {"flink-version": "1.9.0"}, "Flink 1.9.0 is not a version that Beam"),
        ("/v1/taskmanagers", {"taskmanagers": []}, "no TaskManager is registered"),
    ],
)
def test_a_cluster_without_room_is_refused(flink, path, change, message):
    flink[1][path] |= change
    with pytest.raises(UsageError, match=message):
        flink_cluster.wait_for_capacity(flink[0])


def test_addresses_are_taken_as_people_write_them():
    for text in ("localhost:8081", "http://localhost:8081", "http://localhost:8081/"):
        assert parse_address(text, "--flink-master") == "localhost:8081"
    for text in ("localhost", ":8081", "localhost:port", "http://"):
        with pytest.raises(UsageError, match=r"--flink-master .* is not an address: write HOST:PO"):
            parse_address(text, "--flink-master")


@pytest.mark.parametrize(
    ("endpoint", "name", "message"),
    [
        (None, None, r"org\.apache\.beam:beam-runners-flink-1\.19-job-server:"),
        ("localhost:1", None, "cannot reach the job server at localhost:1: start it"),
        (None, "missing/no.jar", r"there is no job server '.*no\.jar': correct"),
        (None, "beam-runners-flink-1.20-job-server-2.77.0.jar", r"is for Flink 1\.20, but the cl"),
    ],
)
def test_a_job_server_that_does_not_suit_is_told(tmp_path, endpoint, name, message):
    jar = tmp_path / name if name else None
    if jar and jar.parent.exists():
        jar.write_bytes(b"")
    with pytest.raises(UsageError, match=message):
        flink_cluster.check_job_server(endpoint, str(jar) if jar else None, "1.19.3")


def test_a_missing_java_is_told(tmp_path, monkeypatch):
    (tmp_path / "server.jar").write_bytes(b"")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no java on this machine: install a Java"):
        flink_cluster.check_job_server(None, str(tmp_path / "server.jar"), "1.19.3")


def program(path, text):
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


SERVER = """import signal, socket, sys
(port,) = (int(word.partition("=")[2]) for word in sys.argv if word.startswith("--job-port="))
with socket.create_server(("localhost", port)):
    signal.pause()"""


def test_a_job_server_runs_until_the_block_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path / "java", SERVER)
    with flink_cluster.job_server("server.jar", Cluster("localhost:1"), None) as address:
        assert flink_cluster.answers(address)
    assert not flink_cluster.answers(address)
    program(tmp_path / "java", "raise SystemExit(3)")
    with (
        pytest.raises(UsageError, match=r"job server 'server\.jar' ended at once with code 3: it"),
        flink_cluster.job_server("server.jar", Cluster("localhost:1"), None),
    ):
        pass
