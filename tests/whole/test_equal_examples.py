"""Equal examples are never in two splits, whatever they hold and wherever their rows lie."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from tests.helpers.effort import WHOLE
from tests.helpers.records import read_records

SCHEMA = pa.schema(
    {
        "number": pa.int64(),
        "x": pa.float64(),
        "text": pa.string(),
        "flag": pa.bool_(),
        "list": pa.list_(pa.int32()),
    }
)
# Several values of a column give one and the same example: those that round alike or are missing.
ROWS = st.fixed_dictionaries(
    {
        "number": st.sampled_from([None, 0, -1, 2**63 - 1]),
        "x": st.sampled_from([None, 0.0, -0.0, float("nan"), 0.1, 0.1 + 1e-12]),
        "text": st.sampled_from([None, "", "a", "日"]),
        "flag": st.sampled_from([None, False, True]),
        "list": st.sampled_from([None, [], [0], [1, 2]]),
    }
)
# Each row several times.
TABLES = st.lists(ROWS, min_size=10, max_size=30).flatmap(
    lambda few: st.lists(st.sampled_from(few), min_size=100, max_size=200)
)


@settings(max_examples=20 if WHOLE else 2)
@given(
    rows=TABLES,
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    seed=st.integers(0, 2**32),
    more_shards=st.integers(0, 3),
    shuffle=st.booleans(),
)
@pytest.mark.slow
def test_equal_examples_are_in_one_split(rows, weights, seed, more_shards, shuffle):
    splits = {f"s{number}": weight / sum(weights) for number, weight in enumerate(weights)}
    with tempfile.TemporaryDirectory() as scratch:
        table = pa.Table.from_pylist(rows, SCHEMA)
        for number, part in enumerate((table.slice(0, 60), table.slice(60))):
            pq.write_table(part, Path(scratch, f"{number}.parquet"), row_group_size=20)
        manifest = bt.write(
            f"{scratch}/*.parquet",
            f"{scratch}/out",
            splits=splits,
            seed=seed,
            shards=len(splits) + more_shards,
            shuffle=shuffle,
        )
        found = [
            [
                payload
                for shard in split.shards
                for payload in read_records(Path(scratch, "out", shard.path))
            ]
            for split in manifest.splits.values()
        ]
    assert sum(map(len, found)) == len(rows)
    assert sum(len(set(examples)) for examples in found) == len({e for es in found for e in es})
