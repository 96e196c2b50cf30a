"""Tables of Delta Lake and Iceberg: the rows of one snapshot, as their own libraries read them."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import (
    BeamTFRecordError,
    DataError,
    InputChanged,
    SchemaConflict,
    TargetExists,
    UsageError,
)
from beam_tfrecord.sources.choose import detect_kind, make_source
from beam_tfrecord.sources.lake_table import LakeTable
from tests.helpers.lazy import Lazy
from tests.helpers.made_tables import (
    FEATURES,
    deletion_vector,
    handmade_delta,
    hint_at,
    hinted_catalog,
)
from tests.helpers.reading import rows_of

deltalake = Lazy("deltalake")
pyiceberg_sql = Lazy("pyiceberg.catalog.sql")

pytestmark = pytest.mark.slow

DAY = datetime.date(2024, 2, 29)
TIME = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)
Row = dict[str, Any]


def some_rows(count, first=0):
    return [
        {
            "id": number,
            "city": ["a b", "c/d", "100%", None, "ü+"][number % 5],
            "day": DAY + datetime.timedelta(days=number % 2),
            "fare": None if number % 7 == 3 else number / 4,
            "price": decimal.Decimal(number) / 100,
            "at": TIME + datetime.timedelta(microseconds=number),
            "tags": ["x"] * (number % 3),
        }
        for number in range(first, first + count)
    ]


SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "city": pa.string(),
        "day": pa.date32(),
        "fare": pa.float64(),
        "price": pa.decimal128(10, 2),
        "at": pa.timestamp("us"),
        "tags": pa.list_(pa.string()),
    }
)


def table_of(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def by_id(rows):
    return sorted(rows, key=lambda row: row["id"])


def places_of(source):
    """Return the unit and the row number of each id."""
    places = {}
    for batch in source.batches(batch_rows=3):
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        ids = batch.data.column("id").to_pylist()
        places |= {i: (batch.origin.unit, number) for i, number in zip(ids, numbers, strict=True)}
    return places


@pytest.fixture
def delta(tmp_path):
    """Return a partitioned table of three versions, in a directory with characters of URLs."""
    path = str(tmp_path / "my täble +")
    deltalake.write_deltalake(path, table_of(some_rows(40)), partition_by=["city", "day"])
    more = table_of(some_rows(9, 40)).append_column("new", pa.array(["n"] * 9))
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")
    deltalake.DeltaTable(path).delete("id % 10 = 3")
    return path


@pytest.mark.parametrize(("version", "count"), [(0, 40), (1, 49), (2, 44), (None, 44)])
def test_delta_has_the_rows_of_each_version(delta, version, count):
    expected = deltalake.DeltaTable(delta, version=version).to_pyarrow_table()
    source = bt.ReadFromDelta(delta, version=version).source
    assert by_id(rows_of(source)) == by_id(
        [{name: row[name] for name in source.schema().names} for row in expected.to_pylist()]
    )
    assert len(rows_of(source)) == count


def test_a_delta_table_is_written_once_for_each_version(delta, tmp_path):
    output = tmp_path / "out"
    manifest = bt.write(delta, output, key="id")
    assert manifest.examples == 44
    stored = json.loads((output / "manifest.json").read_text())
    source = stored["generations"][0]["source"]
    assert source["snapshot"] == {"table": deltalake.DeltaTable(delta).metadata().id, "version": 2}
    assert sum(file["bytes"] for file in source["files"]) > 0
    before = (output / "job.json").stat().st_mtime_ns
    bt.write(delta, output, key="id")
    assert (output / "job.json").stat().st_mtime_ns == before
    deltalake.write_deltalake(delta, table_of(some_rows(1, 99)), mode="append", schema_mode="merge")
    with pytest.raises(TargetExists):
        bt.write(delta, output, key="id")
    # The older version is still this dataset.
    bt.write(delta, output, key="id", version=2)
    assert (output / "job.json").stat().st_mtime_ns == before


def test_delta_as_of_finds_each_version(tmp_path):
    path = str(tmp_path / "table")
    for row in range(3):
        deltalake.write_deltalake(path, pa.table({"row": [row]}), mode="append")
    # The time of a version is that of its file in the log.
    for version, log in enumerate(sorted(Path(path, "_delta_log").glob("*.json"))):
        entries = [json.loads(line) for line in log.read_text().splitlines()]
        for entry in entries:
            if "commitInfo" in entry:
                entry["commitInfo"]["timestamp"] = (version + 1) * 1_000_000
        log.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
        os.utime(log, ((version + 1) * 1000, (version + 1) * 1000))
    for second, rows in ((1000, 1), (1001, 1), (1999, 1), (2000, 2), (2999, 2), (3000, 3)):
        at = datetime.datetime.fromtimestamp(second, datetime.UTC).isoformat()
        assert len(rows_of(make_source(path, options={"as_of": at}))) == rows, second
    with pytest.raises(UsageError, match="no version as old"):
        make_source(path, options={"as_of": "1970-01-01T00:16:39Z"})


def test_a_vacuumed_version_is_refused_by_its_file(delta):
    source = bt.ReadFromDelta(delta, version=0).source
    table = deltalake.DeltaTable(delta)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(InputChanged, match=r"no such file.*vacuumed, read a newer version"):
        list(source.files())


def test_mapped_columns_and_deletion_vectors_are_honoured(tmp_path, monkeypatch):
    deleted = [2, 4, 5, 6, 7, 9]
    path = handmade_delta(tmp_path / "t", FEATURES, deletionVector=deletion_vector(deleted))
    whole = handmade_delta(tmp_path / "w", FEATURES)
    source = make_source(path)
    expected = [{"id": i, "day": DAY, "later": None} for i in (0, 1, 3, 8)]
    assert rows_of(source) == expected
    # A delete does not move the other rows.
    remaining = places_of(source)
    assert remaining == {
        i: place for i, place in places_of(make_source(whole)).items() if i in remaining
    }
    # A unit of which all rows are deleted has no rows.
    monkeypatch.setattr(LakeTable, "unit_bytes", 1)
    assert rows_of(source) == expected
    assert rows_of(make_source(path, columns=["day"])) == [{"day": DAY}] * 4


def test_another_feature_is_refused_by_its_name(tmp_path):
    path = handmade_delta(tmp_path / "t", [*FEATURES, "newFeature"])
    with pytest.raises(UsageError, match="newFeature"):
        make_source(path)


def test_columns_of_types_that_are_not_supported_can_be_left_out(tmp_path):
    path = Path(handmade_delta(tmp_path / "t", [*FEATURES, "variantType"]))
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    schema = json.loads(lines[1]["metaData"]["schemaString"])
    schema["fields"][2]["type"] = "variant"
    lines[1]["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(UsageError, match=r"column 'later' of .* is a variant: leave it out"):
        make_source(str(path))
    source = make_source(str(path), columns=["id", "day"])
    assert rows_of(source) == [{"id": i, "day": DAY} for i in range(10)]
    rows = pa.table({"id": [1, 2], "by": [b"a", b"b"]})
    deltalake.write_deltalake(str(tmp_path / "bytes"), rows, partition_by=["by"])
    with pytest.raises(UsageError, match=r"column 'by' of .* is a partition of bytes"):
        make_source(str(tmp_path / "bytes"))
    assert len(rows_of(make_source(str(tmp_path / "bytes"), columns=["id"]))) == 2


def test_a_file_of_another_size_than_in_the_log_is_refused(tmp_path):
    path = handmade_delta(tmp_path / "t", FEATURES)
    with (tmp_path / "t" / "a b.parquet").open("ab") as file:
        file.write(b"x")
    with pytest.raises(InputChanged, match="in the log of table"):
        list(make_source(path).files())


def test_an_iceberg_directory_is_read_as_pyiceberg_does_after_a_crash_at_every_step(tmp_path):
    """Every file that a commit writes is one step; the hint is the last."""
    from pyiceberg.table import StaticTable

    catalog = pyiceberg_sql.SqlCatalog("mine", uri="sqlite://", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=SCHEMA)
    directory = tmp_path / "ns" / "t"
    table.append(table_of(some_rows(5)))
    hint_at(table)
    before, committed = {*directory.rglob("*.*")}, table.metadata_location
    table.append(table_of(some_rows(4, 5)))
    steps = sorted({*directory.rglob("*.*")} - before, key=lambda path: path.stat().st_mtime_ns)
    assert [path.suffix for path in steps] == [".parquet", ".avro", ".avro", ".json"]
    written = {path: path.read_bytes() for path in steps}
    for path in steps:
        path.unlink()
    hint = directory / "metadata" / "version-hint.text"
    for path, data in [*written.items(), (hint, steps[-1].name.encode())]:
        path.write_bytes(data)
        expected = StaticTable.from_metadata(str(directory)).scan().to_arrow().to_pylist()
        assert by_id(rows_of(make_source(str(directory)))) == by_id(expected)
    assert len(expected) == 9
    # Without the hint, no file tells whether the catalogue has the last commit.
    hint.unlink()
    with pytest.raises(
        UsageError, match=r"which metadata file of Iceberg table .* is current"
    ) as no:
        make_source(str(directory))
    assert "its catalogue names" in str(no.value)
    assert len(rows_of(make_source(committed.removeprefix("file://")))) == 5
    assert detect_kind(committed.removeprefix("file://")) == "iceberg"
    catalog.engine.dispose()


@pytest.mark.parametrize(
    ("hint", "name"),
    [(None, "v10.metadata.json"), ("3", "v3.gz.metadata.json"), ("3", "v3.metadata.json.gz")],
)
def test_an_iceberg_directory_whose_hint_names_no_file_is_refused(tmp_path, hint, name):
    """A directory that some writer left is no table of which one could know the snapshot."""
    place = tmp_path / "metadata"
    place.mkdir()
    for one in ("v2.metadata.json", name):
        (place / one).write_text("{")
    if hint:
        (place / "version-hint.text").write_text(hint)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "deleted.parquet")
    with pytest.raises(UsageError, match="which metadata file") as refused:
        make_source(str(tmp_path))
    assert "pass the file that its catalogue names, with gunzip" in str(refused.value)


@dataclasses.dataclass(frozen=True)
class IcebergTable:
    """A table of a catalogue in SQLite."""

    catalog: Any
    properties: dict[str, str]
    directory: str

    @property
    def table(self):
        return self.catalog.load_table("ns.trips")


@pytest.fixture
def iceberg(tmp_path):
    """Give a table of which a column was renamed, one added, and rows deleted."""
    from pyiceberg.types import StringType

    home = tmp_path / "ware house"
    home.mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = hinted_catalog("mine", **properties, warehouse=f"file://{home}")
    catalog.create_namespace("ns")
    catalog.create_table("ns.trips", schema=SCHEMA)
    found = IcebergTable(catalog, properties, f"{home}/ns/trips")
    with found.table.update_spec() as partition:
        partition.add_identity("city")
    found.table.append(table_of(some_rows(40)))
    with found.table.update_schema() as change:
        change.rename_column("fare", "cost")
        change.add_column("new", StringType())
        change.delete_column("price")
    more = table_of(some_rows(9, 40)).drop_columns(["price"]).rename_columns({"fare": "cost"})
    found.table.append(more.append_column("new", pa.array(["n"] * 9)))
    found.table.delete("id in (3, 13)")
    yield found
    catalog.engine.dispose()


def test_iceberg_has_the_rows_of_each_snapshot(iceberg):
    versions = [one.snapshot_id for one in iceberg.table.snapshots()]
    assert len(versions) >= 3
    for version in (*versions, None):
        expected = iceberg.table.scan(snapshot_id=version).to_arrow()
        source = make_source(iceberg.directory, options={"version": version})
        assert by_id(rows_of(source)) == by_id(expected.to_pylist())
    with pytest.raises(UsageError, match="has no snapshot 5"):
        make_source(iceberg.directory, options={"version": 5})
    with pytest.raises(UsageError, match="has no snapshot as old as 2001-01-01"):
        make_source(iceberg.directory, options={"as_of": "2001-01-01"})


def test_a_catalogue_and_a_directory_give_the_same_dataset(iceberg, tmp_path):
    output = tmp_path / "out"
    bt.write(iceberg.directory, output, key="id")
    before = (output / "job.json").stat().st_mtime_ns
    named = "iceberg://mine/ns.trips"
    assert detect_kind(named) == "iceberg"
    manifest = bt.write(named, output, key="id", properties=iceberg.properties)
    assert (output / "job.json").stat().st_mtime_ns == before
    assert manifest.examples == 47
    job = (output / "job.json").read_text()
    assert "catalog.db" not in job
    stored = json.loads((output / "manifest.json").read_text())["generations"][0]["source"]
    assert stored["snapshot"] == {
        "table": str(iceberg.table.metadata.table_uuid),
        "version": iceberg.table.current_snapshot().snapshot_id,
    }


def tasks_of(table, format, deletes=()):
    """Return the tasks of a scan as other writers could make them: of a format, with deletes."""
    from pyiceberg.manifest import FileFormat

    def file(path, size):
        known = FileFormat[format]
        return SimpleNamespace(file_path=path, file_size_in_bytes=size, file_format=known)

    return [
        SimpleNamespace(
            file=file(task.file.file_path, task.file.file_size_in_bytes),
            delete_files=[file(path, 0) for path in deletes],
        )
        for task in table.scan().plan_files()
    ]


def test_position_deletes_are_honoured(iceberg, tmp_path, monkeypatch):
    from pyiceberg.table import DataScan

    places = places_of(make_source(iceberg.directory))
    tasks = tasks_of(iceberg.table, "PARQUET", [f"file://{tmp_path}/deletes.parquet"])
    # The first two rows of each file, and one of them twice.
    locations = [task.file.file_path for task in tasks for _ in range(3)]
    rows = pa.table({"file_path": locations, "pos": [0, 1, 1] * len(tasks)})
    pq.write_table(rows, tmp_path / "deletes.parquet")
    monkeypatch.setattr(DataScan, "plan_files", lambda _: tasks)
    source = make_source(iceberg.directory)
    assert places_of(source) == {i: place for i, place in places.items() if place[1] > 1}


def test_a_change_of_the_columns_alone_is_another_dataset(iceberg, tmp_path):
    version = iceberg.table.current_snapshot().snapshot_id
    bt.write(iceberg.directory, tmp_path / "out")
    with iceberg.table.update_schema() as change:
        change.rename_column("cost", "price")
    assert iceberg.table.current_snapshot().snapshot_id == version
    assert by_id(rows_of(make_source(iceberg.directory))) == by_id(
        iceberg.table.scan().to_arrow().to_pylist()
    )
    with pytest.raises(TargetExists):
        bt.write(iceberg.directory, tmp_path / "out")
    # The snapshot has the columns that it had.
    bt.write(iceberg.directory, tmp_path / "out", version=version)


def test_files_without_ids_are_read_by_the_mapping_of_names(tmp_path):
    pq.write_table(table_of(some_rows(5)), tmp_path / "x.parquet")
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalog = hinted_catalog("mine", **properties)
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=SCHEMA)
    table.add_files([f"{tmp_path}/x.parquet"])
    with table.update_schema() as change:
        change.rename_column("fare", "cost")
    directory = f"{tmp_path}/ns/t"
    assert rows_of(make_source(directory)) == table.scan().to_arrow().to_pylist()
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    catalog.engine.dispose()
    with pytest.raises(DataError, match=r"x\.parquet has no ids of columns, and its table no"):
        rows_of(make_source(directory))


@pytest.mark.parametrize("place", ["struct", "list", "map"])
def test_a_field_renamed_inside_of_a_column_is_refused(tmp_path, place):
    of = pa.struct([("a", pa.int32()), ("b", pa.string())])
    value, path = {
        "struct": ({"a": 1, "b": "x"}, "st.a"),
        "list": ([{"a": 1, "b": "x"}], "st.element.a"),
        "map": ([("k", {"a": 1, "b": "x"})], "st.value.a"),
    }[place]
    nested = {"struct": of, "list": pa.list_(of), "map": pa.map_(pa.string(), of)}[place]
    rows = pa.table({"n": [1], "st": pa.array([value], nested)})
    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalog = hinted_catalog("mine", **properties)
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=rows.schema)
    table.append(rows)
    assert rows_of(make_source(f"{tmp_path}/ns/t")) == rows.to_pylist()
    with table.update_schema() as change:
        change.rename_column(path, "aa")
    catalog.engine.dispose()
    told = (
        r"^column 'st' is .*a: int32.* in data/\S+\.parquet but .*aa: int32.* in the table: "
        "fields inside of it that were renamed, added or dropped are not supported: write the rows"
    )
    with pytest.raises(SchemaConflict, match=told):
        rows_of(make_source(f"{tmp_path}/ns/t"))
    assert rows_of(make_source(f"{tmp_path}/ns/t", columns=["n"])) == [{"n": 1}]


@pytest.mark.parametrize("has_ids", [True, False])
def test_columns_of_delta_are_found_by_ids(tmp_path, has_ids):
    path = Path(handmade_delta(tmp_path / "t", FEATURES))
    log = path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[1]["metaData"]["configuration"]["delta.columnMapping.mode"] = "id"
    if has_ids:
        # Other names than those in the log, as other formats of the same files have them.
        file = path / "a b.parquet"
        fields = [
            pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
            for number, name in ((9, "col-1"), (1, "a"))
        ]
        pq.write_table(pa.table([range(10, 20), range(10)], schema=pa.schema(fields)), file)
        lines[2]["add"]["size"] = file.stat().st_size
    log.write_text("\n".join(map(json.dumps, lines)))
    expected = [{"id": i, "day": DAY, "later": None} for i in range(10)]
    assert rows_of(make_source(str(path))) == expected


def test_workers_need_no_catalogue(iceberg):
    import pickle

    source = make_source("iceberg://mine/ns.trips", options={"properties": iceberg.properties})
    sent, files = source.to_send()
    expected = rows_of(source)
    iceberg.table.append(iceberg.table.scan(limit=1).to_arrow())
    os.remove(iceberg.properties["uri"].removeprefix("sqlite:///"))
    assert not files
    assert rows_of(pickle.loads(pickle.dumps(sent))) == expected


@pytest.mark.parametrize("damaged", ["_delta_log/x.json", "metadata/v1.metadata.json"])
def test_a_damaged_log_is_one_line(tmp_path, damaged):
    path = tmp_path / damaged
    path.parent.mkdir()
    path.write_text("{")
    (path.parent / "version-hint.text").write_text("1")
    with pytest.raises(BeamTFRecordError, match=r"cannot read .* table") as caught:
        make_source(str(tmp_path))
    assert "\n" not in str(caught.value)
    assert np.isin(detect_kind(str(tmp_path)), ["delta", "iceberg"])
