"""A disk that is full at any phase of a job: one clear line, nothing published, and it goes on."""

import gc
import os
import shutil
import subprocess

import pytest

import beam_tfrecord as bt
from beam_tfrecord.check.repair import repair
from beam_tfrecord.errors import StorageError
from tests.helpers.datasets import sample_table, shard_hashes, write_parquet
from tests.helpers.made_datasets import make_dataset

ROWS = 20_000
SHUFFLED = {"splits": "train=0.8,test=0.2", "shards": 4}
SOURCE = {"shuffle": False, "shard_size": "300kB"}
KB = 1000


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_parquet(tmp_path_factory.mktemp("input"), sample_table(ROWS), group_rows=5_000)


@pytest.fixture
def disk(tmp_path):
    """Yield a directory that is a disk of its own, of a size to be set."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here: that takes root")
    gc.disable()  # Nothing may wait for it to give its room back.
    yield place
    gc.enable()
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def resize(disk, size_bytes):
    command = ["mount", "-o", f"remount,size={size_bytes}", str(disk)]
    subprocess.run(command, check=True, capture_output=True)


def failure(work):
    try:
        work()
    except Exception as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize("options", [SHUFFLED, SOURCE], ids=["shuffled", "source"])
def test_a_full_disk_at_any_phase(source, tmp_path, disk, options):
    bt.write(source, tmp_path / "whole", **options)
    whole = shard_hashes(tmp_path / "whole")
    out = disk / "out"
    resize(disk, 10 * 2**20)
    old = bt.write(source, out, seed=1, **options)
    used = shutil.disk_usage(disk).used
    failed = 0
    # From a disk on which nothing fits beside the old dataset to one on which all does: the job
    # goes on each time with what it has, and ends in each of its phases.
    for room in range(0, 4 * used, used // 6):
        resize(disk, used + 32 * KB + room)
        error = failure(lambda: bt.write(source, out, overwrite=True, **options))
        if error is None:
            break
        failed += 1
        assert type(error) is StorageError
        assert error.exit_code == 1
        assert str(error).startswith(f"no space left in {str(out)!r} (no space left on device)")
        assert "\n" not in str(error)
        if (out / "manifest.json").exists():
            assert bt.load(out).manifest == old
    else:
        pytest.fail("there never was room enough")
    assert failed >= 3
    assert shard_hashes(out) == whole
    assert not [name for name in os.listdir(out) if name.startswith(".")]


def test_a_full_disk_during_a_repair(tmp_path, disk):
    written = make_dataset(tmp_path / "whole", sample_table(3_000), shards=4)
    shard = tmp_path / "whole" / written.shards[0].path
    shard.write_bytes(shard.read_bytes()[:-1])
    failed = 0
    for room in range(0, 2 * written.bytes, written.bytes // 4):
        resize(disk, 32 * KB + room)
        error = failure(lambda: repair(tmp_path / "whole", disk / "out"))
        if error is None:
            break
        failed += 1
        assert type(error) is StorageError
        assert str(error).startswith(f"no space left in {str(disk / 'out')!r}")
        assert "\n" not in str(error)
        assert not (disk / "out" / "manifest.json").exists()
    else:
        pytest.fail("there never was room enough")
    assert failed >= 3
    assert bt.load(disk / "out").manifest.examples == 2_999
