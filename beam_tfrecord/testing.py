"""`SourceConformance`: the tests that every source of files passes, for sources of your own, too.

The tests need no package besides this one and pytest. A subclass makes, opens and
damages files; everything else is here::

    class TestLines(SourceConformance):
        suffix = ".lines"
        schema = pa.schema([("line", pa.string()), ("length", pa.int64())])
        damage_message = "x[.]lines:101 is not UTF-8"

        def rows(self, count, *, first=0): ...
        def write(self, path, rows): ...
        def open(self, paths, **options): ...
        def damage(self, path): ...

``pytest.register_assert_rewrite("beam_tfrecord.testing")`` in a ``conftest.py``, before the import,
shows the values in a failed comparison.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import pickle
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError, InputChanged, UsageError
from beam_tfrecord.job_state.stored_state import load_tasks, save_tasks
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.sources.base import Source, Unit
from beam_tfrecord.sources.read_tasks import pack_units
from beam_tfrecord.transforms.read_batches import ReadBatches

__all__ = ["SCHEMA", "Row", "SourceConformance", "some_rows"]

Row = dict[str, Any]

# What most formats can store: a number, a fraction and a text in each row.
SCHEMA = pa.schema([("id", pa.int64()), ("share", pa.float64()), ("name", pa.string())])
# Largest size of what a file of 300 rows may add to the plan of a job, pickled.
_PLAN_BYTES = 60_000


def some_rows(count: int, *, first: int = 0) -> list[Row]:
    """Return `count` rows with nulls, commas, quotes, line ends and letters of every length."""
    names = ["plain", "a,b", 'say "x"', "two\nlines", "naïve", "日本語", "🦊", None, "end\r\n", " "]
    return [
        {
            "id": None if number % 11 == 3 else number,
            "share": None if number % 7 == 5 else number / 8,
            "name": names[number % len(names)],
        }
        for number in range(first, first + count)
    ]


class SourceConformance:
    """Tests of a source of local files, which pytest finds in a subclass whose name has ``Test``.

    Options that the source lacks are not tested: those of its dataclass are known, and class
    attributes state the rest.

    Attributes:
        suffix: Suffix of the files.
        schema: Types of the rows, by default `SCHEMA`.
        damage_message: Pattern of the error that names the file and the place of the damage.
        cuts_files: Whether the source cuts a file into several units.
        has_partitions: Whether directories ``key=value`` become columns.
    """

    suffix: ClassVar[str]
    schema: pa.Schema = SCHEMA
    damage_message: ClassVar[str]
    cuts_files: bool = True
    has_partitions: bool = True

    def rows(self, count: int, *, first: int = 0) -> list[Row]:
        """Return `count` different rows with the types of `schema`, as the files can store them.

        Args:
            count: Number of rows.
            first: Number of the first row; rows of other numbers differ.
        """
        return some_rows(count, first=first)

    def write(self, path: Path, rows: Sequence[Row]) -> None:
        """Write a file with `rows`, by other means than this source."""
        raise NotImplementedError

    def open(self, paths: Any, **options: Any) -> Source:
        """Return the source of `paths`; it cuts files into units of about 1 KB if it can cut."""
        raise NotImplementedError

    def damage(self, path: Path) -> None:
        """Damage a file of 200 rows somewhere behind its start."""
        raise NotImplementedError

    def test_it_is_a_frozen_dataclass_with_a_kind(self) -> None:
        """The fields are the options of the source, and two sources of equal options are equal."""
        source = self.open(f"x{self.suffix}")
        parameters: Any = getattr(type(source), "__dataclass_params__", None)
        assert parameters is not None, "the source is not a dataclass"
        assert parameters.frozen
        assert source == self.open(f"x{self.suffix}")
        assert isinstance(source.kind, str)

    def test_rows_come_back_as_they_were_written(self, tmp_path: Path) -> None:
        """Files of every size contain their rows, in order."""
        for count in (1, 2, 19, 20, 21, 300):
            rows = self._write(tmp_path / str(count), x=self.rows(count))
            source = self.open(tmp_path / str(count))
            assert _rows(source.batches()) == rows
            assert {batch.data.schema for batch in source.batches()} == {source.schema()}

    def test_schema_has_the_types_of_the_columns(self, tmp_path: Path) -> None:
        """The types are those of the rows that were written."""
        self._write(tmp_path, x=self.rows(50))
        assert self.open(tmp_path).schema() == self.schema

    def test_files_come_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        """The order of the arguments does not matter, and a file may have no rows."""
        rows = self._write(
            tmp_path,
            b=self.rows(120),
            a=self.rows(130, first=1000),
            c=[],
            d=self.rows(1, first=2000),
        )
        source = self.open([tmp_path / f"{stem}{self.suffix}" for stem in "dcab"])
        assert _rows(source.batches()) == rows

    def test_a_file_is_cut_and_nothing_is_lost_at_the_edges(self, tmp_path: Path) -> None:
        """The units of a file have all its rows, each once; their counts and sizes are right."""
        rows = self._write(tmp_path, x=self.rows(300))
        source = self.open(tmp_path)
        schema, units = source.schema(), self._units(source)
        assert len(units) > (3 if self.cuts_files else 0)
        assert [unit.index for unit in units] == list(range(len(units)))
        assert len({unit.name for unit in units}) == len(units)
        pieces = [_rows(source.read(unit, schema)) for unit in units]
        assert list(itertools.chain.from_iterable(pieces)) == rows
        counts = [len(piece) for piece in pieces]
        assert [unit.rows for unit in units] in (counts, [None] * len(units))
        size = (tmp_path / f"x{self.suffix}").stat().st_size
        assert sum(unit.input_bytes for unit in units) <= size
        assert all(unit.encoded_bytes > 0 for unit in units)

    def test_batch_size_changes_neither_rows_nor_origins(self, tmp_path: Path) -> None:
        """A row has the same unit and number, without gaps, however many are read at a time."""
        rows = self._write(tmp_path, x=self.rows(300), y=self.rows(40, first=500))
        source = self.open(tmp_path)
        expected = _by_origin(source.batches())
        for batch_rows in (1, 7, 20, 10_000):
            batches = list(source.batches(batch_rows=batch_rows))
            assert max(batch.num_rows for batch in batches) <= batch_rows
            found = _by_origin(batches)
            assert list(found.values()) == rows
            assert found == expected

    def test_units_are_read_in_any_order_and_again(self, tmp_path: Path) -> None:
        """No unit depends on what was read before."""
        self._write(tmp_path, x=self.rows(300))
        source = self.open(tmp_path)
        schema, units = source.schema(), self._units(source)
        in_order = _by_origin(source.batches())
        shuffled = random.Random(0).sample(units, len(units)) + units[:1]
        again = [_by_origin(source.read(unit, schema)) for unit in shuffled]
        for rows in again:
            assert rows.items() <= in_order.items()
        assert {key for rows in again for key in rows} == set(in_order)

    def test_names_do_not_depend_on_how_files_are_named(self, tmp_path: Path) -> None:
        """Directories, patterns and paths, relative or not, give rows the same origins."""
        self._write(tmp_path / "in", x=self.rows(200), y=self.rows(3))
        expected = _by_origin(self.open(tmp_path / "in").batches())
        ways: list[Any] = [
            "in",
            f"in/*{self.suffix}",
            [f"in/y{self.suffix}", f"in/x{self.suffix}"],
            [tmp_path / "in", f"./in/x{self.suffix}"],
        ]
        with contextlib.chdir(tmp_path):
            for paths in ways:
                assert _by_origin(self.open(paths).batches()) == expected

    def test_a_further_file_leaves_origins_alone(self, tmp_path: Path) -> None:
        """Rows keep their origins if files are added."""
        self._write(tmp_path, m=self.rows(200), n=self.rows(5))
        before = _by_origin(self.open(tmp_path).batches())
        self._write(tmp_path, a=self.rows(30, first=700), z=self.rows(30, first=800))
        after = _by_origin(self.open(tmp_path).batches())
        assert before.items() < after.items()

    def test_everything_that_travels_survives_pickling(self, tmp_path: Path) -> None:
        """Workers get sources, chunks, scans, units and inferences as pickles, which are small."""
        rows = self._write(tmp_path, x=self.rows(300))
        source: Source = _copy(self.open(tmp_path))
        assert source == self.open(tmp_path)
        chunks = [_copy(chunk) for file in source.files() for chunk in source.chunks(_copy(file))]
        scans = [_copy(source.scan(chunk)) for chunk in chunks]
        units = [_copy(unit) for unit in source.all_units(scans)]
        found = [_copy(source.infer(of)) for of in (scans if source.infers_from_scans else units)]
        schema = _copy(source.merge(found))
        batches = [batch for unit in units for batch in _copy(source).read(unit, schema)]
        assert _rows(batches) == rows
        assert sum(len(pickle.dumps(of)) for of in [*scans, *units, *found]) < _PLAN_BYTES

    def test_merge_does_not_depend_on_order(self, tmp_path: Path) -> None:
        """Workers finish in any order, and the schema is the same."""
        self._write(tmp_path, x=self.rows(100), y=self.rows(4), z=self.rows(1))
        source = self.open(tmp_path)
        scans = source.all_scans()
        pieces = scans if source.infers_from_scans else source.all_units(scans)
        found = [source.infer(piece) for piece in pieces]
        shuffled = random.Random(0).sample(found, len(found))
        assert source.merge(shuffled) == source.merge(found) == self.schema

    def test_a_file_without_rows_still_gives_a_batch(self, tmp_path: Path) -> None:
        """The batch says that the unit is finished."""
        self._write(tmp_path, x=[])
        source = self.open(tmp_path)
        units = self._units(source)
        assert [unit.name for unit in units] == [f"x{self.suffix}"]
        batches = list(source.read(units[0], self.schema))
        assert len(batches) == 1
        (batch,) = batches
        assert batch.data.schema == self.schema
        assert batch.num_rows == 0
        assert batch.origin is not None
        assert batch.origin.unit == units[0].name

    def test_columns_are_chosen_and_ordered(self, tmp_path: Path) -> None:
        """The option `columns` names the columns to read."""
        rows = self._write(tmp_path, x=self.rows(100))
        if not self._has_option("columns"):
            return
        names = [self.schema.names[-1], self.schema.names[0]]
        source = self.open(tmp_path, columns=names)
        assert source.schema() == pa.schema([self.schema.field(name) for name in names])
        assert _rows(source.batches()) == [{name: row[name] for name in names} for row in rows]

    def test_columns_that_make_no_sense_are_refused(self, tmp_path: Path) -> None:
        """The messages are those that sources of this package have."""
        self._write(tmp_path, x=self.rows(3))
        first, last = self.schema.names[0], self.schema.names[-1]
        cases: list[tuple[Any, str]] = [
            ([], "columns is empty: name some, or leave it out"),
            (first, f"columns '{first}' is one string: pass a list"),
            ([first, last, first], f"column '{first}' is selected twice"),
            ([first, "gone"], "column 'gone' is not in the input: "),
        ]
        for columns, message in cases if self._has_option("columns") else []:
            with _refusal(UsageError, message):
                self.open(tmp_path, columns=columns).schema()

    def test_directories_become_columns(self, tmp_path: Path) -> None:
        """Names of directories ``key=value`` are columns, and part of the names of units."""
        if not self.has_partitions:
            return
        first = self._write(tmp_path / "t/day=1/city=a%20b", x=self.rows(50))
        second = self._write(tmp_path / f"t/day=2/{_NO_CITY}", x=self.rows(5))
        source = self.open(tmp_path / "t")
        assert source.schema().types == [*self.schema.types, pa.int64(), pa.string()]
        assert _rows(source.batches()) == [
            *({**row, "day": 1, "city": "a b"} for row in first),
            *({**row, "day": 2, "city": None} for row in second),
        ]
        alone = self.open(tmp_path / "t/day=2")
        units = [unit for unit, _ in _by_origin(alone.batches())]
        assert units == [f"day=2/{_NO_CITY}/x{self.suffix}"] * 5

    def test_hidden_files_are_ignored(self, tmp_path: Path) -> None:
        """Files whose names begin with a dot or an underscore are temporary files of others."""
        rows = self._write(tmp_path, x=self.rows(20))
        for hidden in (".x", "_x"):
            (tmp_path / f"{hidden}{self.suffix}").write_bytes(b"\0 not a table")
        self._write(tmp_path / "_temporary", x=self.rows(20))
        for paths in (tmp_path, f"{tmp_path}/*{self.suffix}", f"{tmp_path}/**/*{self.suffix}"):
            assert _rows(self.open(paths).batches()) == rows

    def test_odd_file_names_are_just_names(self, tmp_path: Path) -> None:
        """Spaces, brackets and quotes have no meaning in the path of a file that exists."""
        for name in ("a b", "a%20b", "日本", "a[1]", "a:b", "a'b\"", "a#?b"):
            rows = self._write(tmp_path, **{name: self.rows(3)})
            origins = _by_origin(self.open(tmp_path / f"{name}{self.suffix}").batches())
            assert list(origins.values()) == rows
            assert {unit for unit, _ in origins} == {f"{name}{self.suffix}"}

    def test_damage_is_reported_with_file_and_place(self, tmp_path: Path) -> None:
        """The error has one line, and matches `damage_message`."""
        self._write(tmp_path, w=self.rows(30), x=self.rows(200))
        self.damage(tmp_path / f"x{self.suffix}")
        with _refusal(DataError, self.damage_message):
            list(self.open(tmp_path).batches())

    def test_a_foreign_file_is_reported_by_its_name(self, tmp_path: Path) -> None:
        """A JPEG file with the suffix of this source is refused."""
        path = tmp_path / f"x{self.suffix}"
        path.write_bytes(b"\xff\xd8\xff\xe0\0\0JFIF\0" * 50)
        with _refusal(BeamTFRecordError, re.escape(f"x{self.suffix}")):
            list(self.open(path).batches())

    def test_a_missing_column_is_refused_or_null(self, tmp_path: Path) -> None:
        """A column that a file lacks is null with the option `union`, and else an error."""
        self._write(tmp_path, x=self.rows(3))
        if not self._has_option("union"):
            return
        (unit,) = self._units(self.open(tmp_path))
        wider = pa.schema([*self.schema, ("extra", pa.int64())])
        name = re.escape(f"x{self.suffix}")
        message = f"column 'extra' of the schema is not in {name}: .*; or pass (--union|union=True)"
        with _refusal(DataError, message):
            list(self.open(tmp_path).read(unit, wider))
        filled = self.open(tmp_path, union=True).read(unit, wider)
        assert [row["extra"] for row in _rows(filled)] == [None] * 3

    def test_a_change_while_it_is_read_is_found(self, tmp_path: Path) -> None:
        """A file that is changed, replaced or removed ends the job, whatever has been read."""
        path = tmp_path / f"x{self.suffix}"
        for change, batches in itertools.product(_CHANGES, (0, 1)):
            self._write(tmp_path, x=self.rows(40))
            # Even a clock with coarse ticks shows that the file is changed later.
            os.utime(path, (1e9, 1e9))
            source = self.open(tmp_path)
            schema, units = source.schema(), self._units(source)
            reading = itertools.chain.from_iterable(
                source.read_unchanged(unit, schema, batch_rows=7) for unit in units
            )
            list(itertools.islice(reading, batches))
            change(path)
            with _refusal(InputChanged, rf"^{re.escape(path.name)} was (changed|removed) while"):
                list(reading)

    def test_units_can_be_stored_for_a_job_that_resumes(self, tmp_path: Path) -> None:
        """The units come back from the plan of a job, by `detail_type` and `file_type`."""
        self._write(tmp_path, x=self.rows(300))
        source = self.open(tmp_path)
        # What else is read cannot be compared with what an earlier attempt has read.
        tasks = pack_units(self._units(source) if source.is_stable else [])
        save_tasks(str(tmp_path), tasks)
        assert load_tasks(str(tmp_path), source) == tasks

    def test_workers_and_batch_size_do_not_change_a_dataset(self, tmp_path: Path) -> None:
        """A pipeline writes the same bytes with one worker as with two and small batches."""
        rows = self._write(tmp_path / "in", x=self.rows(300), y=self.rows(20, first=400))
        shards = []
        for workers, batch_rows in ((1, 1000), (2, 7)):
            out = tmp_path / f"out-{workers}"
            with bt.pipeline(direct_num_workers=workers) as pipeline:
                read = ReadBatches(self.open(tmp_path / "in"), batch_rows=batch_rows)
                pipeline | read | bt.WriteToTFRecord(f"{out}/", shards=2)
            manifest = bt.Manifest.load(out)
            assert manifest.examples == len(rows)
            shards.append([(out / shard.path).read_bytes() for shard in manifest.shards])
        assert shards[0] == shards[1]

    def _has_option(self, name: str) -> bool:
        source: Any = self.open(f"x{self.suffix}")
        return name in {field.name for field in dataclasses.fields(source)}

    def _units(self, source: Source) -> list[Unit]:
        return source.all_units(source.all_scans())

    def _write(self, directory: Path, **files: list[Row]) -> list[Row]:
        """Write files by their stems; return all rows in source order."""
        directory.mkdir(parents=True, exist_ok=True)
        for stem, rows in files.items():
            self.write(directory / f"{stem}{self.suffix}", rows)
        return [row for stem in sorted(files) for row in files[stem]]


_NO_CITY = "city=__HIVE_DEFAULT_PARTITION__"


def _rows(batches: Iterable[Batch]) -> list[Row]:
    return [row for batch in batches for row in batch.rows()]


def _by_origin(batches: Iterable[Batch]) -> dict[tuple[str, int], Row]:
    """Return the rows by unit and number, which counts the rows of each unit from 0."""
    found: dict[tuple[str, int], Row] = {}
    counts: Counter[str] = Counter()
    for batch in batches:
        assert batch.origin is not None
        unit = batch.origin.unit
        for number, row in zip(
            batch.origin.row_numbers(batch.num_rows).tolist(), batch.rows(), strict=True
        ):
            assert number == counts[unit]
            counts[unit] += 1
            found[unit, number] = row
    return found


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


@contextlib.contextmanager
def _refusal(kind: type[BeamTFRecordError], pattern: str) -> Iterator[None]:
    """Check that the block raises an error of one line whose message has a pattern."""
    import pytest

    with pytest.raises(kind, match=pattern) as refused:
        yield
    assert "\n" not in str(refused.value)


# What may happen to a file while it is read.
_CHANGES: tuple[Callable[[Path], object], ...] = (
    lambda path: path.write_bytes(path.read_bytes()),
    lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    lambda path: os.truncate(path, path.stat().st_size // 2),
    lambda path: Path(shutil.copy(path, path.with_name(".beside"))).replace(path),
    Path.unlink,
)
