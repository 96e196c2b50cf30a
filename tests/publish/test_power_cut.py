"""A power cut: the disk has a prefix of the changes of names, and of files only what was synced.

That is what filesystems with a journal leave. A recorded job is cut after each change of a name.
"""

from __future__ import annotations

import os
import shutil
import threading

import pytest

import beam_tfrecord as bt

ROWS = 300
_CHANGES = ("replace", "rename", "remove", "unlink", "rmdir", "mkdir")


class Disk:
    """Records what is in a directory after each change of a name: bytes that are synced.

    Attributes:
        states: For each change the content by path; None for directories.
        synced_at: Number of changes when a directory was synced last: these are on the disk.
    """

    def __init__(self, directory, monkeypatch):
        self.directory = directory
        self.states = []
        self.synced_at = 0
        self._synced = {}
        self._lock = threading.RLock()
        for path in directory.rglob("*"):
            self._sync(path)
        for name in _CHANGES:
            monkeypatch.setattr(os, name, self._recorded(getattr(os, name)))
        fsync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda descriptor: self._synced_by(fsync, descriptor))

    def _recorded(self, change):
        def changed(*arguments, **options):
            with self._lock:
                result = change(*arguments, **options)
                self.states.append(self._state())
                return result

        return changed

    def _synced_by(self, fsync, descriptor):
        with self._lock:
            fsync(descriptor)
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            self._sync(path)
            if os.path.isdir(path):
                self.states.append(self._state())
                self.synced_at = len(self.states)

    def _sync(self, path):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                self._synced[os.stat(path).st_ino] = file.read()

    def _state(self):
        state = {}
        for base, directories, files in os.walk(self.directory):
            state |= dict.fromkeys(os.path.join(base, name) for name in directories)
            for name in files:
                path = os.path.join(base, name)
                state[path] = self._synced.get(os.stat(path).st_ino, b"")
        return state


def put_back(directory, state):
    shutil.rmtree(directory)
    directory.mkdir()
    for path, data in state.items():
        if data is None:
            os.makedirs(path, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [True, False])
def test_after_a_power_cut_the_old_dataset_is_there_or_the_new_one_or_the_command_goes_on(
    tmp_path, monkeypatch, shuffle
):
    trips, output = tmp_path / "trips.csv", tmp_path / "out"
    lines = ["id,fare", *(f"{i},{i * 7919 % 1000}" for i in range(ROWS)), "1,2,3"]
    trips.write_text("\n".join(lines) + "\n")
    options = {"shards": 3, "max_rejects": 1, "shuffle": shuffle, "overwrite": True}
    old = bt.write(trips, output, splits="old=0.5,older=0.5", max_rejects=1)
    with monkeypatch.context() as patch:
        disk = Disk(output, patch)
        new = bt.write(trips, output, **options)
    states = {tuple(sorted(state.items())): at for at, state in enumerate(disk.states)}
    found = set()
    for state, at in states.items():
        put_back(output, dict(state))
        there = None
        if (output / "manifest.json").exists():
            there = bt.Manifest.load(output)
            faults = [fault.message for fault in bt.verify(output).faults]
            # A dataset that is whole may have beside it what a later job removes.
            assert [message for message in faults if "remove it" not in message] == [], at
        found.add(there and there.fingerprint)
        if at + 1 >= disk.synced_at:
            assert there == new, at
        bt.write(trips, output, **options)
        assert bt.Manifest.load(output).fingerprint == new.fingerprint, at
        assert bt.verify(output).faults == (), at
    assert found == {None, old.fingerprint, new.fingerprint}
