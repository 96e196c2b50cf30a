"""Row groups that a filter cannot match are not read, and that changes no byte of a dataset."""

import datetime
import json
import math
import random
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.parse import parse_filter, quoted_text
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources import parquet as parquet_module
from beam_tfrecord.sources.base import with_selection
from beam_tfrecord.sources.parquet import Parquet
from tests.helpers.effort import examples
from tests.selection.test_filter_oracle import conditions

NAN = float("nan")


# Values at which statistics go wrong: cut texts, moments between milliseconds, NaN, zeros.
LONG = ["a" * 40, "a" * 31, "a" * 31 + "\U0010ffff" * 9, "é" * 40, "🦊" * 20]
MOMENT = datetime.datetime(2024, 2, 29, 12)
POOLS = {
    "i": [-(2**63), -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1],
    "j": [-128, -1, 0, 1, 127],
    "u": [0, 1, 2**53 + 1, 2**63, 2**64 - 1],
    "f": [0.0, -0.0, 0.1, 0.5, -1.5, 2.0, NAN, math.inf, -math.inf, 1e300],
    "g": [0.0, -0.0, 0.1, 0.5, 1.0, 2.0, NAN, math.inf],
    "h": [0.0, -0.0, 0.5, NAN],
    "t": ["", "a", "b", "\U0010ffff" * 40, "\ud7fe" * 40, *LONG],
    "b": [True, False],
    "d": [datetime.date(2024, 2, 28), datetime.date(2024, 2, 29), datetime.date(1960, 1, 1)],
    "m": [MOMENT + datetime.timedelta(microseconds=us) for us in (0, 1, 999, 1000, 1001, -1)]
    + [datetime.datetime(1960, 1, 1, 0, 0, 0, 123456)],
    "s": [MOMENT, MOMENT + datetime.timedelta(seconds=1), datetime.datetime(1960, 1, 1)],
    "c": [Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99"), Decimal("0.07")],
    "e": [Decimal("1234567890123456789.07"), Decimal("1234567890123456789.08"), Decimal("0.01")],
    "v": [uuid.UUID(int=1), uuid.UUID(int=2**127)],
    "y": [b"", b"a", b"\xff" * 40],
    "w": ["x", "y"],
    "p": ["x", "y", "z z", "100%"],
}
SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "j": pa.int8(),
        "u": pa.uint64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "h": pa.float16(),
        "t": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "m": pa.timestamp("us"),
        "s": pa.timestamp("s", "UTC"),
        "c": pa.decimal128(9, 2),
        "e": pa.decimal128(21, 2),
        "v": pa.uuid(),
        "y": pa.binary(),
        "w": pa.dictionary(pa.int8(), pa.string()),
        "p": pa.string(),
    }
)
WHOLE = [str(value) for value in POOLS["i"]] + ["0.5", "9223372036854775808", "1e400"]
FLOATS = ["0", "-0.0", "0.1", "-1.5", "2", "1e300", "1e301", "1e400", "9007199254740993"]
LITERALS = {
    "i": WHOLE,
    "j": WHOLE,
    "u": [*WHOLE, "18446744073709551615"],
    **dict.fromkeys("fgh", FLOATS),
    "t": [quoted_text(text) for text in [*POOLS["t"], "a" * 33, "a" * 31 + "b", "é" * 31]],
    "d": ["DATE '2024-02-29'", "DATE '1960-01-01'", "DATE '1959-12-31'"],
    "m": [f"TIMESTAMP '{value}'" for value in POOLS["m"]],
    "s": [f"TIMESTAMP '{value}Z'" for value in POOLS["m"]],
    "c": ["0", "-0.01", "0.07", "9999999.99", "9999999.995"],
    "e": ["1234567890123456789.07", "1234567890123456789.08", "1234567890123456789.075"],
    "w": ["'x'", "'y'"],
    "p": [quoted_text(text) for text in POOLS["p"]],
}
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


@st.composite
def leaves(draw, names):
    column = draw(st.sampled_from(names))
    if column not in LITERALS or draw(st.integers(0, 3)) == 0:
        return f"{column} IS NULL" if column != "b" else draw(st.sampled_from(["b", "b IS NULL"]))
    literal = st.sampled_from(LITERALS[column])
    if draw(st.booleans()):
        return f"{column} IN ({draw(literal)}, {draw(st.one_of(literal, st.just('NULL')))})"
    if column in "twp" and draw(st.booleans()):
        return f"{column} LIKE {draw(literal)[:-1]}%'"
    if column in "fg" and "i" in names and draw(st.booleans()):
        return f"i {draw(st.sampled_from(SIGNS))} {column}"
    return f"{column} {draw(st.sampled_from(SIGNS))} {draw(literal)}"


def some_conditions(names):
    """Return a strategy of conditions on columns of `SCHEMA`."""
    return conditions(leaves(names), 4)


def some_rows(draw, count, names):
    """Draw rows with few different values of a column, so that much is pruned."""
    pools = {
        name: [*draw.sample(POOLS[name], draw.choice([1, 1, 2])), *draw.choice([[], [], [None]])]
        for name in names
    }
    if draw.random() < 0.3:
        pools[draw.choice(names)] = [None]
    return [{name: draw.choice(pool) for name, pool in pools.items()} for _ in range(count)]


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Write a file of 60 row groups; return its path and the rows of each group."""
    draw, path = random.Random(7), tmp_path_factory.mktemp("groups") / "x.parquet"
    rows = [some_rows(draw, 3, SCHEMA.names) for _ in range(60)]
    tables = [pa.Table.from_pylist(of_group, SCHEMA) for of_group in rows]
    pq.write_table(pa.concat_tables(tables), path, row_group_size=3)
    return path, [table.combine_chunks().to_batches()[0] for table in tables]


def test_no_row_group_with_a_matching_row_is_pruned(groups):
    path, rows = groups
    found = []

    @settings(max_examples=examples(300, 8), deadline=None, derandomize=True)
    @given(some_conditions(SCHEMA.names))
    def check(text):
        condition = parse_filter(text)
        matches = [pc.any(rows_that_match(condition, group)).as_py() for group in rows]
        is_pruned = pruned(path, text)
        wrong = [at for at, pair in enumerate(zip(matches, is_pruned, strict=True)) if all(pair)]
        assert not wrong
        found.append((is_pruned.count(True), len(rows) - matches.count(True)))

    check()
    # Of the row groups without a matching row, most are found.
    assert sum(one for one, _ in found) > 0.6 * sum(most for _, most in found)


def groups_of(path, column, **options):
    """Write a column as row groups of two rows; return the path."""
    pq.write_table(pa.table({"x": column}), path, row_group_size=2, **options)
    return path


def pruned(path, text):
    """Return which row groups of a file a filter excludes."""
    source = with_selection(Parquet(path), make_selection(filter=text))
    (scan,) = source.all_scans()
    return [piece.is_pruned for piece in scan.detail.pieces]


@pytest.mark.parametrize(
    ("values", "arrow", "text", "expected"),
    [
        ([1, 3, 3, 4], pa.int64(), "x = 2", [False, True]),
        ([1, None, None, None, 2, 3], pa.int64(), "x is null", [False, False, True]),
        ([1, None, None, None, 2, 3], pa.int64(), "x is not null", [False, True, False]),
        ([2**31, 2**32 - 1, 0, 5], pa.uint32(), "x > 5", [False, True]),
        # A NaN is not in the statistics, and it is not greater than 2.
        ([0.5, NAN, 2.5, 3.5], pa.float64(), "x > 2", [True, False]),
        ([0.5, NAN, 2.5, 3.5], pa.float64(), "not x > 2", [False, False]),
        ([0.5, NAN, 2.5, 3.5], pa.float64(), "x <> 0.5", [False, False]),
        ([-0.0, -0.0, 1.0, 1.0], pa.float64(), "x in (0, 2)", [False, True]),
        # Statistics of texts may be cut.
        (["a", "a", "b", "b"], pa.string(), "x <> 'a'", [False, False]),
        # Types that do not compare are for the evaluation to refuse.
        ([1, 2, 3, 4], pa.int64(), "x = 'a'", [False, False]),
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


def prune_nothing(patch):
    patch.setattr(parquet_module, "pruned_by", lambda _, __, footer, *___: footer)


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
    prune_nothing(monkeypatch)
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


@pytest.mark.parametrize("condition", ["day >= DATE '2025-01-02'", "NOT month IN (1) AND i > 0"])
def test_directories_that_a_filter_excludes_are_not_read(tmp_path, condition):
    for number, path in enumerate(("day=2025-01-01/month=1", "day=2025-01-02/month=12"), 1):
        (tmp_path / "in" / path).mkdir(parents=True)
        pq.write_table(pa.table({"i": [number] * 1000}), tmp_path / "in" / path / "a.parquet")
    damaged = tmp_path / "in/day=2025-01-01/month=1/a.parquet"
    data, start = damaged.read_bytes(), pq.ParquetFile(damaged).metadata.row_group(0).column(0)
    size = start.total_compressed_size
    damaged.write_bytes(data[:4] + b"\xff" * size + data[4 + size :])
    with pytest.raises(DataError, match="day=2025-01-01"):
        bt.write(tmp_path / "in", tmp_path / "out")
    assert bt.write(tmp_path / "in", tmp_path / "out", filter=condition).examples == 1000


def test_a_directory_whose_type_the_others_change_is_no_reason_to_stop(tmp_path):
    for name in ("k=1", "k=x"):
        (tmp_path / "in" / name).mkdir(parents=True)
        pq.write_table(pa.table({"i": [1]}), tmp_path / "in" / name / "a.parquet")
    assert bt.write(tmp_path / "in", tmp_path / "out", filter="k = '1'").examples == 1
