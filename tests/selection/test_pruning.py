"""Row groups that a filter cannot match are not read, and that changes no byte of a dataset."""

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import beam_tfrecord as bt
from beam_tfrecord.selection.parse import parse_filter
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import with_selection
from beam_tfrecord.sources.parquet import footer as footer_module
from beam_tfrecord.sources.parquet import source as parquet_module
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.parquet.statistics import Leaf, pruned_groups
from tests.helpers.effort import examples
from tests.selection.test_filter_oracle import SQLITE, conditions, tables

NAN = float("nan")


def groups_of(path, column, **options):
    """Write a column as row groups of two rows, and open the file."""
    pq.write_table(pa.table({"x": column}), path, row_group_size=2, **options)
    return pq.ParquetFile(path)


def pruned(parquet, text):
    leaf = Leaf(0, parquet.schema_arrow.field("x").type)
    return pruned_groups(parquet, parse_filter(text), {"x": leaf}, {})


@pytest.mark.parametrize(
    ("values", "arrow", "text", "expected"),
    [
        ([1, 2, 3, 4, 5, 6], pa.int64(), "x > 2", [True, False, False]),
        ([1, 2, 3, 4, 5, 6], pa.int8(), "x >= 2.5 and x < 4.5", [True, False, True]),
        ([1, 2, 3, 4, 5, 6], pa.int32(), "x = 3", [True, False, True]),
        ([1, 3, 3, 4], pa.int64(), "x = 2", [False, True]),
        ([1, 2, 3, 4], pa.int64(), "x in (3, 9)", [True, False]),
        ([1, 2, 3, 4], pa.int64(), "not x < 3", [True, False]),
        ([1, 2, 3, 4], pa.int64(), "x < 3 or x is null", [False, True]),
        ([7, 7, 8, 7], pa.int64(), "x <> 7", [True, False]),
        ([1, None, None, None, 2, 3], pa.int64(), "x is null", [False, False, True]),
        ([1, None, None, None, 2, 3], pa.int64(), "x is not null", [False, True, False]),
        ([1, None, None, None, 2, 3], pa.int64(), "x >= 0", [False, True, False]),
        ([1, None, None, None], pa.int64(), "(x = 1) is null", [False, False]),
        ([1, 2, None, 4], pa.int64(), "(x > 9) is not true", [False, False]),
        ([1, 2, None, 4], pa.int64(), "(x < 9) is not true", [True, False]),
        ([2**31, 2**32 - 1, 0, 5], pa.uint32(), "x > 5", [False, True]),
        ([2**63, 2**64 - 1, 0, 5], pa.uint64(), "x > 5", [False, True]),
        ([0.5, 1.5, 2.5, 3.5], pa.float64(), "x > 2", [True, False]),
        ([0.5, 1.5, 2.5, 3.5], pa.float32(), "x > 2", [True, False]),
        # A NaN is not in the statistics, and it is not greater than 2.
        ([0.5, NAN, 2.5, 3.5], pa.float64(), "x > 2", [True, False]),
        ([0.5, NAN, 2.5, 3.5], pa.float64(), "not x > 2", [False, False]),
        ([0.5, NAN, 2.5, 3.5], pa.float64(), "x <> 0.5", [False, False]),
        ([0.5, 0.5, NAN, NAN], pa.float64(), "not x < 1", [False, False]),
        ([-0.0, -0.0, 1.0, 1.0], pa.float64(), "x = 0", [False, True]),
        ([0, 1, 10, 11], pa.date32(), "x > date '1970-01-08'", [True, False]),
        (
            [0, 1, 10, 11],
            pa.timestamp("ms"),
            "x > timestamp '1970-01-01 00:00:00.005'",
            [True, False],
        ),
        ([0, 1, 10, 11], pa.timestamp("us", "UTC"), "x < timestamp '1970-01-01Z'", [True, True]),
        ([0, 1, 10, 11], pa.timestamp("s"), "x < timestamp '1970-01-01'", [True, True]),
        # Statistics of texts may be cut, and those of decimals have several forms.
        (["a", "b", "c", "d"], pa.string(), "x = 'c'", [False, False]),
        ([Decimal(1), Decimal(2)], pa.decimal128(5, 2), "x > 9", [False]),
        # Types that do not compare are for the evaluation to refuse.
        ([1, 2, 3, 4], pa.int64(), "x = 'a'", [False, False]),
        ([1, 2, 3, 4], pa.int64(), "y = 1", [False, False]),
    ],
)
def test_groups_that_cannot_match_are_found(tmp_path, values, arrow, text, expected):
    assert pruned(groups_of(tmp_path / "x.parquet", pa.array(values, arrow)), text) == expected


def test_statistics_that_are_missing_or_of_int96_prune_nothing(tmp_path):
    numbers, moments = pa.array([1, 2]), pa.array([0, 1], pa.timestamp("ns"))
    none = groups_of(tmp_path / "a.parquet", numbers, write_statistics=False)
    assert pruned(none, "x > 5") == [False]
    assert pruned(none, "x is null") == [False]
    int96 = groups_of(tmp_path / "b.parquet", moments, use_deprecated_int96_timestamps=True)
    assert pruned(int96, "x > timestamp '2020-01-01'") == [False]


@settings(max_examples=examples(50), deadline=None)
@given(tables(SQLITE), conditions("ift"))
def test_no_matching_row_is_pruned(tmp_path_factory, data, text):
    path = tmp_path_factory.mktemp("p") / "x.parquet"
    pq.write_table(pa.Table.from_batches([data]), path, row_group_size=2)
    with_pruning = with_selection(Parquet(path), make_selection(filter=text))
    rows = [row for batch in with_pruning.batches() for row in batch.rows()]
    matches = footer_module.pruned_groups
    footer_module.pruned_groups = lambda parquet, *_: [False] * parquet.num_row_groups
    try:
        assert [row for batch in with_pruning.batches() for row in batch.rows()] == rows
    finally:
        footer_module.pruned_groups = matches


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """Write a sorted file of 40 row groups and several units; return its path."""
    monkeypatch.setattr(parquet_module.Parquet, "unit_bytes", 3000)
    number = np.arange(2000)
    table = pa.table(
        {
            "id": number,
            "fare": np.sin(number),
            "at": pa.array(number * 1000, pa.timestamp("ms")),
            "city": [f"c{one % 7}" for one in number],
            "day": pc.cast(pa.array(number // 100, pa.int32()), pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=50)
    return tmp_path / "x.parquet"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    "text",
    ["id between 120 and 170 or id = 1999", "day = date '1970-01-03' and fare > 0", "id < 0"],
)
def test_pruning_changes_no_byte(rows, tmp_path, monkeypatch, text, shuffle):
    options = {
        "filter": text,
        "splits": "a=0.5,b=0.5",
        "shuffle": shuffle,
        "columns": ["fare", "city"],
    }
    one = bt.write(rows, tmp_path / "with", **options)
    monkeypatch.setattr(
        footer_module, "pruned_groups", lambda parquet, *_: [False] * parquet.num_row_groups
    )
    other = bt.write(rows, tmp_path / "without", **options)
    assert [shard.xxh64 for shard in one.shards] == [shard.xxh64 for shard in other.shards]
    assert one.dumps() == other.dumps()
    read = [
        json.loads((tmp_path / name / "job.json").read_text())["rows_read"]
        for name in ("with", "without")
    ]
    assert read == [2000, 2000]


def test_the_plan_says_what_is_not_read(rows, tmp_path):
    planned = bt.plan(rows, tmp_path / "out", filter="id < 75")["input"]
    assert planned["filter"] == '"id" < 75'
    assert (planned["rows"], planned["rows_not_read"]) == (2000, 1900)
    everything = bt.plan(rows, tmp_path / "out")["input"]["bytes"]
    assert planned["bytes"] + planned["bytes_not_read"] == everything
    assert planned["bytes"] < everything / 15


@pytest.mark.slow
def test_a_pruned_group_is_not_even_opened(rows, tmp_path):
    # Damage of a row group that is read is an error; here it is in one that is not.
    chunk = pq.ParquetFile(rows).metadata.row_group(30).column(1)
    data = bytearray(rows.read_bytes())
    data[chunk.data_page_offset : chunk.data_page_offset + 40] = bytes(40)
    rows.write_bytes(data)
    assert bt.write(rows, tmp_path / "out", filter="id < 75").examples == 75
    with pytest.raises(bt.BeamTFRecordError, match=r"from row [0-9]+ on"):
        bt.write(rows, tmp_path / "all", filter="id >= 0")


def test_a_changed_file_is_found_although_most_of_it_is_pruned(rows, tmp_path):
    out = tmp_path / "out"
    first = bt.write(rows, out, filter="id < 75")
    rows.touch()
    rows.chmod(0o600)
    with pytest.raises(bt.BeamTFRecordError, match="edited"):
        bt.write(rows, out, filter="id < 75")
    assert bt.write(rows, out, filter="id < 75", overwrite=True).fingerprint == first.fingerprint


def test_rows_that_settled_types_reject_are_not_pruned(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "y": [1.5, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [8, 9], "y": [3, 4]}), tmp_path / "b.parquet")
    schema = bt.Schema.from_arrow(pa.schema({"x": pa.int64(), "y": pa.int64()}))
    out = tmp_path / "out"
    found = bt.write(
        [tmp_path / "a.parquet", tmp_path / "b.parquet"],
        out,
        schema=schema,
        filter="x > 5",
        max_rejects="any",
    )
    assert (found.examples, found.rejects["rows"]) == (2, 1)


def test_dates_compare_in_hive_files(tmp_path):
    for day in (1, 2):
        (tmp_path / "in" / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "in" / f"day={day}" / "x.parquet")
    batches = bt.ReadFromParquet(tmp_path / "in", filter="day = 2 and x > 1").batches()
    assert [row for batch in batches for row in batch.rows()] == [{"x": 2, "day": 2}]
