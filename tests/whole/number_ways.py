"""The ways of numbers into a dataset: random ones of `number_texts` through each of them.

Each way takes columns of text and a directory, and returns what was stored of every column and
which loss was reported.
"""

from __future__ import annotations

import contextlib
import decimal
import sqlite3
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.mapped_rows import call_on_rows, mapped_batch
from beam_tfrecord.rows.batch import Batch
from beam_tfrecord.sources.csv.source import Csv, with_texts
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.tf_example import Example
from tests.whole.number_texts import check_column, check_losses, kept_as_float64

Columns = Mapping[str, list[str]]


class Written(NamedTuple):
    """One column in a dataset."""

    values: list[bytes | float]
    reported: float


def encoded(batches, schema=None):
    """Return what encoding stores and reports, in the order of the rows."""
    values = {}
    observed = {}
    for batch in batches:
        arena = Arena()
        encoder = Encoder(schema or Schema.from_arrow(batch.data.schema))
        result = encoder.encode(batch, arena)
        assert not batch.rejects
        assert not result.rejects
        for name, found in result.observed.items():
            observed[name] = observed.get(name, ColumnStats()).merge(found)
        frames, starts = arena.used_data().tobytes(), arena.used_starts().tolist()
        for start, stop in zip(starts, [*starts[1:], len(frames)], strict=True):
            example = Example.FromString(frames[start + 12 : stop - 4])
            for name, feature in example.features.feature.items():
                (number,) = getattr(feature, feature.WhichOneof("kind")).value
                values.setdefault(name, []).append(number)
    return {name: Written(values[name], observed[name].max_relative_error) for name in values}


def write_csv(columns, directory):
    """Write a file of the columns; returns its path."""
    path = directory / "numbers.csv"
    lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    return str(path)


def schema_of(columns, arrow, store="auto"):
    """Return a schema with one type for all columns."""
    return Schema(tuple(Feature(name, arrow, store=store) for name in columns))


def _csv(columns: Columns, directory: Path, arrow: pa.DataType | None = None) -> list[Batch]:
    types = {} if arrow is None else dict.fromkeys(columns, arrow)
    return list(Csv(write_csv(columns, directory), types=types).batches(batch_rows=2))


def _given(columns, directory, schema):
    """Read a file under a given schema, as `write` does."""
    source = Csv(write_csv(columns, directory))
    units = source.all_units(source.all_scans())
    batches = (batch for unit in units for batch in source.read(unit, schema.to_arrow()))
    return encoded(batches, schema)


def _mapped(batches, schema=None):
    for batch in batches:
        arrow = batch.data.schema if schema is None else schema.to_arrow()
        yield mapped_batch(batch, call_on_rows(batch, lambda row: row), arrow)


def csv_inferred(columns: Columns, directory: Path) -> dict[str, Written]:
    """Types found in the file."""
    return encoded(_csv(columns, directory))


def csv_float32(columns: Columns, directory: Path) -> dict[str, Written]:
    """A file that is read as float32."""
    return encoded(_csv(columns, directory, pa.float32()))


def csv_schema(columns: Columns, directory: Path) -> dict[str, Written]:
    """A file under a schema of float32."""
    return _given(columns, directory, schema_of(columns, pa.float32()))


def csv_mapped_rows(columns: Columns, directory: Path) -> dict[str, Written]:
    """Rows that a function gives back as they were."""
    return encoded(_mapped(_csv(columns, directory, pa.float32())))


def parquet_text(columns: Columns, directory: Path) -> dict[str, Written]:
    """Text in Parquet, under a schema of float64."""
    path = directory / "text.parquet"
    pq.write_table(pa.table(dict(columns)), path)
    return encoded(Parquet(str(path)).batches(), schema_of(columns, pa.float64()))


def _decimals(columns):
    """Return columns as decimals, those that have so many digits before or behind the point."""
    made = {}
    for name, texts in columns.items():
        values = [decimal.Decimal(text) for text in texts]
        for arrow in (pa.decimal128(38, 19), pa.decimal256(76, 50), pa.decimal256(76, 75)):
            try:
                column = pa.array(values, arrow)
            except pa.ArrowInvalid:
                continue
            # Arrow makes 0 of a number that is 39 digits finer than the type.
            if column.to_pylist() == values:
                made[name] = column
                break
    return pa.table(made)


def parquet_decimals(columns: Columns, directory: Path) -> dict[str, Written]:
    """Decimals in Parquet."""
    path = directory / "decimals.parquet"
    pq.write_table(_decimals(columns), path)
    return encoded(Parquet(str(path)).batches())


def decimals_as_floats(columns: Columns, directory: Path) -> dict[str, Written]:
    """Decimals under a schema of float32."""
    table = _decimals(columns)
    batches = map(Batch, table.to_batches())
    return encoded(batches, schema_of(table.schema.names, pa.float32()))


def write_sqlite(columns, directory):
    """Write a database with the table ``numbers``; returns its path."""
    path = directory / "numbers.sqlite"
    path.unlink(missing_ok=True)
    named = ", ".join(f"{name} REAL" for name in columns)
    places = ", ".join("?" for _ in columns)
    rows = zip(*columns.values(), strict=True)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"CREATE TABLE numbers ({named})")
        connection.executemany(f"INSERT INTO numbers VALUES ({places})", rows)
    return str(path)


def as_floats(columns):
    """Return the numbers that the texts of `kept_as_float64` are."""
    return {name: list(map(float, texts)) for name, texts in columns.items()}


def sqlite_reals(columns: Columns, directory: Path) -> dict[str, Written]:
    """Floats in SQLite."""
    path = write_sqlite(as_floats(columns), directory)
    return encoded(Sql(path, table="numbers").batches())


class Way(NamedTuple):
    """A way of numbers into a dataset.

    Attributes:
        written: Takes columns and a directory; returns those columns that it can take.
        kept: What is kept of a number before it takes the way.
    """

    written: Callable[[Columns, Path], dict[str, Written]]
    kept: Callable[[str], str] = str


WAYS = {
    way.written.__name__: way
    for way in (
        *map(Way, (csv_inferred, csv_float32, csv_schema, csv_mapped_rows)),
        *map(Way, (parquet_text, parquet_decimals, decimals_as_floats)),
        Way(sqlite_reals, kept_as_float64),
    )
}


def check_way(way, columns, directory):
    """Check every column that a way can take; returns how many numbers that were."""
    given = {name: list(map(way.kept, texts)) for name, texts in columns.items()}
    checked = 0
    for column, written in way.written(given, directory).items():
        check_column(given[column], [float(value) for value in written.values], written.reported)
        checked += len(written.values)
    return checked


def check_bytes(columns, directory):
    """Check numbers that are kept as the bytes of a float64: the nearest, and its loss."""
    schema = schema_of(columns, pa.float64(), "bytes")
    for name, written in _given(columns, directory, schema).items():
        stored = [struct.unpack("<d", bytes(value))[0] for value in written.values]
        assert stored == [float(text) for text in columns[name]], name
        check_losses(columns[name], stored, written.reported)
    return sum(map(len, columns.values()))


def check_text(columns, directory):
    """Check numbers that are kept as text: they are the text that they were."""
    schema = schema_of(columns, pa.float64(), "text")
    given = _given(columns, directory, schema)
    mapped = encoded(
        _mapped(
            with_texts(Csv(write_csv(columns, directory)), schema.to_arrow()).batches(), schema
        ),
        schema,
    )
    for name, written in (*given.items(), *mapped.items()):
        assert [bytes(value).decode() for value in written.values] == columns[name]
        assert written.reported == 0
    return 2 * sum(map(len, columns.values()))
