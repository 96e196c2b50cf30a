"""The behaviour that all sources share: each passes the tests that are there for sources of others.

Sources with a defect fail those tests.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import pickle
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.rows.batch import Batch, Origin
from beam_tfrecord.sources.base import Chunk, InputFile, Scan, Source, Unit
from beam_tfrecord.sources.choose import SOURCES
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.testing import Row, SourceConformance, some_rows
from tests.sources.behaviour import CASES, Case


class TestSources(SourceConformance):
    """Every kind of source, set to cut small files."""

    case: Case

    @pytest.fixture(autouse=True, params=sorted(CASES))
    def _choose(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.case = request.param, CASES[request.param]
        self.suffix, self.damage_message = self.case.suffix, self.case.damage_message
        self.cuts_files = self.case.cuts_files
        self.case.use_small_units(monkeypatch)

    def rows(self, count: int, *, first: int = 0) -> list[Row]:
        return list(map(self.case.held, some_rows(count, first=first)))

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        self.case.write(path, rows)

    def open(self, paths: Any, **options: Any) -> Source:
        return self.case.open(paths, **options)

    def damage(self, path: Path) -> None:
        self.case.damage(path)

    @pytest.mark.slow_after(1)
    def test_workers_and_batch_size_do_not_change_a_dataset(self, tmp_path: Path) -> None:
        super().test_workers_and_batch_size_do_not_change_a_dataset(tmp_path)

    def test_it_is_registered(self) -> None:
        source = self.open("x")
        assert type(source) is SOURCES[source.kind]
        assert source.kind == self.kind.split()[0]


# The others ask for the size of the file first.
@pytest.mark.parametrize("kind", ["arrow", "avro", "csv", "json", "numpy", "tfrecord"])
def test_a_fault_of_the_system_is_no_damage(kind, tmp_path):
    case = CASES[kind]
    path = tmp_path / f"x{case.suffix}"
    case.write(path, list(map(case.held, some_rows(40))))
    source = case.open(str(path))
    scans = source.all_scans()
    schema, unit = source.schema(scans), source.all_units(scans)[0]
    path.unlink()
    # Linux answers EIO to whoever reads the first bytes of its own memory.
    path.symlink_to("/proc/self/mem")
    for read in (lambda: source.scan(scans[0].chunk), lambda: list(source.read(unit, schema))):
        with pytest.raises(OSError, match="Input/output error") as caught:
            read()
        assert caught.value.errno == errno.EIO


_COUNTER = itertools.count()


class LosesRows(Csv):
    def read(self, unit: Unit, schema: pa.Schema, **options: Any) -> Iterator[Batch]:
        for batch in super().read(unit, schema, **options):
            yield dataclasses.replace(batch, data=batch.data[:-1])


class NumbersRowsByBatch(Csv):
    def read(self, unit: Unit, schema: pa.Schema, **options: Any) -> Iterator[Batch]:
        for number, batch in enumerate(super().read(unit, schema, **options)):
            yield dataclasses.replace(batch, origin=Origin(unit.name, unit.index, number * 1000))


class NamesFilesByTheirPaths(Csv):
    def files(self) -> Iterator[InputFile]:
        return (dataclasses.replace(file, name=file.path) for file in super().files())


class ReadsInOrderOfArguments(Csv):
    def files(self) -> Iterator[InputFile]:
        return iter([next(Csv((path,), types=self.types).files()) for path in self.paths])

    def all_units(self, scans: Sequence[Scan]) -> list[Unit]:
        by_file = itertools.groupby(scans, key=lambda scan: scan.chunk.file)
        return [unit for _, of_file in by_file for unit in self.units(list(of_file))]


class DoesNotLookForChanges(Csv):
    def files(self) -> Iterator[InputFile]:
        return (dataclasses.replace(file, state="") for file in super().files())


class DependsOnWhatWasReadBefore(Csv):
    def read(self, unit: Unit, schema: pa.Schema, **options: Any) -> Iterator[Batch]:
        if unit.index:
            unit = dataclasses.replace(unit, name=f"{unit.name}-{next(_COUNTER)}")
        return super().read(unit, schema, **options)


class HasNoBatchForAnEmptyFile(Csv):
    def read(self, unit: Unit, schema: pa.Schema, **options: Any) -> Iterator[Batch]:
        return (batch for batch in super().read(unit, schema, **options) if batch.num_rows)


class HidesTheTypeOfDetails(Csv):
    detail_type = None


class CannotBeSent(Csv):
    def scan(self, chunk: Chunk) -> Scan:
        return dataclasses.replace(super().scan(chunk), detail=lambda: None)


DEFECTS = {
    LosesRows: "a_file_is_cut_and_nothing_is_lost_at_the_edges",
    NumbersRowsByBatch: "batch_size_changes_neither_rows_nor_origins",
    NamesFilesByTheirPaths: "odd_file_names_are_just_names",
    ReadsInOrderOfArguments: "files_come_in_the_order_of_their_names",
    DoesNotLookForChanges: "a_change_while_it_is_read_is_found",
    DependsOnWhatWasReadBefore: "units_are_read_in_any_order_and_again",
    HasNoBatchForAnEmptyFile: "a_file_without_rows_still_gives_a_batch",
    HidesTheTypeOfDetails: "units_can_be_stored_for_a_job_that_resumes",
    CannotBeSent: "everything_that_travels_survives_pickling",
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect, tmp_path):
    """The test that is about a behaviour passes for the source as it is, and fails without it."""

    class Kit(SourceConformance):
        suffix = ".csv"
        source = Csv
        write = staticmethod(CASES["csv"].write)

        def open(self, paths: Any, **options: Any) -> Source:
            types = CASES["csv"].open("x").types
            return self.source(paths, types=types, chunk_bytes=1024, **options)

    name = f"test_{DEFECTS[defect]}"
    getattr(Kit(), name)(tmp_path / "right")
    Kit.source = defect
    failures = (AssertionError, AttributeError, pickle.PicklingError, pytest.fail.Exception)
    with pytest.raises(failures):
        getattr(Kit(), name)(tmp_path / "wrong")


WORDS = [
    (source, field.name)
    for source in SOURCES.values()
    for field in dataclasses.fields(source)
    if typing.get_type_hints(source, localns={"pa": pa})[field.name]
    in (Sequence[str], Sequence[str] | None)
]


@pytest.mark.parametrize(("source", "option"), WORDS)
def test_one_string_is_not_a_list_of_letters(source, option):
    table = {"table": "t"} if source is SOURCES["sql"] else {}
    options = table | {option: "word"}
    if table and option != "columns":
        assert getattr(source("a", **options), option) == ("word",)
    else:
        with pytest.raises(UsageError, match=f"^{option} 'word' is one string: pass a list of"):
            source("a", **options)


def test_names_may_be_an_array():
    source = SOURCES["parquet"]("a", columns=np.array(["x", "y"]))
    assert source.columns == ("x", "y")
