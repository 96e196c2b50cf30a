"""The behaviour that all sources share, whatever they read."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beam_tfrecord.batch import Batch
from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.inputs import SOURCES
from beam_tfrecord.sources.base import Source
from tests.sources.behaviour import CASES, SCHEMA, Case, Row, some_rows


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A kind of source, set to cut small files."""
    chosen: Case = CASES[request.param]
    chosen.use_small_units(monkeypatch)
    return chosen


def _write(case: Case, directory: Path, **files: list[Row]) -> list[Row]:
    """Write files by their stems; return all rows in source order."""
    files = {stem: list(map(case.held, rows)) for stem, rows in files.items()}
    for stem, rows in files.items():
        directory.mkdir(parents=True, exist_ok=True)
        case.write(directory / f"{stem}{case.suffix}", rows)
    return [row for stem in sorted(files) for row in files[stem]]


def _rows(batches: Iterable[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows()]


def _by_origin(batches: Iterable[Batch]) -> dict[tuple[str, int], Row]:
    found: dict[tuple[str, int], Row] = {}
    for batch in batches:
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        for number, row in zip(numbers, batch.rows(), strict=True):
            assert (batch.origin.unit, number) not in found
            found[batch.origin.unit, number] = row
    return found


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def test_every_case_is_a_registered_source() -> None:
    for kind, case in CASES.items():
        source = case.open("x")
        assert type(source) is SOURCES[kind]
        assert source.kind == kind
        assert dataclasses.is_dataclass(source)


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 300])
def test_rows_come_back_as_they_were_written(case: Case, tmp_path: Path, count: int) -> None:
    rows = _write(case, tmp_path, x=some_rows(count))
    source = case.open(tmp_path)
    assert _rows(source.batches()) == rows
    assert {batch.data.schema for batch in source.batches()} == {source.schema()}


def test_schema_has_the_types_of_the_columns(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=some_rows(50))
    assert case.open(tmp_path).schema() == SCHEMA


def test_files_come_in_the_order_of_their_names(case: Case, tmp_path: Path) -> None:
    rows = _write(
        case,
        tmp_path,
        b=some_rows(120),
        a=some_rows(130, first=1000),
        c=[],
        d=some_rows(1, first=2000),
    )
    source = case.open([tmp_path / f"{stem}{case.suffix}" for stem in "dcab"])
    assert _rows(source.batches()) == rows


def test_a_file_is_cut_and_nothing_is_lost_at_the_edges(case: Case, tmp_path: Path) -> None:
    rows = _write(case, tmp_path, x=some_rows(300))
    source = case.open(tmp_path)
    schema, units = source.schema(), source.all_units(source.all_scans())
    assert len(units) > 3
    assert [unit.index for unit in units] == list(range(len(units)))
    assert len({unit.name for unit in units}) == len(units)
    pieces = [_rows(source.read(unit, schema)) for unit in units]
    assert list(itertools.chain.from_iterable(pieces)) == rows
    assert [unit.rows for unit in units] in ([len(piece) for piece in pieces], [None] * len(units))
    assert sum(unit.input_bytes for unit in units) <= (tmp_path / f"x{case.suffix}").stat().st_size
    assert all(unit.encoded_bytes > 0 for unit in units)


@pytest.mark.parametrize("batch_rows", [1, 7, 20, 10_000])
def test_batch_size_changes_neither_rows_nor_origins(
    case: Case, tmp_path: Path, batch_rows: int
) -> None:
    rows = _write(case, tmp_path, x=some_rows(300), y=some_rows(40, first=500))
    source = case.open(tmp_path)
    batches = list(source.batches(batch_rows=batch_rows))
    assert max(batch.num_rows for batch in batches) <= batch_rows
    found = _by_origin(batches)
    assert list(found.values()) == rows
    assert found == _by_origin(source.batches())


def test_row_numbers_of_a_unit_count_from_zero(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=some_rows(300))
    numbers: dict[str, list[int]] = {}
    for unit, number in _by_origin(case.open(tmp_path).batches(batch_rows=9)):
        numbers.setdefault(unit, []).append(number)
    for of_unit in numbers.values():
        assert of_unit == list(range(len(of_unit)))


def test_units_are_read_in_any_order_and_again(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=some_rows(300))
    source = case.open(tmp_path)
    schema, units = source.schema(), source.all_units(source.all_scans())
    in_order = _by_origin(source.batches())
    shuffled = random.Random(0).sample(units, len(units)) + units[:1]
    again = [_by_origin(source.read(unit, schema)) for unit in shuffled]
    for rows in again:
        assert rows.items() <= in_order.items()
    assert {key for rows in again for key in rows} == set(in_order)


def test_names_do_not_depend_on_how_files_are_named(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(case, tmp_path / "in", x=some_rows(200), y=some_rows(3))
    monkeypatch.chdir(tmp_path)
    expected = _by_origin(case.open(tmp_path / "in").batches())
    ways: list[Any] = [
        "in",
        f"in/*{case.suffix}",
        [f"in/y{case.suffix}", f"in/x{case.suffix}"],
        [tmp_path / "in", f"./in/x{case.suffix}"],
    ]
    for paths in ways:
        assert _by_origin(case.open(paths).batches()) == expected


def test_a_further_file_leaves_origins_alone(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, m=some_rows(200), n=some_rows(5))
    before = _by_origin(case.open(tmp_path).batches())
    _write(case, tmp_path, a=some_rows(30, first=700), z=some_rows(30, first=800))
    after = _by_origin(case.open(tmp_path).batches())
    assert before.items() < after.items()


def test_everything_that_travels_survives_pickling(case: Case, tmp_path: Path) -> None:
    rows = _write(case, tmp_path, x=some_rows(300))
    source: Source = _copy(case.open(tmp_path))
    assert source == case.open(tmp_path)
    chunks = [_copy(chunk) for file in source.files() for chunk in source.chunks(_copy(file))]
    scans = [_copy(source.scan(chunk)) for chunk in chunks]
    units = [_copy(unit) for unit in source.all_units(scans)]
    digests = [_copy(source.infer(of)) for of in (scans if source.infers_from_scans else units)]
    schema = _copy(source.merge(digests))
    batches = [batch for unit in units for batch in _copy(source).read(unit, schema)]
    assert _rows(batches) == rows
    assert sum(len(pickle.dumps(of)) for of in [*scans, *units, *digests]) < 60_000


def test_merge_does_not_depend_on_order(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=some_rows(100), y=some_rows(4), z=some_rows(1))
    source = case.open(tmp_path)
    scans = source.all_scans()
    pieces = scans if source.infers_from_scans else source.all_units(scans)
    digests = [source.infer(piece) for piece in pieces]
    shuffled = random.Random(0).sample(digests, len(digests))
    assert source.merge(shuffled) == source.merge(digests) == SCHEMA


def test_a_file_without_rows_still_gives_a_batch(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=[])
    source = case.open(tmp_path)
    (unit,) = source.all_units(source.all_scans())
    (batch,) = source.read(unit, SCHEMA)
    assert batch.data.schema == SCHEMA
    assert batch.num_rows == 0
    assert batch.origin is not None
    assert batch.origin.unit == unit.name == f"x{case.suffix}"


def test_columns_are_chosen_and_ordered(case: Case, tmp_path: Path) -> None:
    rows = _write(case, tmp_path, x=some_rows(100))
    source = case.open(tmp_path, columns=["name", "id"])
    assert source.schema() == pa.schema([("name", pa.string()), ("id", pa.int64())])
    assert _rows(source.batches()) == [{"name": row["name"], "id": row["id"]} for row in rows]


def test_a_column_that_is_not_there_is_refused(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=some_rows(3))
    with pytest.raises(UsageError, match="column 'gone' is not in the input: "):
        case.open(tmp_path, columns=["id", "gone"]).schema()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "columns is empty: name some, or leave it out"),
        ("id", "columns 'id' is one string: pass a list"),
        (["id", "name", "id"], "column 'id' is selected twice"),
    ],
)
def test_columns_that_make_no_sense_are_refused(
    case: Case, columns: Any, message: str, tmp_path: Path
) -> None:
    _write(case, tmp_path, x=some_rows(3))
    with pytest.raises(UsageError, match=message):
        case.open(tmp_path, columns=columns)


def test_directories_become_columns(case: Case, tmp_path: Path) -> None:
    first = _write(case, tmp_path / "t/day=1/city=a%20b", x=some_rows(50))
    second = _write(case, tmp_path / "t/day=2/city=__HIVE_DEFAULT_PARTITION__", x=some_rows(5))
    source = case.open(tmp_path / "t")
    assert source.schema().types == [*SCHEMA.types, pa.int64(), pa.string()]
    assert _rows(source.batches()) == [
        *({**row, "day": 1, "city": "a b"} for row in first),
        *({**row, "day": 2, "city": None} for row in second),
    ]
    alone = case.open(tmp_path / "t/day=2")
    assert [unit for unit, _ in _by_origin(alone.batches())] == [
        f"day=2/city=__HIVE_DEFAULT_PARTITION__/x{case.suffix}"
    ] * 5


def test_hidden_files_are_ignored(case: Case, tmp_path: Path) -> None:
    rows = _write(case, tmp_path, x=some_rows(20))
    for hidden in (".x", "_x"):
        (tmp_path / f"{hidden}{case.suffix}").write_bytes(b"\0 not a table")
    (tmp_path / "_temporary").mkdir()
    _write(case, tmp_path / "_temporary", x=some_rows(20))
    for paths in (tmp_path, f"{tmp_path}/*{case.suffix}", f"{tmp_path}/**/*{case.suffix}"):
        assert _rows(case.open(paths).batches()) == rows


@pytest.mark.parametrize("name", ["a b", "a%20b", "日本", "a[1]", "a:b", "a'b\"", "a#?b"])
def test_odd_file_names_are_just_names(case: Case, tmp_path: Path, name: str) -> None:
    rows = _write(case, tmp_path, **{name: some_rows(3)})
    origins = _by_origin(case.open(tmp_path / f"{name}{case.suffix}").batches())
    assert list(origins.values()) == rows
    assert {unit for unit, _ in origins} == {f"{name}{case.suffix}"}


def test_damage_is_told_with_file_and_place(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, w=some_rows(30), x=some_rows(200))
    case.damage(tmp_path / f"x{case.suffix}")
    with pytest.raises(DataError, match=case.damage_message) as caught:
        list(case.open(tmp_path).batches())
    assert "\n" not in str(caught.value)


def test_an_empty_or_foreign_file_is_told_by_its_name(case: Case, tmp_path: Path) -> None:
    path = tmp_path / f"x{case.suffix}"
    path.write_bytes(b"\xff\xd8\xff\xe0\0\0JFIF\0" * 50)
    with pytest.raises(BeamTFRecordError, match=rf"x\{case.suffix}"):
        list(case.open(path).batches())


def test_a_missing_column_is_refused_or_null(case: Case, tmp_path: Path) -> None:
    _write(case, tmp_path, x=some_rows(3))
    source = case.open(tmp_path)
    (unit,) = source.all_units(source.all_scans())
    wider = pa.schema([*SCHEMA, ("extra", pa.int64())])
    message = rf"column 'extra' of the schema is not in x\{case.suffix}: .*; or pass --union"
    with pytest.raises(DataError, match=message):
        list(source.read(unit, wider))
    filled = case.open(tmp_path, union=True).read(unit, wider)
    assert [row["extra"] for row in _rows(filled)] == [None] * 3
