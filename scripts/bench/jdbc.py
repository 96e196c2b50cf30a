"""Measures `write` of a ``jdbc:`` database beside the driver alone and a pipeline by hand.

    python scripts/bench/jdbc.py            # 1 M rows of 12 columns, five rounds: some minutes
    python scripts/bench/jdbc.py --quick    # 20,000 rows, one round: does everything run?

The table, the way by hand and the server are those of ``sql.py``; the start of Java is measured
too.
"""

from __future__ import annotations

from pathlib import Path

import sql
from databases import MEMORY_GROWTH, PASSWORD_VARIABLE, Bars, Cases, main

POSTGRES = "org.postgresql:postgresql:42.7.8"


def jdbc_drain(place: str, work: Path) -> int:
    """Read all rows into Arrow over one connection, and do nothing with them."""
    from beam_tfrecord.options.sources import DatabaseOptions
    from beam_tfrecord.sources.sql.database import Relation
    from beam_tfrecord.sources.sql.jdbc import Jdbc

    options = DatabaseOptions(jars=(POSTGRES,), password_env=PASSWORD_VARIABLE)
    rows = 0
    with Jdbc(_jdbc(place), options).connect() as connection:
        relation = Relation("trips")
        columns = connection.describe(relation)
        values = ", ".join(column.select for column in columns)
        for found in connection.read(relation.select(values), columns, batch_rows=16_384):
            rows += found.data.num_rows
    return rows


def jdbc_write(place: str, work: Path) -> int:
    """Write the table as a dataset, cut as it is by default."""
    return sql.write(_jdbc(place), work, jars=[POSTGRES])


def jdbc_write_one(place: str, work: Path) -> int:
    """Write the table as a dataset, over one connection."""
    return sql.write(_jdbc(place), work, jars=[POSTGRES], partitions=1)


def _jdbc(url: str) -> str:
    user, _, rest = url.removeprefix("postgresql://").partition("@")
    return f"jdbc:postgresql://{rest}?user={user}"


_OURS = ("apache_beam", "beam_tfrecord.jobs.compose", "beam_tfrecord.sources.sql.jdbc")

CASES: Cases = {
    "jdbc_drain": ("postgres", jdbc_drain, _OURS),
    "jdbc_write": ("postgres", jdbc_write, _OURS),
    "jdbc_write_1": ("postgres", jdbc_write_one, _OURS),
    "by_hand": sql.CASES["by_hand"],
    "jdbc_write_large": ("postgres_large", jdbc_write, _OURS),
}

BARS: Bars = (
    ("end to end, of the driver alone", "jdbc_drain", "jdbc_write", "seconds", ">= 0.6x"),
    ("end to end, of what is written by hand", "by_hand", "jdbc_write", "seconds", ">= 10x"),
    (
        f"peak memory, {MEMORY_GROWTH} times the rows",
        *("jdbc_write_large", "jdbc_write", "peak_mb", "<= 1.2x"),
    ),
)


if __name__ == "__main__":
    main(__doc__, CASES, BARS, __file__)
