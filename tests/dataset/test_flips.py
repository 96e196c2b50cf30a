"""One flipped bit anywhere in a dataset is found by `verify`.

`scripts/prove/run flips` does the same at a thousand places, and looks for false alarms on many
sound datasets.
"""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from tests.dataset.flipping import classes_of, flipped

CLASSES = {
    *("record length", "length checksum", "payload", "payload checksum", "index"),
    *("manifest.json", "schema.json", "schema.pbtxt", "job.json", "rejects-00000.parquet"),
}
GZIP_CLASSES = {"gzip header", "gzip stream", "gzip trailer"}


def made(directory, compression):
    """Write a dataset of two splits with rejects."""
    rows = range(40)
    values = [2.0**1000 if row % 13 == 5 else row / 3 for row in rows]
    table = pa.table({"id": list(rows), "x": values, "name": [f"row {row}" for row in rows]})
    pq.write_table(table, directory / "in.parquet")
    out = directory / "out"
    bt.write(
        directory / "in.parquet",
        out,
        splits={"a": 0.6, "b": 0.4},
        max_rejects="any",
        compression=compression,
    )
    return out


@pytest.fixture(scope="module", params=["none", "gzip"])
def dataset(request, tmp_path_factory):
    return made(tmp_path_factory.mktemp(request.param), request.param)


def test_every_class_of_bytes_is_there(dataset):
    assert bt.verify(dataset).faults == ()
    found = set(classes_of(dataset))
    assert found == (CLASSES if "record length" in found else CLASSES - _record() | GZIP_CLASSES)


def _record():
    return {name for name in CLASSES if "." not in name}


def test_one_flipped_bit_of_each_class_is_found(dataset):
    draw = random.Random(1)
    for name, ranges in classes_of(dataset).items():
        for _ in range(6):
            path, start, stop = draw.choice(ranges)
            position, bit = draw.randrange(start, stop), draw.randrange(8)
            with flipped(path, position, bit):
                faults = bt.verify(dataset).faults
            assert faults, f"bit {bit} of byte {position} of {path.name} ({name})"
            assert path.name in {Path(fault.path).name for fault in faults}
    assert bt.verify(dataset).ok
