"""Files and row groups of tables that a filter excludes are not read, which changes no row."""

import datetime
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import beam_tfrecord as bt
from beam_tfrecord.selection.evaluate import PieceBounds, rows_that_match
from beam_tfrecord.selection.parse import parse_filter
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import with_selection
from beam_tfrecord.sources.choose import make_source
from tests.helpers.lazy import Lazy
from tests.helpers.made_tables import FEATURES, handmade_delta, hinted_catalog
from tests.helpers.reading import rows_by_place, units_of
from tests.selection.test_pruning import SCHEMA, some_conditions, some_rows
from tests.sources import test_lake as lake
from tests.sources.test_lake import table_of

deltalake = Lazy("deltalake")

pytestmark = pytest.mark.slow


def filtered(path, text, **options):
    """Return the source of a table with a filter."""
    return with_selection(make_source(str(path), **options), make_selection(filter=text))


def prune_nothing(patch):
    patch.setattr(
        PieceBounds, "may_match", lambda bounds, *_: pa.repeat(pa.scalar(True), bounds.count)
    )


NAMES = list("ifgtbdmcep")
LAKE_SCHEMA = pa.schema([SCHEMA.field(name) for name in NAMES])


def random_files(count):
    """Yield the rows of files; some lack the column `i`, which was added later."""
    draw = random.Random(7)
    for number in range(count):
        rows = some_rows(draw, 6, NAMES)
        table = pa.Table.from_pylist([{**row, "p": rows[0]["p"]} for row in rows], LAKE_SCHEMA)
        yield table.drop_columns(["i"]) if number < 4 else table


@pytest.fixture(scope="module", params=["delta", "delta partitioned", "iceberg"])
def kept(request, tmp_path_factory):
    """Make a table of many small files; return its source, and all of its rows by place."""
    directory = tmp_path_factory.mktemp("kept")
    if request.param == "iceberg":
        path = iceberg_of(directory, random_files(40))
    else:
        path = str(directory / "t")
        by = ["p", "b", "d"] if "partitioned" in request.param else None
        writer = deltalake.WriterProperties(max_row_group_size=3)
        for table in random_files(40):
            deltalake.write_deltalake(
                path,
                table,
                mode="append",
                schema_mode="merge",
                partition_by=by,
                writer_properties=writer,
            )
    source = make_source(path)
    places, batches = [], []
    for batch in source.batches():
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        places += [(batch.origin.unit, number) for number in numbers]
        batches.append(batch.data)
    return source, places, pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def iceberg_of(directory, tables):
    """Write tables as the files of an Iceberg table; return its directory."""
    from pyiceberg.types import LongType

    directory.mkdir(exist_ok=True)
    properties = {"uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}"}
    catalog = hinted_catalog("mine", **properties)
    catalog.create_namespace("ns")
    made = None
    for table in tables:
        if made is None:
            row_groups = {"write.parquet.row-group-limit": "3"}
            made = catalog.create_table("ns.t", schema=table.schema, properties=row_groups)
        elif "i" in table.column_names and not any(f.name == "i" for f in made.schema().fields):
            with made.update_schema() as change:
                change.add_column("i", LongType())
        made.append(table.select([field.name for field in made.schema().fields]))
    catalog.engine.dispose()
    return f"{directory}/ns/t"


@pytest.mark.slow
def test_no_file_or_row_group_with_a_matching_row_is_excluded(kept):
    source, places, rows = kept
    pruned = []

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(some_conditions(NAMES))
    def check(text):
        matches = rows_that_match(parse_filter(text), rows).fill_null(False).to_pylist()
        expected = {place for place, is_match in zip(places, matches, strict=True) if is_match}
        mine = with_selection(source, make_selection(filter=text))
        found = set()
        for unit in units_of(mine):
            pruned.append(unit.pruned_rows)
            for batch in mine.read_unchanged(unit, source.types()):
                assert batch.origin is not None
                numbers = batch.origin.row_numbers(batch.num_rows).tolist()
                found |= {(batch.origin.unit, number) for number in numbers}
        assert found == expected

    check()
    assert sum(pruned) > 0.2 * 60 * rows.num_rows


@pytest.fixture
def trips(tmp_path):
    """Write a Delta Lake table of 8 files: ids in order, in one of two cities."""
    path = str(tmp_path / "trips")
    for first in range(0, 80, 10):
        rows = [
            {**row, "city": ["NYC", "LA"][first // 10 % 2], "fare": row["id"] / 4}
            for row in lake.some_rows(10, first)
        ]
        table = table_of(rows).append_column("a b", pa.array([f"{row['id']}" for row in rows]))
        deltalake.write_deltalake(path, table, mode="append", partition_by=["city"])
    return path


FILTERS = [
    "id between 22 and 25 or id = 71",
    "city = 'LA' and fare > 3",
    "city in ('SF') or day is null",
    "\"a b\" < '2'",
    "id > 1000",
]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("text", FILTERS)
def test_pruning_changes_no_byte(trips, tmp_path, monkeypatch, text, shuffle):
    options = {
        "filter": text,
        "splits": "a=0.5,b=0.5",
        "shuffle": shuffle,
        "columns": ["fare", "price", "a b"],
    }
    one = bt.write(trips, tmp_path / "with", **options)
    assert bt.plan(trips, tmp_path / "o", **options)["input"]["rows_not_read"] > 0
    prune_nothing(monkeypatch)
    assert bt.plan(trips, tmp_path / "o", **options)["input"]["rows_not_read"] == 0
    other = bt.write(trips, tmp_path / "without", **options)
    assert one.dumps() == other.dumps()
    names = [shard.path for shard in one.shards] + ["schema.json", "schema.pbtxt"]
    for name in names:
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    jobs = [json.loads((tmp_path / of / "job.json").read_text()) for of in ("with", "without")]
    assert [job["rows_read"] for job in jobs] == [80, 80]


def test_row_groups_of_renamed_and_missing_columns_are_pruned(tmp_path):
    # The log says of this file only how many rows it has.
    path = handmade_delta(tmp_path / "t", FEATURES)
    for text, pruned in (
        ("id < 4", 6),
        ("id = 5", 6),
        ("later = 'x'", 10),
        ("day = date '2024-02-29' and id = 0", 6),
        ("day = date '2024-02-29' or id = 0", 0),
        ("later is null and id = 0", 6),
        # No column of the file, though it has one of this name.
        ("id is null", 10),
    ):
        assert [unit.pruned_rows for unit in units_of(filtered(path, text))] == [pruned], text
    assert rows_by_place(filtered(path, "id = 5")) == {
        ("a b.parquet", 5): {"id": 5, "day": datetime.date(2024, 2, 29), "later": None}
    }


def test_values_that_might_not_fit_are_read(tmp_path):
    """A value that is not exact in the type of the table is a reject, filter or not."""
    directory = tmp_path / "t"
    deltalake.write_deltalake(directory, pa.table({"x": pa.array([1], pa.int32())}))
    (file,) = directory.glob("*.parquet")
    pq.write_table(pa.table({"x": pa.array([1, 2**40], pa.int64())}), file)
    log = directory / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (add,) = (line["add"] for line in lines if "add" in line)
    add["size"] = file.stat().st_size
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(bt.BeamTFRecordError, match="1 of 2 rows"):
        bt.write(directory, tmp_path / "out", filter="x < 0")


def test_a_renamed_column_of_iceberg_is_pruned_by_its_id(tmp_path):
    path = iceberg_of(tmp_path / "ice", (table_of(lake.some_rows(10, at)) for at in (0, 10)))
    properties = {"uri": f"sqlite:///{tmp_path}/ice/c.db"}
    catalog = hinted_catalog("mine", **properties)
    table = catalog.load_table("ns.t")
    with table.update_schema() as change:
        change.rename_column("id", "number")
        change.rename_column("fare", "id")
    catalog.engine.dispose()

    def pruned(text):
        return sorted(unit.pruned_rows for unit in units_of(filtered(path, text)))

    assert pruned("number >= 10") == [0, 10]
    # 19 / 4 is the largest of the new `id`.
    assert pruned("id > 4") == [6, 10]
    assert pruned("id > 5") == [10, 10]
