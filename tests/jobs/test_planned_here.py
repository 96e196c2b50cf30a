"""Small jobs are planned where they are started: with fewer steps, and to the same dataset."""

import traceback
from pathlib import Path

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.parquet import Parquet
from tests.helpers.datasets import sample_table, shard_hashes, write_parquet


@pytest.fixture
def scanned_by(monkeypatch):
    """Return a list that gets who scans a file, the launcher or a worker, at each scan."""
    found = []
    scan = Parquet.scan

    def watching(self, chunk):
        # A worker processes bundles, on whatever thread the runner has it.
        is_worker = any(frame.name == "process_bundle" for frame in traceback.extract_stack())
        found.append("worker" if is_worker else "launcher")
        return scan(self, chunk)

    monkeypatch.setattr(Parquet, "scan", watching)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [False, True])
def test_the_dataset_is_the_same(mapped, tmp_path, scanned_by, monkeypatch):
    source = write_parquet(tmp_path / "in", sample_table(500), files=3)
    # A function of no known text cannot be resumed, so nothing is kept.
    options = {"splits": "a=0.5,b=0.5", "map": (lambda row: row) if mapped else None}
    bt.write(source, tmp_path / "here", **options)
    assert set(scanned_by) == {"launcher"}
    monkeypatch.setattr(Parquet, "quick_scans", 0)
    scanned_by.clear()
    bt.write(source, tmp_path / "there", **options)
    assert set(scanned_by) == {"worker"}
    assert shard_hashes(tmp_path / "here") == shard_hashes(tmp_path / "there")


def test_many_files_are_looked_at_by_workers(tmp_path, scanned_by):
    source = write_parquet(tmp_path / "in", sample_table(500), files=Parquet.quick_scans + 1)
    bt.write(source, tmp_path / "out")
    assert set(scanned_by) == {"worker"}


@pytest.mark.parametrize("count", [1, 20])
def test_a_damaged_file_is_one_line_wherever_it_is_found(count, tmp_path):
    source = write_parquet(tmp_path / "in", sample_table(500), files=count)
    victim = sorted(Path(source).rglob("*.parquet"))[-1]
    victim.write_bytes(victim.read_bytes()[:-20])
    with pytest.raises(DataError, match=victim.name) as raised:
        bt.write(source, tmp_path / "out")
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "out").iterdir()) == []
