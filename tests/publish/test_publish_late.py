"""Workers that were thought dead, and jobs that died: what others have published stays whole."""

import dataclasses
import errno
import os
import shutil
import threading
from pathlib import Path

import apache_beam as beam
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import StorageError, TargetExists
from beam_tfrecord.publish import last_step
from beam_tfrecord.publish import transaction as publishing
from beam_tfrecord.publish.publication import Note
from beam_tfrecord.storage import lease
from tests.publish.last_steps import Killed, files, killed_before, step_of

ROWS = 300


@pytest.fixture
def trips(tmp_path):
    """Return a CSV file."""
    path = tmp_path / "trips.csv"
    path.write_text("\n".join(["id,fare", *(f"{i},{i * 7919 % 1000}" for i in range(ROWS))]))
    return str(path)


@pytest.fixture
def step(trips, tmp_path, monkeypatch):
    """Return the last step of a job with four shards, before it begins."""
    made = step_of(lambda output: bt.write(trips, output, shards=4), tmp_path / "out", monkeypatch)
    made.begin()
    return made


def once(monkeypatch, owner, name, act):
    """Do something before the first call of a function, and then call it."""
    function = getattr(owner, name)

    def called(*arguments, **options):
        monkeypatch.setattr(owner, name, function)
        act()
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, called)


def test_a_worker_that_stood_still_leaves_what_the_next_try_has_published(step, monkeypatch):
    published = {}

    def next_try():
        step.try_once(clears=False)
        published.update(files(step.output))

    once(monkeypatch, Note, "save", next_try)
    step.try_once(clears=False)
    assert published
    assert {name: files(step.output)[name] for name in published} == published
    assert bt.verify(step.output).faults == ()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("noted", [True, False])
def test_a_step_whose_files_were_cleared_away_changes_nothing(noted, trips, tmp_path, monkeypatch):
    def made(seed):
        # One shard of the same rows has the same size, whatever the seed.
        return lambda output: bt.write(trips, output, shards=1, seed=seed, overwrite=True)

    output = tmp_path / "out"
    step = step_of(made(1), output, monkeypatch)
    step.begin()
    if noted:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(publishing, "_remove_old_manifest", _die)
            with pytest.raises(Killed):
                step.try_once()
    kept = tmp_path / "kept"
    (directory,) = output.glob(".tmp-*")
    shutil.copytree(directory, kept)
    shutil.rmtree(directory)
    made(2)(output)
    there = files(output)
    # The other job was killed while it cleared up.
    shutil.copytree(kept, directory, ignore=shutil.ignore_patterns("shard-*"))
    with pytest.raises(StorageError, match="is gone: another job has cleared away"):
        step.try_once()
    assert {name: files(output)[name] for name in there} == there
    assert bt.verify(output).faults == ()


def _die(*_):
    raise Killed


@pytest.mark.slow
def test_equal_shards_of_another_job_are_not_this_ones(tmp_path, monkeypatch):
    good = tmp_path / "good.csv"
    lines = ["id,fare", *(f"{i},{i}" for i in range(ROWS))]
    good.write_text("\n".join(lines))
    step = step_of(lambda output: write_rows(good, output), tmp_path / "out", monkeypatch)
    step.begin()
    kept = tmp_path / "kept"
    shutil.copytree(step.output, kept)
    write_rows(good, step.output)
    # Each try adds to the file of progress, which nothing but the display reads.
    there = {name: data for name, data in files(step.output).items() if "/progress-" not in name}
    shutil.copytree(kept, step.output, dirs_exist_ok=True)
    with pytest.raises(TargetExists):
        step.try_once(clears=False)
    assert {name: files(step.output)[name] for name in there} == there


def write_rows(source, output, **options):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        _ = (
            pipeline
            | bt.ReadFromCsv(str(source))
            | bt.WriteToTFRecord(f"{output}/", **{"shards": 2, **options})
        )


@pytest.mark.slow
def test_shards_of_every_try_are_cleared_away(step, trips, monkeypatch):
    with killed_before(step.output / "manifest.json"):
        step.try_once()
    # A runner that begins a job anew makes its shards again, with other temporary names.
    job, summary, pieces = step.task
    again = []
    for piece in pieces:
        copy = dataclasses.replace(piece, path=f"{piece.path}-again")
        shutil.copy(step.before / os.path.relpath(piece.path, step.output), copy.path)
        again.append(copy)
    second = dataclasses.replace(step, task=(job, summary, again))
    with killed_before(step.output / "data-00001-of-00004.tfrecord"):
        second.try_once()
    bt.write(trips, step.output, shards=3, seed=7)
    assert len(list(step.output.glob("*.tfrecord"))) == 3
    assert bt.verify(step.output).faults == ()


@pytest.mark.slow
def test_another_run_of_a_template_writes_over_what_looks_the_same(trips, tmp_path, monkeypatch):
    output = tmp_path / "out"
    step = step_of(
        lambda output: write_rows(Path(trips), output, overwrite=True), output, monkeypatch
    )
    shard = output / "data-00001-of-00002.tfrecord"
    shard.write_bytes(bytes(shard.stat().st_size))
    shutil.copytree(step.before, output, dirs_exist_ok=True)
    assert len(step.try_once()) == 2
    assert bt.verify(output).faults == ()


def test_a_sink_waits_for_another_one_to_end(step):
    held = lease(str(step.output))
    held.__enter__()
    timer = threading.Timer(0.5, held.__exit__, (None, None, None))
    timer.start()
    try:
        assert len(list(last_step._published(step.task))) == 4
    finally:
        timer.join()
    assert bt.verify(step.output).faults == ()


def test_an_output_in_use_for_long_is_no_fault_of_the_data(step, monkeypatch):
    monkeypatch.setattr(last_step, "LEASE_WAIT_S", 0.0)
    with lease(str(step.output)), pytest.raises(StorageError, match="another job is writing"):
        list(last_step._publish(b"", *step.task))
    assert len(list(last_step._publish(b"", *step.task))) == 4


@pytest.mark.slow
def test_a_job_that_fails_while_it_publishes_leaves_no_shards_of_its_own(
    trips, tmp_path, monkeypatch
):
    output = tmp_path / "out"
    bt.write(trips, output, shards=5)

    def fail(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("beam_tfrecord.publish.publication.dump_job", fail)
    # Of text that is not known nothing is kept for another attempt.
    with pytest.raises(StorageError, match="nothing was published"):
        bt.write(trips, output, map=eval("lambda row: row"), shards=3, overwrite=True)
    monkeypatch.undo()
    assert not list(output.glob("*-of-00003.tfrecord"))
    assert not list(output.glob(".tmp-*"))
    bt.write(trips, output, shards=4, overwrite=True)
    assert len(list(output.glob("*.tfrecord"))) == 4
    assert bt.verify(output).faults == ()


def test_verify_takes_files_of_a_job_that_publishes_for_no_fault(tmp_path):
    bt.write([{"id": 1}], tmp_path / "out")
    name = "data-g2-00000-of-00001.tfrecord"
    (tmp_path / "out" / ".tmp-abc").mkdir()
    Note((("shard-1", name, 3),), (), frozenset()).save(str(tmp_path / "out" / ".tmp-abc"))
    (tmp_path / "out" / name).write_text("abc")
    found = bt.verify(tmp_path / "out")
    assert found.ok
    assert [note.split()[0] for note in found.notes] == [name]
