"""Damaged or hostile shards and indexes: `take` returns the right rows, or one line says why not.

`scripts/prove/run index` does the same at many more places.
"""

import os
import random
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from tests.dataset.index_damage import (
    ENTRY,
    ROWS,
    double,
    drop,
    make,
    read_damaged,
    reorder,
    shift,
    unlisted,
)
from tests.helpers.effort import examples

MOST_BYTES = 4 * 2**20


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hostile")
    files = make(directory)
    return directory / "out", files, bt.load(directory / "out").arrow()["id"].to_pylist()


@settings(max_examples=examples(600, 12), deadline=None)
@given(seed=st.integers(0, 2**64 - 1), is_listed=st.booleans())
def test_a_damaged_file_gives_the_right_rows_or_one_line(dataset, seed, is_listed):
    out, *sound = dataset
    read_damaged(out if is_listed else out.with_name("unlisted"), *sound, random.Random(seed))


def damaged(out, files, name, data):
    """Return the error of reading all rows of a dataset with a damaged file."""
    (out / name).write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(DataError) as caught:
            bt.load(out).take(range(ROWS))
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
        (out / name).write_bytes(files[name])
    return str(caught.value)


def test_a_damaged_index_names_itself(dataset):
    out, files, _ = dataset
    shard = max(files)
    index = f"_index/idx-{shard.removesuffix('.tfrecord')}"
    data = files[index]
    cure = f"make indexes again with: beam-tfrecord index {out}/"
    draw = random.Random(1)
    assert damaged(out, files, index, data[:-1]) == (
        f"'{out / index}' is not the index of a shard, or is cut off: {cure}"
    )
    assert damaged(out, files, index, data[ENTRY // 2 :]) == (
        f"'{out / index}' is damaged: its size is impossible: {cure}"
    )
    for change in (drop, double, reorder, shift):
        new = change(data, draw)
        assert new != data
        assert damaged(out, files, index, new) == (
            f"'{out / index}' is damaged, since its hash is not that in the manifest: {cure}"
        )
    assert damaged(out, files, shard, files[shard][:-1]).startswith(
        f"'{out / shard}' has {len(files[shard]) - 1:,} bytes but the manifest says"
    )


def test_an_index_that_contradicts_itself_says_where(dataset, tmp_path):
    directory = tmp_path / "out"
    out = unlisted(dataset[0], directory)
    index = min(name for name in dataset[1] if name.startswith("_index"))
    data = dataset[1][index]
    number, position = struct.unpack_from("<QQ", data, 5 * ENTRY)
    cure = f"make indexes again with: beam-tfrecord index {out}/"
    for entry in ((number, 0), (number, 2**63), (2**64 - 1, position)):
        new = data[: 5 * ENTRY] + struct.pack("<QQ", *entry) + data[5 * ENTRY + 16 :]
        assert damaged(out, dataset[1], index, new).startswith(
            f"'{out / index}' is damaged at byte {4 * ENTRY} (record "
        )
    assert damaged(out, dataset[1], index, data[ENTRY:]) == (
        f"'{out / index}' is damaged at byte 0 (record 0): {cure}"
    )
    # Only the first entry: a record would be looked for in all of the shard.
    assert damaged(out, dataset[1], index, data[:ENTRY] + data[-32:]) == (
        f"'{out / index}' is damaged at byte 0 (record 0): {cure}"
    )


def test_an_index_is_checked_again_after_a_change(dataset, tmp_path):
    out = Path(shutil.copytree(dataset[0], tmp_path / "out"))
    ds = bt.load(out)
    ds.take(range(ROWS))
    index = min((out / "_index").iterdir())
    os.utime(index, (1, 1))
    assert ds.take(range(ROWS))["id"].to_pylist() == dataset[2]
    data = index.read_bytes()
    index.write_bytes(shift(data, random.Random(3)))
    with pytest.raises(DataError, match="its hash is not that in the manifest"):
        ds.take(range(ROWS))
    os.truncate(index, 0)
    with pytest.raises(DataError, match="is cut off"):
        ds.take(range(ROWS))
    index.write_bytes(data)
    assert ds.take(range(ROWS))["id"].to_pylist() == dataset[2]
