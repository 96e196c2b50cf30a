"""Numbers in databases that are servers, or are read in Java: further ways of `number_ways`.

A database gets numbers that its column holds exactly, so that nothing but the reading can round.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from beam_tfrecord.sources.sql.source import Sql, release_snapshots
from tests.whole.number_texts import kept_as_decimal, kept_as_float32, kept_as_float64
from tests.whole.number_ways import Columns, Way, Written, encoded, schema_of


def _quoted(text):
    return f"'{text}'"


def _quoted_float(text):
    # The smallest have a thousand digits; these eighteen say the same float.
    return f"'{float(text):.17e}'"


def _fits_decimal(text):
    return abs(Fraction(text)) < 10**19


class Holds(NamedTuple):
    """What a type of a database holds.

    Attributes:
        rounded: Returns the number that it stores.
        fits: Returns whether it holds a number at all.
        literal: Returns the literal of a number that it holds.
        is_text: The column is text, and read under a schema of float64.
    """

    rounded: Callable[[str], str] = str
    fits: Callable[[str], bool] = bool
    literal: Callable[[str], str] = _quoted
    is_text: bool = False


TEXT = Holds(is_text=True)
DECIMAL = Holds(kept_as_decimal, _fits_decimal)
FLOAT32 = Holds(kept_as_float32, literal=_quoted_float)
FLOAT64 = Holds(kept_as_float64, literal=_quoted_float)

POSTGRES = {
    "numeric(38, 19)": DECIMAL,
    "numeric": TEXT,
    "text": TEXT,
    "real": FLOAT32,
    "double precision": FLOAT64,
}
MARIADB = {"decimal(38, 19)": DECIMAL, "text": TEXT, "float": FLOAT32, "double": FLOAT64}
H2 = {
    "numeric(38, 19)": DECIMAL,
    "decfloat(1000)": TEXT,
    "varchar": TEXT,
    "real": FLOAT32,
    "double precision": FLOAT64,
}
DUCKDB = {"varchar": TEXT, "float": FLOAT32, "double": FLOAT64}


def way_through(database, declared, holds):
    """Return the way through columns of a type of a database."""

    def written(columns: Columns, directory: Path) -> dict[str, Written]:
        fit = {name: texts for name, texts in columns.items() if all(map(holds.fits, texts))}
        named = ", ".join(f"{name} {declared}" for name in fit)
        database.run(
            "DROP TABLE IF EXISTS numbers", f"CREATE TABLE numbers (n int PRIMARY KEY, {named})"
        )
        for number, row in enumerate(zip(*fit.values(), strict=True)):
            values = ", ".join(map(holds.literal, row))
            database.run(f"INSERT INTO numbers VALUES ({number}, {values})")
        names = {name.upper() if database.upper else name: name for name in fit}
        schema = schema_of(names, pa.float64()) if holds.is_text else None
        try:
            source = Sql(**database.source, table="numbers", ordered=True)
            found = encoded(source.batches(), schema)
        finally:
            release_snapshots()
        return {names[name]: column for name, column in found.items() if name in names}

    return Way(written, holds.rounded)


def ways_through(name, database, types):
    """Return the ways through all types of a database."""
    return {
        f"{name} {declared}": way_through(database, declared, holds)
        for declared, holds in types.items()
    }
