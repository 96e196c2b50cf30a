"""A job that ended early goes on where it was, and never with what is another job's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import RejectedRows, StorageError, TargetExists
from beam_tfrecord.job_state import checkpoints
from beam_tfrecord.jobs import compose
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.storage import lease
from tests.helpers import warm
from tests.helpers.datasets import ids, sample_table, shard_hashes, visible_names, write_parquet

ROOT = Path(__file__).parents[2]
SHUFFLED = {"splits": "train=0.8,test=0.2", "shards": 4}
SOURCE = {"shuffle": False}
ORDERS = pytest.mark.parametrize("options", [SHUFFLED, SOURCE], ids=["shuffled", "source"])


@pytest.fixture
def source(tmp_path):
    return write_parquet(tmp_path / "in", sample_table(1000), files=4)


@pytest.fixture(autouse=True)
def _scratch(tmp_path_factory, monkeypatch):
    """Keep what killed jobs leave with the files of the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("scratch")))


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    """Make every file a task of its own."""
    monkeypatch.setattr(compose, "_reader", compose._reader)
    make_tasks_small()


def make_tasks_small():
    """Make every file a task of its own, in this process."""
    reader = compose._reader

    def small(*arguments):
        made = reader(*arguments)
        made.task_bytes = 1
        return made

    compose._reader = small


@pytest.fixture
def reads(monkeypatch):
    """Give the names of the files that are read for their rows, in order."""
    seen = []
    read = Parquet.read

    def counting(self, unit, *arguments, **options):
        seen.append(unit.file.name)
        return read(self, unit, *arguments, **options)

    monkeypatch.setattr(Parquet, "read", counting)
    return seen


class Stop(Exception):
    """Ends a job at a moment of the test's choice."""


def stop_before_publishing(source, out, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_tfrecord.publish.last_step.publish_dataset", _stop)
        with pytest.raises(Exception, match="Stop"):
            bt.write(source, out, **options)
    assert visible_names(out) == []


def _stop(*_, **__):
    raise Stop("Stop")


def _interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [SHUFFLED, SOURCE, {**SHUFFLED, "filter": "id > 400"}],
    ids=["shuffled", "source", "filter"],
)
def test_what_is_done_is_not_read_again(source, tmp_path, reads, options):
    bt.write(source, tmp_path / "whole", **options)
    out = tmp_path / "out"
    stop_before_publishing(source, out, **options)
    reads.clear()
    bt.write(source, out, **options)
    assert reads == []
    assert shard_hashes(out) == shard_hashes(tmp_path / "whole")
    assert sorted(os.listdir(out)) == sorted(os.listdir(tmp_path / "whole"))
    jobs = [json.loads((path / "job.json").read_text()) for path in (out, tmp_path / "whole")]
    assert [(job["attempts"], job["rows_read"]) for job in jobs] == [(2, 1000), (1, 1000)]


@pytest.mark.slow
def test_what_an_interrupted_job_has_done_is_said(source, tmp_path, caplog):
    caplog.set_level("INFO", "beam_tfrecord")
    out = tmp_path / "out"
    stop_before_publishing(source, out)
    assert caplog.messages == []
    (directory,) = out.glob(".tmp-*")
    next(directory.glob("task-*")).unlink()
    bt.write(source, out)
    assert caplog.messages[0] == "continues an earlier attempt: 3 of 4 parts of the input done"


def test_an_interrupt_stops_threads_until_the_next_attempt(source, tmp_path):
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "run_pipelines", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            bt.write(source, out)
    (directory,) = out.glob(".tmp-*")
    assert (directory / "stopped").exists()
    assert bt.write(source, out).examples == 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "damage"),
    [(SHUFFLED, "cut"), (SHUFFLED, "mark cut"), (SHUFFLED, "mark gone"), (SOURCE, "gone")],
    ids=["cut", "mark cut", "mark gone", "shard gone"],
)
def test_work_that_is_not_whole_is_done_again(source, tmp_path, reads, options, damage):
    bt.write(source, tmp_path / "whole", **options)
    out = tmp_path / "out"
    stop_before_publishing(source, out, **options)
    (directory,) = out.glob(".tmp-*")
    for path in directory.glob("done-*"):
        path.unlink()
    pattern = "task-*" if "mark" in damage else "run-*" if options is SHUFFLED else "shard-*"
    victim = sorted(directory.glob(pattern))[0]
    if "gone" in damage:
        victim.unlink()
    else:
        os.truncate(victim, victim.stat().st_size - 1)
    reads.clear()
    bt.write(source, out, **options)
    assert len(reads) == 1
    assert shard_hashes(out) == shard_hashes(tmp_path / "whole")


@pytest.mark.slow
@ORDERS
def test_only_an_edited_file_is_read_again(source, tmp_path, reads, options):
    out, edited = tmp_path / "out", Path(source) / "part-002.parquet"
    table = pq.read_table(edited)
    # Nothing that makes the size depend on the values.
    plain = {"compression": "none", "use_dictionary": False}
    pq.write_table(table, edited, **plain)
    stop_before_publishing(source, out, **options)
    size = edited.stat().st_size
    swapped = table.set_column(0, "id", pa.array(np.arange(749, 499, -1)))
    pq.write_table(swapped, edited, **plain)
    assert edited.stat().st_size == size, "an edit that shows in the size proves nothing here"
    reads.clear()
    bt.write(source, out, **options)
    assert set(reads) == {"part-002.parquet"}
    bt.write(source, tmp_path / "whole", **options)
    assert shard_hashes(out) == shard_hashes(tmp_path / "whole")


def _write_map(path, number):
    path.write_text(f"def change(row):\n    return {{**row, 'extra': {number}}}\n")
    return f"{path}:change"


@pytest.mark.slow
def test_another_map_never_meets_old_work(source, tmp_path, reads):
    out = tmp_path / "out"
    function = _write_map(tmp_path / "m.py", 1)
    stop_before_publishing(source, out, map=function)
    (old,) = out.glob(".tmp-*")
    reads.clear()
    bt.write(source, out, map=_write_map(tmp_path / "m.py", 2))
    assert len(set(reads)) == 4
    assert {row["extra"] for row in bt.load(out).rows()} == {2}
    assert not old.exists()


@pytest.mark.slow
def test_without_the_types_of_mapped_rows_nothing_is_used_again(source, tmp_path, reads):
    out = tmp_path / "out"
    function = _write_map(tmp_path / "m.py", 300)
    stop_before_publishing(source, out, map=function)
    (types,) = out.glob(".tmp-*/kept-types")
    types.unlink()
    reads.clear()
    assert bt.write(source, out, map=function).examples == 1000
    assert len(reads) == 4


@pytest.mark.slow
def test_with_a_map_an_edited_file_lets_nothing_be_used_again(source, tmp_path, reads):
    out = tmp_path / "out"
    function = _write_map(tmp_path / "m.py", 1)
    stop_before_publishing(source, out, map=function)
    os.utime(Path(source) / "part-000.parquet", ns=(0, 0))
    reads.clear()
    bt.write(source, out, map=function)
    assert len(reads) == 4


@pytest.mark.slow
def test_a_lambda_keeps_nothing(source, tmp_path):
    out = tmp_path / "out"
    stop_before_publishing(source, out, map=lambda row: row)
    assert os.listdir(out) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value"),
    [("beam_tfrecord", "0.0"), ("format", "other"), ("stored", 0), ("fingerprint", "0")],
)
def test_work_of_another_version_is_dropped(source, tmp_path, reads, name, value):
    out = tmp_path / "out"
    stop_before_publishing(source, out)
    (path,) = out.glob(".tmp-*/plan.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    reads.clear()
    bt.write(source, out)
    assert len(reads) == 4


@pytest.mark.slow
def test_work_survives_a_start_of_the_machine_only_if_every_checksum_is_right(
    source, tmp_path, reads, monkeypatch
):
    out = tmp_path / "out"
    stop_before_publishing(source, out)
    (directory,) = out.glob(".tmp-*")
    for path in directory.glob("done-*"):
        path.unlink()
    runs = sorted(directory.glob("run-*"))
    data = bytearray(runs[0].read_bytes())
    data[30] ^= 1
    runs[0].write_bytes(data)
    monkeypatch.setattr(checkpoints, "boot_id", lambda: "another start")
    reads.clear()
    assert bt.write(source, out).examples == 1000
    assert len(reads) == 1


def fail_on_seven(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 100 == 7:
        raise ValueError("seven")
    return row


@pytest.mark.slow
def test_over_budget_all_is_listed_and_a_larger_budget_goes_on(source, tmp_path, reads):
    out = tmp_path / "out"
    options = {"map": fail_on_seven}
    with pytest.raises(RejectedRows, match=r"10 of 1,000 rows ") as raised:
        bt.write(source, out, max_rejects=9, **options)
    *_, command = str(raised.value).rpartition("to list them: beam-tfrecord head ")
    listed = pq.read_table(command).to_pylist()
    assert [(row["unit"][:15], row["row"] % 100) for row in listed][:3] == [
        ("part-000.parque", 7)
    ] * 3
    assert len(listed) == 10
    assert visible_names(out) == []
    reads.clear()
    with pytest.raises(RejectedRows, match=r"10 of 1,000 rows .*allowed: 0.9%"):
        bt.write(source, out, max_rejects="0.9%", **options)
    manifest = bt.write(source, out, max_rejects="1%", **options)
    assert reads == []
    assert manifest.rejects["rows"] == 10
    assert pq.read_table(out / "rejects" / "rejects-00000.parquet").to_pylist() == listed
    assert len(ids(out)) == 990


def drop_most(row: dict[str, Any]) -> Any:
    if row["id"] == 500:
        raise ValueError("x")
    return row if row["id"] % 100 == 0 else None


@pytest.mark.slow
def test_a_share_of_rejects_is_of_the_rows_read(source, tmp_path):
    assert bt.write(source, tmp_path / "a", map=drop_most, max_rejects="0.1%").examples == 9
    assert json.loads((tmp_path / "a" / "job.json").read_text())["rows_read"] == 1000


def fail_on_a_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.column("id")[0].as_py() == 250:
        raise ValueError("this one")
    return batch.append_column("twice", pa.array(batch.column("id").to_numpy() * 2))


def test_a_batch_whose_function_raises_is_rejected_row_by_row(source, tmp_path):
    manifest = bt.write(source, tmp_path / "out", map=fail_on_a_batch, max_rejects="any")
    rejects = pq.read_table(tmp_path / "out" / "rejects" / "rejects-00000.parquet").to_pylist()
    assert manifest.examples + len(rejects) == 1000
    assert manifest.schema.names == ("id", "x", "name", "twice")
    assert len(rejects) >= 100
    assert rejects[0]["code"] == "map-error"
    address = rejects[0]["address"]
    assert re.fullmatch(r"part-\d+\.parquet row \d+", address)
    start = f"{address}: ValueError: this one (at test_resume.py:"
    assert rejects[0]["message"].startswith(start)


def exhaust(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 600:
        raise MemoryError
    return row


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_memory_is_no_reject_and_what_is_done_is_kept(source, tmp_path, workers):
    beam_options = [f"--direct_num_workers={workers}", "--direct_running_mode=multi_threading"]
    with pytest.raises(StorageError, match=r"out of memory while writing .* nothing was publ"):
        bt.write(
            source,
            tmp_path / "out",
            map=exhaust,
            schema=bt.Schema.from_arrow(sample_table(1).schema),
            max_rejects="any",
            pipeline_options=beam_options,
        )
    assert visible_names(tmp_path / "out") == []


def test_two_jobs_at_one_target(source, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with lease(str(out)), pytest.raises(TargetExists, match="another job is writing to"):
        bt.write(source, out)
    assert bt.write(source, out).examples == 1000


KILLED = """
import os, signal, sys
import beam_tfrecord as bt
from beam_tfrecord.sources.parquet import Parquet
from tests.whole import test_resume

read, begun = Parquet.read, []

def dying(self, unit, *arguments, **options):
    begun.append(unit.file.name)
    if len(begun) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return read(self, unit, *arguments, **options)

Parquet.read = dying
test_resume.make_tasks_small()
bt.write(sys.argv[1], sys.argv[2], **test_resume.SHUFFLED)
"""


def test_a_killed_job_goes_on(source, tmp_path, reads):
    bt.write(source, tmp_path / "whole", **SHUFFLED)
    out = tmp_path / "out"
    # What the killed process leaves there goes with this test.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*warm.program(), "-c", KILLED, source, str(out)]
    killed = subprocess.run(command, cwd=ROOT, env=environment)
    assert killed.returncode == -signal.SIGKILL
    assert visible_names(out) == []
    reads.clear()
    bt.write(source, out, **SHUFFLED)
    assert len(reads) == 2
    assert shard_hashes(out) == shard_hashes(tmp_path / "whole")
