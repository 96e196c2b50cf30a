"""The progress of a running job follows from the files in its temporary directory."""

import errno
import time
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import beam_tfrecord as bt
from beam_tfrecord.base.progress import Progress
from beam_tfrecord.job_state import progress_files
from beam_tfrecord.job_state.progress_files import (
    PUBLISHING,
    READING,
    SCANNING,
    TYPES,
    UNITS,
    WRITING,
    ProgressLog,
    watch,
)
from beam_tfrecord.runners.launch_settings import Launch, launching, say_start

ROWS = 50_000


class Reports(Progress):
    """Collects the reports of progress: (phase, done, total, unit, rejects)."""

    def __init__(self):
        super().__init__(False)
        self.all = []

    def update(self, phase, done, total=None, *, unit="B", rejects=0, later=0.0):
        self.all.append((phase, done, total, unit, rejects))

    def wait_for(self, is_wanted):
        until_s = time.monotonic() + 10
        while time.monotonic() < until_s:
            if self.all and is_wanted(self.all[-1]):
                return self.all[-1]
            time.sleep(0.001)
        pytest.fail(f"last report: {self.all[-1:]}")

    def last(self, phase):
        return [report for report in self.all if report[0] == phase][-1]


@pytest.fixture(autouse=True)
def no_delay(monkeypatch):
    monkeypatch.setattr(progress_files, "INTERVAL_S", 0.001)
    monkeypatch.setattr(progress_files, "ENTRY_EVERY_S", 0.0)


def test_a_job_begins_with_no_entry(tmp_path):
    for directory in (tmp_path, tmp_path / "not made yet"):
        reports = Reports()
        with watch(str(directory), 1234, reports):
            assert reports.wait_for(bool) == ("starting", 0, None, "B", 0)
            with launching(Launch(progress=reports)):
                say_start("loading TensorFlow")
            reports.wait_for(lambda report: report == ("loading TensorFlow", 0, None, "B", 0))


def test_entries_add_up_and_the_last_phase_counts(tmp_path):
    reports = Reports()
    reading, other = (ProgressLog(str(tmp_path), READING) for _ in range(2))
    types = ProgressLog(str(tmp_path), TYPES)
    with watch(str(tmp_path), 1000, reports):
        # A total that is known early does not begin its phase.
        reading.add(total=10_000)
        types.add()
        reports.wait_for(lambda report: report[:2] == (TYPES, 0))
        types.add(500, total=1000)
        reports.wait_for(lambda report: report == (TYPES, 500, 1000, "B", 0))
        reading.add(1_000)
        other.add(200, rejects=7)
        reports.wait_for(lambda report: report == (READING, 1_200, 10_000, "row", 7))
        # A second pipeline of the job begins again.
        types.add(500)
        reports.wait_for(lambda report: report == (TYPES, 1_000, 1000, "B", 7))


def test_a_full_disk_and_no_directory_do_not_matter(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    ProgressLog(str(tmp_path / "gone"), READING).add(1)
    ProgressLog(None, READING).add(1)
    monkeypatch.setattr("builtins.open", full)
    ProgressLog(str(tmp_path), READING).add(1)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def table():
    return pa.table({"id": range(ROWS), "word": [f"word {i % 7}" for i in range(ROWS)]})


def fail_on_some(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] % 1000 == 0:
        raise ValueError("no")
    return row


@pytest.mark.slow
def test_a_job_reports_each_phase_to_its_end(tmp_path, table):
    pa.csv.write_csv(table, tmp_path / "a.csv")
    nbytes = (tmp_path / "a.csv").stat().st_size
    # The file is copied, so that it is too large to be scanned by the launcher.
    for number in range(3):
        (tmp_path / f"a{number}.csv").write_bytes((tmp_path / "a.csv").read_bytes())
    reports = Reports()
    bt.write(
        str(tmp_path / "*.csv"),
        str(tmp_path / "out"),
        map=fail_on_some,
        max_rejects="1%",
        schema=bt.Schema.from_arrow(table.schema),
        progress=reports,
    )
    phases = [report[0] for report in reports.all]
    assert phases.index(SCANNING) < phases.index(READING) < phases.index(WRITING)
    assert set(phases) <= {"starting", *UNITS}
    # A look comes before the last entries of a phase, or after them.
    for phase, total in (
        (SCANNING, 4 * nbytes),
        (READING, 4 * ROWS),
        (WRITING, 4 * ROWS - 4 * ROWS // 1000),
    ):
        _, done, of_all, _, _ = reports.last(phase)
        assert 0 <= done <= total
        assert of_all == total
    assert reports.last(PUBLISHING if PUBLISHING in phases else WRITING)[4] == 4 * ROWS // 1000


@pytest.mark.slow
def test_verify_and_repair_report_their_bytes(tmp_path, table):
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    manifest = bt.write(str(tmp_path / "a.parquet"), str(tmp_path / "out"))
    reports = Reports()
    assert bt.verify(str(tmp_path / "out"), progress=reports).ok
    assert reports.all[0] == ("verifying", 0, manifest.bytes, "B", 0)
    assert reports.all[-1] == ("verifying", manifest.bytes, manifest.bytes, "B", 0)
    bt.repair(str(tmp_path / "out"), str(tmp_path / "repaired"), progress=reports)
    assert reports.all[-1] == ("repairing", manifest.bytes, manifest.bytes, "B", 0)
    stage = bt.extract(str(tmp_path / "a.parquet"), str(tmp_path / "stage"))
    assert bt.verify(str(tmp_path / "stage"), progress=reports).ok
    assert reports.all[-1] == ("verifying", stage.bytes, stage.bytes, "B", 0)
