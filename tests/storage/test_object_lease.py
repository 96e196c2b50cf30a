import dataclasses
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import LeaseLost, TargetExists
from beam_tfrecord.storage import object_lease
from beam_tfrecord.storage.object_lease import this_process
from tests.storage.conftest import contend


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(object_lease, "RENEWAL_SECONDS", 0.1)
    monkeypatch.setattr(object_lease, "EXPIRY_SECONDS", 0.6)


def elsewhere(**changes):
    """Return a lease of another machine."""
    return dataclasses.replace(this_process(), machine="elsewhere 1 2", **changes)


def test_one_job_holds_a_directory(store):
    out = f"{store.url}/out"
    with storage.lease(out) as held:
        held.check()
        pickle.loads(pickle.dumps(held)).check()
        message = rf"another job is writing to '{out}' \(process \d+ on"
        with pytest.raises(TargetExists, match=message), storage.lease(out):
            pytest.fail("two jobs hold one directory")
        with storage.lease(f"{store.url}/other"):
            held.check()
    assert list(storage.list_files(store.url)) == []
    with pytest.raises(LeaseLost):
        held.check()
    with storage.lease(out):
        pass


def test_two_jobs_never_hold_one_directory_at_a_time(store):
    assert contend(f"{store.url}/out", 3) == (0, 9)


HOLD = """
import sys
from beam_tfrecord.storage import lease
with lease(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_killed_job_of_this_machine_is_followed_at_once(store):
    out = f"{store.url}/out"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, out],
        env=store.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"held\n"
    with pytest.raises(TargetExists, match=f"process {process.pid} on"), storage.lease(out):
        pytest.fail("the other job lives")
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert storage.exists(f"{out}/.lock")
    with storage.lease(out) as held:
        held.check()


def test_a_number_that_another_process_has_now_is_not_the_holder(store):
    gone = dataclasses.replace(this_process(), started="12")
    storage.put(f"{store.url}/out/.lock", gone.dumps())
    with storage.lease(f"{store.url}/out") as held:
        held.check()


def test_a_lease_that_nobody_renews_expires(store, fast, caplog):
    storage.put(f"{store.url}/out/.lock", elsewhere().dumps())
    began = time.monotonic()
    with storage.lease(f"{store.url}/out") as held:
        held.check()
    assert time.monotonic() - began >= 0.6
    assert "watching for up to 1 s whether its job still lives" in caplog.text


def test_a_lease_that_is_renewed_elsewhere_is_respected(store, fast):
    path = f"{store.url}/out/.lock"
    storage.put(path, elsewhere().dumps())
    renewed = threading.Timer(0.3, lambda: storage.put(path, elsewhere(renewals=1).dumps()))
    renewed.start()
    with (
        pytest.raises(TargetExists, match=rf"process {os.getpid()} on elsewhere\)"),
        storage.lease(f"{store.url}/out"),
    ):
        pytest.fail("the other job lives")
    renewed.join()


def test_a_lease_that_changes_all_the_time_is_watched_with_pauses(monkeypatch):
    class Changing:
        puts = 0

        def put_matching(self, *_):
            self.puts += 1
            assert self.puts < 100

        def status(self, _):
            return None

    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise InterruptedError

    monkeypatch.setattr(time, "sleep", pause)
    with pytest.raises(InterruptedError), object_lease.held(Changing(), "x/out/.lock"):
        pytest.fail("nobody holds it")
    assert min(pauses) > 0


def test_a_lease_is_renewed_while_it_is_held(store, fast):
    with storage.lease(f"{store.url}/out") as held:
        first = storage.status(held.path)
        deadline = time.monotonic() + 20
        while storage.status(held.path) == first and time.monotonic() < deadline:
            time.sleep(0.02)
        assert storage.status(held.path) != first
        held.check()


@pytest.mark.parametrize("left", [b"", b"not a lease", b'{"token": 1}'])
def test_what_is_no_lease_expires_too(store, fast, left):
    storage.put(f"{store.url}/out/.lock", left)
    with storage.lease(f"{store.url}/out") as held:
        held.check()


def test_a_stolen_lease_is_noticed_and_left_alone(store, fast, caplog):
    with storage.lease(f"{store.url}/out") as held:
        thief = elsewhere()
        storage.put(held.path, thief.dumps())
        with pytest.raises(LeaseLost, match="another job has taken the output over"):
            held.check()
        deadline = time.monotonic() + 20
        while "has taken" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.02)
    assert f"another job has taken {held.path} over" in caplog.text
    assert storage.read_bytes(held.path) == thief.dumps()
