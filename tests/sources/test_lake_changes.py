"""Tables that change between jobs and while a job reads them; the behaviour of other sources."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import InputChanged, TargetExists
from beam_tfrecord.jobs import run
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.choose import make_source
from beam_tfrecord.sources.delta import Delta
from beam_tfrecord.sources.lake_table import LakeTable
from beam_tfrecord.testing import SCHEMA, Row, SourceConformance
from tests.helpers.lazy import Lazy
from tests.helpers.made_tables import delta_log, hinted_catalog
from tests.sources.behaviour import CASES

deltalake = Lazy("deltalake")

pytestmark = pytest.mark.slow


class DeltaTable:
    """A table of numbers, of which each commit adds a file."""

    def __init__(self, directory):
        self.path = str(directory / "t")
        self.append(0)

    def append(self, first):
        """Add the numbers from `first` to `first` + 9."""
        rows = pa.table({"n": range(first, first + 10)})
        deltalake.write_deltalake(self.path, rows, mode="append")

    def version(self):
        """Return the number of the last version."""
        return int(deltalake.DeltaTable(self.path).version())

    def time(self):
        """Return a time just after the last version, in seconds since 1970."""
        return float(deltalake.DeltaTable(self.path).history(1)[0]["timestamp"] / 1000 + 0.001)

    def files(self):
        """Return the names of the files of the last version."""
        return list(pa.table(deltalake.DeltaTable(self.path).get_add_actions())["path"].to_pylist())

    def vacuum(self):
        """Replace all rows, and remove the files of older versions."""
        rows = pa.table({"n": [1]})
        deltalake.write_deltalake(self.path, rows, mode="overwrite")
        table = deltalake.DeltaTable(self.path)
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)


class IcebergTable:
    """The same of Iceberg."""

    def __init__(self, directory):
        properties = {"uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}"}
        self.catalog = hinted_catalog("mine", **properties)
        self.catalog.create_namespace("ns")
        self.catalog.create_table("ns.t", schema=pa.schema({"n": pa.int64()}))
        self.path = str(directory / "ns" / "t")
        self.append(0)

    @property
    def table(self):
        """The table as it is now."""
        return self.catalog.load_table("ns.t")

    def append(self, first):
        """Add the numbers from `first` to `first` + 9."""
        self.table.append(pa.table({"n": range(first, first + 10)}))
        self.catalog.engine.dispose()

    def version(self):
        """Return the id of the last snapshot."""
        return int(self.table.current_snapshot().snapshot_id)

    def time(self):
        """Return a time just after the last snapshot, in seconds since 1970."""
        return float(self.table.current_snapshot().timestamp_ms / 1000 + 0.001)

    def files(self):
        """Return the names of the files of the last snapshot."""
        paths = [task.file.file_path for task in self.table.scan().plan_files()]
        return [path.removeprefix(f"file://{self.path}/") for path in paths]

    def vacuum(self):
        """Replace all rows, and remove the files of older snapshots."""
        names = self.files()
        self.table.overwrite(pa.table({"n": [1]}))
        for name in names:
            os.remove(os.path.join(self.path, name))
        self.catalog.engine.dispose()


@pytest.fixture(params=[DeltaTable, IcebergTable])
def table(request, tmp_path):
    """Make a table of each kind, with one file."""
    (tmp_path / "in").mkdir()
    return request.param(tmp_path / "in")


def numbers_of(out):
    return sorted(int(row["n"]) for row in bt.load(out).rows())


def when_listed(patch, act):
    """Let the next job call `act` once it has listed its input."""
    left, listing = [act], run.list_input

    def listed(source):
        found = listing(source)
        if left:
            left.pop()()
        return found

    patch.setattr(run, "list_input", listed)


def test_a_commit_while_a_job_reads_is_left_to_the_next_job(table, tmp_path, monkeypatch):
    version = table.version()
    when_listed(monkeypatch, lambda: table.append(10))
    bt.write(table.path, tmp_path / "out")
    assert numbers_of(tmp_path / "out") == list(range(10))
    stored = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert stored["generations"][0]["source"]["snapshot"]["version"] == version
    bt.write(table.path, tmp_path / "out", overwrite=True)
    assert numbers_of(tmp_path / "out") == list(range(20))


def test_a_table_vacuumed_while_a_job_reads_is_one_line(table, tmp_path, monkeypatch):
    (name,) = table.files()
    when_listed(monkeypatch, table.vacuum)
    told = "was removed while it was read: if the table was vacuumed, read a newer version"
    with pytest.raises(InputChanged, match=told) as caught:
        bt.write(table.path, tmp_path / "out")
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "manifest.json").exists()
    bt.write(table.path, tmp_path / "out")
    assert numbers_of(tmp_path / "out") == [1]


def test_reruns_after_a_new_version(table, tmp_path):
    out, version = tmp_path / "out", table.version()
    before = table.time()
    bt.write(table.path, out)
    written = (out / "job.json").stat().st_mtime_ns
    time.sleep(max(0.0, before + 0.01 - time.time()))
    table.append(10)

    def is_same(**options):
        bt.write(table.path, out, **options)
        return (out / "job.json").stat().st_mtime_ns == written

    as_of = datetime.datetime.fromtimestamp(before, datetime.UTC).isoformat()
    assert is_same(version=version)
    assert is_same(as_of=as_of)
    for options in ({}, {"version": table.version()}):
        with pytest.raises(TargetExists, match="input added"):
            bt.write(table.path, out, **options)
    bt.write(table.path, out, overwrite=True)
    written = (out / "job.json").stat().st_mtime_ns
    assert is_same()
    assert is_same(version=table.version())
    with pytest.raises(TargetExists, match="input removed"):
        bt.write(table.path, out, as_of=as_of)


def test_widened_columns_have_the_wider_type(tmp_path):
    from pyiceberg.types import DoubleType, LongType

    properties = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    catalog = hinted_catalog("mine", **properties)
    catalog.create_namespace("ns")
    narrow = pa.schema({"a b": pa.int32(), "x": pa.float32()})
    table = catalog.create_table("ns.t", schema=narrow)
    table.append(pa.table({"a b": [1, None, 2**31 - 1], "x": [0.1, 0.5, None]}, narrow))
    with table.update_schema() as change:
        change.update_column("a b", LongType())
        change.update_column("x", DoubleType())
    wide = pa.schema({"a b": pa.int64(), "x": pa.float64()})
    table.append(pa.table({"a b": [2**40, 7], "x": [0.1, None]}, wide))
    source = make_source(f"{tmp_path}/ns/t")
    assert source.schema().types == wide.types
    rows = [row for batch in source.batches() for row in batch.rows()]
    assert sorted(map(str, rows)) == sorted(map(str, table.scan().to_arrow().to_pylist()))
    # The statistics of the older file have fewer bytes.
    for text, count in (('"a b" > 2147483647', 1), ('"a b" = 2147483647', 1), ("x = 0.5", 1)):
        output = tmp_path / "out"
        assert bt.write(source.paths[0], output, filter=text, overwrite=True).examples == count
        job = json.loads((output / "job.json").read_text())
        assert job["rows_read"] == 5
    catalog.engine.dispose()


class TestTables(SourceConformance):
    """What is asked of files is asked of the files of a table, too, but not how they are named."""

    suffix = ".parquet"
    damage_message = r"cannot read x\.parquet from row [0-9]+ on \(.*CRC checksum.*\)"
    has_partitions = False

    @pytest.fixture(autouse=True)
    def _cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(LakeTable, "unit_bytes", 1500)

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        pq.write_table(
            pa.Table.from_pylist(list(rows), SCHEMA),
            path,
            row_group_size=20,
            use_dictionary=False,
            write_page_checksum=True,
        )
        delta_log(path.parent)

    def open(self, paths: Any, **options: Any) -> Source:
        return Delta(paths, **options)

    damage = staticmethod(CASES["parquet"].damage)

    def _has_option(self, name: str) -> bool:
        return name == "columns"


_OF_FILES = (
    "it_is_a_frozen_dataclass_with_a_kind",
    "files_come_in_the_order_of_their_names",
    "names_do_not_depend_on_how_files_are_named",
    "hidden_files_are_ignored",
    "odd_file_names_are_just_names",
    "a_foreign_file_is_reported_by_its_name",
)
for _name in _OF_FILES:
    setattr(TestTables, f"test_{_name}", None)
