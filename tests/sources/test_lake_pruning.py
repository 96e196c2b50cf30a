"""Files and row groups of tables that a filter excludes are not read, which changes no row."""

import datetime
import json
import math
import os
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.inputs import make_source
from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.nodes import quoted_text
from beam_tfrecord.selection.parse import parse_filter
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import with_selection
from beam_tfrecord.sources.lake import table as table_module
from beam_tfrecord.sources.lake.table import LakeTable
from beam_tfrecord.sources.parquet import footer as footer_module
from tests.helpers.lazy import Lazy
from tests.helpers.made_tables import FEATURES, deletion_vector, handmade_delta, hinted_catalog
from tests.sources.test_lake import some_rows, table_of

deltalake = Lazy("deltalake")

pytestmark = pytest.mark.slow

Place = tuple[str, int]


def filtered(path, text, **options):
    """Return the source of a table with a filter."""
    return with_selection(make_source(str(path), **options), make_selection(filter=text))


def not_opened(source):
    """Return the names of the files that are not opened at all."""
    return [file.name for file in source.files() if file.excluded is not None and not file.version]


def places_of(source):
    """Return the rows by unit and number."""
    found = {}
    for batch in source.batches(batch_rows=50):
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        found |= {
            (batch.origin.unit, number): row
            for number, row in zip(numbers, batch.rows(), strict=True)
        }
    return found


def prune_nothing(patch):
    patch.setattr(table_module, "excluded", lambda _, __, count: [None] * count)
    patch.setattr(
        footer_module, "pruned_groups", lambda parquet, *_: [False] * parquet.num_row_groups
    )


# Values at which statistics go wrong: cut texts, moments between milliseconds, NaN, zeros.
LONG = ["a" * 40, "a" * 32, "a" * 31, "a" * 31 + "\U0010ffff" * 9, "é" * 40, "🦊" * 20]
TEXTS = ["", "a", "b", "\U0010ffff" * 40, "\ud7ff" * 40, *LONG]
MOMENT = datetime.datetime(2024, 2, 29, 12)
POOLS = {
    "i": [-(2**63), -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1],
    "f": [0.0, -0.0, 0.1, -1.5, 2.0, math.nan, math.inf, -math.inf, 1e300],
    "g": [0.0, -0.0, 0.5, 1.0, 2.0, math.nan],
    "t": TEXTS,
    "b": [True, False],
    "d": [datetime.date(2024, 2, 28), datetime.date(2024, 2, 29), datetime.date(1960, 1, 1)],
    "m": [MOMENT + datetime.timedelta(microseconds=us) for us in (0, 1, 999, 1000, 1001, -1)]
    + [datetime.datetime(1960, 1, 1, 0, 0, 0, 123456)],
    "c": [Decimal("-0.01"), Decimal("0.00"), Decimal("9999999.99"), Decimal("0.07")],
    "e": [Decimal("1234567890123456789.07"), Decimal("1234567890123456789.08"), Decimal("0.01")],
    "p": ["x", "y", "z z", "100%"],
}
SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "t": pa.string(),
        "b": pa.bool_(),
        "d": pa.date32(),
        "m": pa.timestamp("us"),
        "c": pa.decimal128(9, 2),
        "e": pa.decimal128(21, 2),
        "p": pa.string(),
    }
)
LITERALS = {
    "i": [str(value) for value in POOLS["i"]] + ["0.5", "9223372036854775808"],
    "f": ["0", "0.1", "-1.5", "2", "1e300", "1e301"],
    "g": ["0", "0.5", "2", "1.5"],
    "t": [
        quoted_text(text) for text in [*TEXTS, "a" * 33, "a" * 31 + "b", "é" * 31, "\uffff" * 32]
    ],
    "d": ["DATE '2024-02-29'", "DATE '1960-01-01'", "DATE '1959-12-31'"],
    "m": [f"TIMESTAMP '{value}'" for value in POOLS["m"]],
    "c": ["0", "-0.01", "0.07", "9999999.99", "9999999.995"],
    "e": ["1234567890123456789.07", "1234567890123456789.08", "1234567890123456789.075"],
    "p": [quoted_text(text) for text in POOLS["p"]],
}
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


@st.composite
def leaves(draw):
    column = draw(st.sampled_from(SCHEMA.names))
    if column == "b" or draw(st.integers(0, 3)) == 0:
        return f"{column} IS NULL" if column != "b" else draw(st.sampled_from(["b", "b IS NULL"]))
    literal = st.sampled_from(LITERALS[column])
    if draw(st.booleans()):
        return f"{column} IN ({draw(literal)}, {draw(literal)})"
    if column in "tp" and draw(st.booleans()):
        return f"{column} LIKE {draw(literal)[:-1]}%'"
    return f"{column} {draw(st.sampled_from(SIGNS))} {draw(literal)}"


CONDITIONS = st.recursive(
    leaves(),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["AND", "OR"]), part).map(
            lambda found: f"({found[0]}) {found[1]} ({found[2]})"
        ),
        part.map(lambda one: f"NOT ({one})"),
        part.map(lambda one: f"({one}) IS NOT TRUE"),
    ),
    max_leaves=4,
)


def random_files(count):
    """Yield the rows of files, each with few different values of a column, so that much is pruned.

    Some files lack the column `i`, which was added later.
    """
    draw = random.Random(7)
    for number in range(count):
        pools = {
            name: [*draw.sample(pool, draw.choice([1, 1, 2])), *draw.choice([[], [], [None]])]
            for name, pool in POOLS.items()
        }
        pools["p"] = pools["p"][:1]
        if draw.random() < 0.1:
            pools[draw.choice("fgtbdmce")] = [None]
        rows = [{name: draw.choice(pool) for name, pool in pools.items()} for _ in range(6)]
        # No code points of surrogates, of which there is no text.
        for row in rows:
            row["t"] = row["t"] and row["t"].replace("\ud7ff", "\ud7fe")
        table = pa.Table.from_pylist(rows, SCHEMA)
        yield table.drop_columns(["i"]) if number < 4 else table


@pytest.fixture(scope="module", params=["delta", "delta partitioned", "iceberg"])
def kept(request, tmp_path_factory):
    """Make a table of many small files; return its source, and all of its rows by place."""
    directory = tmp_path_factory.mktemp("kept")
    if request.param == "iceberg":
        path = iceberg_of(directory, random_files(40))
    else:
        path = str(directory / "t")
        by = ["p", "d"] if "partitioned" in request.param else None
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
    pruned = [0, 0]

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(CONDITIONS)
    def check(text):
        matches = rows_that_match(parse_filter(text), rows).fill_null(False).to_pylist()
        expected = {place for place, is_match in zip(places, matches, strict=True) if is_match}
        mine = with_selection(source, make_selection(filter=text))
        files = list(mine.files())
        excluded = {file.name for file in files if file.excluded is not None}
        assert not {unit for unit, _ in expected} & excluded
        pruned[0] += len(excluded)
        units = mine.all_units([mine.scan(c) for file in files[::2] for c in mine.chunks(file)])
        schema = source.schema([])
        found = set()
        for unit in units:
            for batch in mine.read_unchanged(unit, schema):
                assert batch.origin is not None
                numbers = batch.origin.row_numbers(batch.num_rows).tolist()
                found |= {(batch.origin.unit, number) for number in numbers}
            pruned[1] += unit.pruned_rows if unit.file.name not in excluded else 0
        of_files = {file.name for file in files[::2]}
        assert found == {place for place in expected if place[0] in of_files}

    check()
    assert pruned[0] > 150
    assert pruned[1] > 10


@pytest.fixture
def trips(tmp_path):
    """Write a Delta Lake table of 8 files: ids in order, in one of two cities."""
    path = str(tmp_path / "trips")
    for first in range(0, 80, 10):
        rows = [
            {**row, "city": ["NYC", "LA"][first // 10 % 2], "fare": row["id"] / 4}
            for row in some_rows(10, first)
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


def test_rows_keep_their_places(trips):
    everything = places_of(make_source(trips))
    found = places_of(filtered(trips, "id between 33 and 47"))
    assert {row["id"] for row in found.values()} == set(range(33, 48))
    assert found.items() <= everything.items()


def test_a_pruned_file_of_delta_is_not_even_opened(trips, tmp_path):
    source = filtered(trips, "city = 'LA' and id < 50")
    unread = not_opened(source)
    assert len(unread) == 6
    before = bt.plan(trips, tmp_path / "o")["input"]
    planned = bt.plan(trips, tmp_path / "o", filter="city = 'LA' and id < 50")["input"]
    assert (planned["rows"], planned["rows_not_read"]) == (80, 60)
    assert planned["bytes_not_read"] > before["bytes"] * 0.7
    for name in unread:
        os.remove(os.path.join(trips, name))
    manifest = bt.write(trips, tmp_path / "out", filter="city = 'LA' and id < 50")
    assert manifest.examples == 20
    # The manifest names all files of the snapshot, with the sizes in the log.
    stored = json.loads((tmp_path / "out" / "manifest.json").read_text())
    listed = stored["generations"][0]["source"]["files"]
    assert len(listed) == 8
    assert all(file["bytes"] > 0 for file in listed)
    before_ns = (tmp_path / "out" / "job.json").stat().st_mtime_ns
    bt.write(trips, tmp_path / "out", filter="city = 'LA' and id < 50")
    assert (tmp_path / "out" / "job.json").stat().st_mtime_ns == before_ns


def test_a_pruned_file_of_iceberg_is_not_even_opened(tmp_path):
    files = (table_of(some_rows(10, first)) for first in range(0, 50, 10))
    path = iceberg_of(tmp_path / "ice", files)
    unread = not_opened(filtered(path, "id > 42 or at < timestamp '1999-01-01'"))
    assert len(unread) == 4
    for name in unread:
        os.remove(os.path.join(path, name))
    options = {"filter": "id > 42 or at < timestamp '1999-01-01'"}
    assert bt.write(path, tmp_path / "out", **options).examples == 7
    assert json.loads((tmp_path / "out" / "job.json").read_text())["rows_read"] == 50


def test_all_files_may_be_excluded(trips, tmp_path):
    assert bt.write(trips, tmp_path / "out", filter="id < 0").examples == 0
    with pytest.raises(UsageError, match="column 'idd' of --filter is not in the input"):
        bt.write(trips, tmp_path / "other", filter="idd < 0")
    with pytest.raises(UsageError, match="--filter compares column 'id'"):
        bt.write(trips, tmp_path / "other", filter="id < 'a'")


def test_types_are_those_of_all_files(tmp_path):
    """A column has nulls if a file has, though it is not read."""
    path = str(tmp_path / "t")
    for first, value in ((0, None), (10, 1.5)):
        rows = pa.table({"id": range(first, first + 3), "x": pa.array([value] * 3, pa.float64())})
        deltalake.write_deltalake(path, rows, mode="append")
    source = filtered(path, "id >= 10")
    assert len(not_opened(source)) == 1
    assert source.schema() == make_source(path).schema()
    assert source.schema().field("x").nullable
    assert not source.schema().field("id").nullable


def test_a_file_is_opened_if_the_log_does_not_say_what_has_nulls(tmp_path):
    path = str(tmp_path / "t")
    for first in (0, 10):
        rows = pa.table({"id": range(first, first + 3), "data": [b"x", b"y", b"z"]})
        deltalake.write_deltalake(path, rows, mode="append")
    source = filtered(path, "id >= 10")
    assert not not_opened(source)
    assert not source.schema().field("data").nullable
    units = source.all_units(source.all_scans())
    assert sorted((unit.rows, unit.pruned_rows, unit.input_bytes > 0) for unit in units) == [
        (3, 0, True),
        (3, 3, False),
    ]
    assert [row["id"] for row in places_of(source).values()] == [10, 11, 12]
    # Columns that are not read do not matter.
    only = with_selection(make_source(path, columns=["id"]), make_selection(filter="id >= 10"))
    assert len(not_opened(only)) == 1


@pytest.mark.parametrize(
    ("largest", "text", "is_read"),
    [
        ("b" * 31, f"t > '{'b' * 31}'", False),
        ("b" * 31, f"t >= '{'b' * 31}'", True),
        # Cut as it is, with a character added, increased, or after a half of a character.
        ("b" * 32, f"t > '{'b' * 40}'", True),
        ("b" * 32 + "\U0010ffff", f"t > '{'b' * 40}'", True),
        ("b" * 32 + "\ufffd", f"t > '{'b' * 32 + chr(0x1F98A)}'", True),
        ("b" * 31 + "?", f"t > '{'b' * 31 + chr(0x1F98A)}'", True),
        ("b" * 32, "t > 'c'", False),
        ("b" * 30 + "\U0010ffff" * 3, f"t > '{'b' * 29}c'", False),
        ("\U0010ffff" * 40, f"t > '{chr(0x10FFFF) * 50}'", True),
        ("\ud7ff" * 40, "t > '\ue001'", False),
    ],
)
def test_cut_texts_in_the_log_of_delta(tmp_path, largest, text, is_read):
    path = delta_with_statistics(tmp_path, "string", "t", "a", largest)
    assert (not not_opened(filtered(path, text))) == is_read


def delta_with_statistics(tmp_path, of, name, least, largest):
    """Make a table of one file whose log has these statistics, whatever is in the file."""
    statistics = {
        "numRecords": 3,
        "minValues": {name: least},
        "maxValues": {name: largest},
        "nullCount": {name: 0},
    }
    directory = tmp_path / "t"
    (directory / "_delta_log").mkdir(parents=True)
    pq.write_table(pa.table({name: [None]}), directory / "x.parquet")
    column = {"name": name, "type": of, "nullable": True, "metadata": {}}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    log = [
        {
            "protocol": {
                **protocol,
                "readerFeatures": ["timestampNtz"],
                "writerFeatures": ["timestampNtz"],
            }
        },
        {
            "metaData": {
                "id": "made",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": [column]}),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 1,
            }
        },
        {
            "add": {
                "path": "x.parquet",
                "partitionValues": {},
                "size": (directory / "x.parquet").stat().st_size,
                "modificationTime": 1,
                "dataChange": True,
                "stats": json.dumps(statistics),
            }
        },
    ]
    (directory / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, log)))
    return str(directory)


EARLY, WEST = "2024-01-01 00:00:00", "2023-12-31T16:00:00.001-08:00"


@pytest.mark.parametrize(
    ("of", "least", "largest", "text", "is_read"),
    [
        # Milliseconds, of which the log has no parts.
        ("timestamp_ntz", EARLY, f"{EARLY}.001", f"x > timestamp '{EARLY}.001998'", True),
        ("timestamp_ntz", EARLY, f"{EARLY}.001", f"x > timestamp '{EARLY}.001999'", False),
        ("timestamp", f"{EARLY}Z", WEST, f"x > timestamp '{EARLY}.001998Z'", True),
        ("timestamp", f"{EARLY}Z", WEST, f"x > timestamp '{EARLY}.001999Z'", False),
        # Spark has NaN as the largest number.
        ("double", 1.0, "NaN", "x > 5", True),
        ("double", 1.0, 2.0, "x > 5", False),
        ("double", -0.0, -0.0, "x >= 0", True),
        ("float", 0.1, 0.1, "x > 0.1", True),
        # JSON has 15 digits that are exact.
        ("decimal(15,2)", 0.01, 1234567890123.45, "x > 1234567890123.45", False),
        ("decimal(15,2)", 0.01, 1234567890123.45, "x >= 1234567890123.45", True),
        ("decimal(18,2)", 0.01, 1234567890123456.8, "x > 1234567890123456.80", True),
        # Statistics that are missing, or of another type.
        ("integer", None, 5, "x > 9", False),
        ("integer", None, 5, "x < 0", True),
        ("integer", "seven", "eight", "x < 0", True),
        ("boolean", None, None, "x", True),
        ("binary", None, None, "x is null", False),
    ],
)
def test_other_statistics_in_the_log_of_delta(tmp_path, of, least, largest, text, is_read):
    path = delta_with_statistics(tmp_path, of, "x", least, largest)
    assert (not not_opened(filtered(path, text))) == is_read


def test_deleted_rows_are_not_counted_as_pruned(tmp_path, monkeypatch):
    statistics = {
        "numRecords": 10,
        "tightBounds": False,
        "minValues": {"col-1": 0},
        "maxValues": {"col-1": 9},
        "nullCount": {"col-1": 0, "col-4": 10},
    }
    path = handmade_delta(
        tmp_path / "t",
        FEATURES,
        deletionVector=deletion_vector([2, 4, 5, 9]),
        stats=json.dumps(statistics),
    )
    (unit,) = units_of(filtered(path, "id > 10"))
    assert (unit.rows, unit.pruned_rows, not_opened(filtered(path, "id > 10"))) == (
        6,
        6,
        ["a b.parquet"],
    )
    assert not not_opened(filtered(path, "id = 9"))
    # Its row groups have four rows, of which three, two and one are left.
    monkeypatch.setattr(LakeTable, "unit_bytes", 1)
    source = filtered(path, "id >= 7 and id < 8")
    assert [unit.pruned_rows for unit in units_of(source)] == [3, 0, 1]
    assert list(places_of(source)) == [("a b.parquet:1", 3)]
    # Of a partition and of a column that no file has, single values are known.
    for text in ("later is not null", "day = date '2024-03-01'", "day is null"):
        assert not_opened(filtered(path, text)) == ["a b.parquet"]


def units_of(source):
    return source.all_units(source.all_scans())


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
    assert places_of(filtered(path, "id = 5")) == {
        ("a b.parquet", 5): {"id": 5, "day": datetime.date(2024, 2, 29), "later": None}
    }


def test_values_that_might_not_fit_are_read(tmp_path):
    """A value that is not exact in the type of the table is a reject, filter or not."""
    path = delta_with_statistics(tmp_path, "integer", "x", 1, 9)
    file = tmp_path / "t" / "x.parquet"
    pq.write_table(pa.table({"x": pa.array([1, 2**40], pa.int64())}), file)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[2]["add"] |= {"size": file.stat().st_size, "stats": "{}"}
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(bt.BeamTFRecordError, match="1 of 2 rows"):
        bt.write(path, tmp_path / "out", filter="x < 0")


def test_iceberg_deletes_of_skipped_files_are_not_read(tmp_path, monkeypatch):
    from pyiceberg.table import DataScan

    path = iceberg_of(tmp_path / "ice", (table_of(some_rows(10, at)) for at in (0, 10)))
    plan_files = DataScan.plan_files

    def with_deletes(scan):
        tasks = list(plan_files(scan))
        for task in tasks:
            task.delete_files.add(tasks[0].file)
        return tasks

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)
    monkeypatch.setattr("beam_tfrecord.sources.lake.iceberg._positions", lambda _: {})
    source = filtered(path, "id < 10")
    rows = {unit.file.name: (unit.rows, unit.pruned_rows) for unit in units_of(source)}
    (unread,) = not_opened(source)
    # How many rows are left is not known without the deletes.
    assert rows.pop(unread) == (None, 0)
    assert list(rows.values()) == [(10, 0)]


def test_a_renamed_column_of_iceberg_is_pruned_by_its_id(tmp_path):
    path = iceberg_of(tmp_path / "ice", (table_of(some_rows(10, at)) for at in (0, 10)))
    properties = {"uri": f"sqlite:///{tmp_path}/ice/c.db"}
    catalog = hinted_catalog("mine", **properties)
    table = catalog.load_table("ns.t")
    with table.update_schema() as change:
        change.rename_column("id", "number")
        change.rename_column("fare", "id")
    catalog.engine.dispose()
    assert len(not_opened(filtered(path, "number >= 10"))) == 1
    # 19 / 4 is the largest of the new `id`.
    assert len(not_opened(filtered(path, "id > 4"))) == 1
    assert len(not_opened(filtered(path, "id > 5"))) == 2
