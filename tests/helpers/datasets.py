"""Small inputs, and ways to look at a dataset that do not go through the code under test."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.helpers.records import read_records
from tests.helpers.tf_example import Example


def sample_table(rows, *, seed=0):
    """Return a table with an id, floats, text with nulls, and lists."""
    rng = np.random.default_rng(seed)
    names = np.array(["ann", "bob", "çelik", "дима", "e,f", 'g"h', "line\nbreak", ""])
    return pa.table(
        {
            "id": pa.array(np.arange(rows), pa.int64()),
            "x": pa.array(rng.standard_normal(rows).astype("float32")),
            "name": pa.array(
                [
                    None if is_missing else str(name)
                    for name, is_missing in zip(
                        names[rng.integers(0, len(names), rows)],
                        rng.random(rows) < 0.1,
                        strict=True,
                    )
                ],
                pa.string(),
            ),
        }
    )


def write_parquet(directory, table, *, files=1, group_rows=100):
    """Write a table as Parquet files of nearly equal size; return their directory."""
    directory.mkdir(parents=True, exist_ok=True)
    bounds = [table.num_rows * i // files for i in range(files + 1)]
    for number in range(files):
        part = table.slice(bounds[number], bounds[number + 1] - bounds[number])
        pq.write_table(part, directory / f"part-{number:03d}.parquet", row_group_size=group_rows)
    return str(directory)


def visible_names(directory):
    """Return the names in a directory but those that begin with a dot."""
    return sorted(name for name in os.listdir(directory) if not name.startswith("."))


def shard_hashes(directory):
    """Return the SHA-256 of every file whose bytes must not differ from run to run."""
    return {
        name: hashlib.sha256((Path(directory) / name).read_bytes()).hexdigest()
        for name in sorted(os.listdir(directory))
        if name != "job.json" and (Path(directory) / name).is_file()
    }


def read_examples(directory, split=None):
    """Yield the `tf.train.Example`s of a dataset by protobuf alone, shard after shard."""
    manifest = json.loads((Path(directory) / "manifest.json").read_text())
    for name, content in manifest["splits"].items():
        if split in (None, name):
            for shard in content["shards"]:
                yield from map(Example.FromString, read_records(Path(directory) / shard["path"]))


def ids(directory, split=None):
    """Return the feature ``id`` of every example, in the order of the files."""
    return [
        example.features.feature["id"].int64_list.value[0]
        for example in read_examples(directory, split)
    ]
