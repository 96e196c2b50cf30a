"""Readers of a dataset that is replaced meanwhile: all old rows, all new ones, or an error.

`scripts/prove/run replaced` tries many more orders of the steps of reader and writer.
"""

from __future__ import annotations

import collections
import itertools
import pickle
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.dataset.load import load
from beam_tfrecord.dataset.make_index import index
from beam_tfrecord.errors import DataError, UsageError
from tests.dataset.replacing import NEW, READERS, TF_READERS, WAYS, Datasets, Writer, try_reader
from tests.helpers.made_datasets import make_dataset

REPLACED = "was replaced or removed after it was opened: load it again"


@pytest.fixture(scope="module", params=["plain", "gzip", "stage"])
def datasets(request, tmp_path_factory):
    return Datasets(tmp_path_factory.mktemp(request.param), request.param)


def ends_of(datasets, reader, way, seeds):
    """Return how often a reader ended how, while datasets of all sizes took the place."""
    news = NEW if way == "published" else ["same"]
    tries = itertools.product(news, range(seeds))
    return collections.Counter(try_reader(datasets, new, reader, seed, way) for new, seed in tries)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow_after(4)
@pytest.mark.parametrize("name", READERS)
def test_rows_are_never_of_two_datasets(datasets, name, way):
    ends = ends_of(datasets, READERS[name], way, seeds=8)
    assert ends["error"]
    assert way != "published" or set(ends) == {"old", "new", "error"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow_after(2)
@pytest.mark.parametrize("name", TF_READERS)
@pytest.mark.xdist_group("tensorflow")
def test_tensors_are_never_of_two_datasets(datasets, name, way):
    assert ends_of(datasets, TF_READERS[name], way, seeds=3 if way == "published" else 4)["error"]


def replace(out, new):
    """Publish a dataset over another."""
    Writer(new, out).finish()


def of(value: int) -> pa.Table:
    """Return rows that differ from those of another value in nothing that a size tells."""
    return pa.table({"of": np.full(60, value)})


@pytest.fixture
def two(tmp_path):
    """Return a dataset of 1, and one of 2 to put in its place: files of the same sizes."""
    make_dataset(tmp_path / "out", of(1), shards=3)
    make_dataset(tmp_path / "new", of(2), shards=3)
    for one in (tmp_path / "out").glob("*.tfrecord"):
        assert one.stat().st_size == (tmp_path / "new" / one.name).stat().st_size
    return tmp_path / "out", tmp_path / "new"


def test_a_shard_that_is_open_is_read_to_its_end(two):
    rows = load(two[0]).rows()
    seen = [next(rows)["of"]]
    replace(*two)
    seen += [next(rows)["of"] for _ in range(19)]
    with pytest.raises(DataError, match=REPLACED):
        next(rows)
    assert seen == [1] * 20
    assert {row["of"] for row in load(two[0]).rows()} == {2}


def test_a_manifest_that_was_touched_or_copied_is_the_same(two):
    rows = load(two[0]).rows()
    next(rows)
    manifest = two[0] / "manifest.json"
    shutil.copy(manifest, two[0] / "copy")
    (two[0] / "copy").replace(manifest)
    assert len(list(rows)) == 59


@pytest.mark.parametrize("change", ["touched", "linked", "copied"])
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_shard_that_says_the_same_is_the_same(change, compression, tmp_path):
    make_dataset(tmp_path / "out", of(1), shards=3, compression=compression)
    dataset = pickle.loads(pickle.dumps(load(tmp_path / "out")))
    for shard in (tmp_path / "out").glob("*.tfrecord*"):
        if change == "touched":
            shard.touch()
        elif change == "linked":
            (tmp_path / shard.name).hardlink_to(shard)
        else:
            shutil.copy(shard, tmp_path / "copy")
            (tmp_path / "copy").replace(shard)
    assert len(list(dataset.rows())) == 60


def test_a_handle_that_is_read_elsewhere_knows_what_it_opened(two):
    handle = pickle.dumps(load(two[0]))
    shard = sorted(two[0].glob("*.tfrecord"))[1]
    shutil.copy(two[1] / shard.name, shard)
    rows = pickle.loads(handle).rows()
    assert [next(rows)["of"] for _ in range(20)] == [1] * 20
    with pytest.raises(DataError, match=rf"{shard.name}' was changed or replaced after"):
        next(rows)


def test_a_shard_is_compared_behind_every_block(two):
    wide = pa.table({"of": np.arange(400), "text": ["x" * 100_000] * 400})
    make_dataset(two[0], wide, shards=1)
    blocks = load(two[0]).blocks()
    next(blocks)
    (shard,) = two[0].glob("*-of-00001.tfrecord")
    with open(shard, "r+b") as file:
        file.seek(-100, 2)
        file.write(b"y")
    with pytest.raises(DataError, match="was changed or replaced after it was opened"):
        next(blocks)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.xdist_group("tensorflow")
def test_an_epoch_after_the_replacement_is_an_error(two):
    import tensorflow as tf

    dataset = load(two[0]).tf(20)
    assert len(list(dataset)) == 3
    replace(*two)
    with pytest.raises(tf.errors.UnknownError, match=REPLACED):
        next(iter(dataset))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", ["published", "written over", "renamed over"])
@pytest.mark.xdist_group("tensorflow")
def test_examples_that_tensorflow_gets_by_index_are_of_one_dataset(change, two):
    import tensorflow as tf

    for path in two:
        index(path)
    examples = iter(load(two[0]).tf(shuffle=1, seed=1, repeat=None))
    seen = [int(next(examples)["of"]) for _ in range(5)]
    if change == "published":
        replace(*two)
    else:
        for shard in sorted(two[1].rglob("*.tfrecord")):
            copy = two[0] / shard.name if change == "written over" else two[0] / "copy"
            shutil.copyfile(shard, copy)
            copy.replace(two[0] / shard.name)
    with pytest.raises(tf.errors.UnknownError, match=r"replaced (or removed )?after it was opened"):
        seen += [int(next(examples)["of"]) for _ in range(500)]
    assert set(seen) == {1}


def test_parquet_files_written_over_in_place_are_an_error(tmp_path):
    for number in range(2):
        pq.write_table(of(1), tmp_path / f"{number}.parquet")
    rows = load(tmp_path).rows()
    assert next(rows)["of"] == 1
    pq.write_table(of(2), tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"1\.parquet' was changed or removed after it was opened"):
        list(rows)


def test_a_stage_without_its_manifest_is_none_while_a_job_is_there(tmp_path):
    pq.write_table(of(1), tmp_path / "part-00000.parquet")
    assert len(load(tmp_path)) == 60
    (tmp_path / ".tmp-0123456789abcdef").mkdir()
    with pytest.raises(UsageError, match="a job is writing there, or was stopped"):
        load(tmp_path)
