"""Small jobs are planned where they are started: with fewer steps, and to the same dataset."""

import traceback
from pathlib import Path

import numpy as np
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.parquet.source import Parquet
from tests.helpers.datasets import sample_table, shard_hashes, write_parquet
from tests.sources.made_images import jpeg, write_tree


def make_parquet(place):
    return write_parquet(place, sample_table(500), files=3)


def make_csv(place):
    place.mkdir()
    for number in range(3):
        rows = "".join(f"{n},{n / 8},w{n % 5}\n" for n in range(number * 40, number * 40 + 40))
        (place / f"{number}.csv").write_text(f"id,x,word\n{rows}")
    return str(place)


def make_arrays(place):
    place.mkdir()
    np.savez(place / "a.npz", a=np.arange(50), b=np.ones((50, 3), np.float32))
    return str(place)


def make_pictures(place):
    write_tree(place, cat__a=jpeg(), cat__b=jpeg(1), dog__c=jpeg(2))
    return str(place)


KINDS = pytest.mark.parametrize(
    ("kind", "make"),
    [(Csv, make_csv), (Parquet, make_parquet), (Numpy, make_arrays), (Images, make_pictures)],
    ids=["csv", "parquet", "numpy", "images"],
)


@pytest.fixture
def scanned_by(monkeypatch):
    """Return a list that gets who scans a file, the launcher or a worker, at each scan."""
    found = []

    def watched(kind):
        scan = kind.scan

        def watching(self, chunk):
            # A worker processes bundles, on whatever thread the runner has it.
            is_worker = any(frame.name == "process_bundle" for frame in traceback.extract_stack())
            found.append("worker" if is_worker else "launcher")
            return scan(self, chunk)

        monkeypatch.setattr(kind, "scan", watching)

    for kind in (Csv, Parquet, Numpy, Images):
        watched(kind)
    return found


def by_workers(kind, monkeypatch):
    """Have workers look at the files however few they are."""
    made = Images.__post_init__

    def without(self):
        made(self)
        object.__setattr__(self, "quick_scans", 0)

    monkeypatch.setattr(Images, "__post_init__", without)
    monkeypatch.setattr(kind, "quick_scans", 0)


@pytest.mark.slow_after(1)
@KINDS
@pytest.mark.parametrize("mapped", [False, True], ids=["rows", "mapped"])
def test_the_dataset_is_the_same(
    kind,
    make,
    mapped,
    tmp_path,
    scanned_by,
    monkeypatch,
):
    source = make(tmp_path / "in")
    # A function of no known text cannot be resumed, so nothing is kept.
    options = {
        "splits": "a=0.5,b=0.5",
        "map": (lambda row: row) if mapped else None,
    }
    bt.write(source, tmp_path / "here", **options)
    assert set(scanned_by) == {"launcher"}
    by_workers(kind, monkeypatch)
    scanned_by.clear()
    bt.write(source, tmp_path / "there", **options)
    assert set(scanned_by) == {"worker"}
    assert shard_hashes(tmp_path / "here") == shard_hashes(tmp_path / "there")
    manifests = [(tmp_path / out / "manifest.json").read_bytes() for out in ("here", "there")]
    assert manifests[0] == manifests[1]


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
