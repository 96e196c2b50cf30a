"""SQLite files for the tests, and what the tests ask of sources and datasets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import beam_tfrecord as bt
from beam_tfrecord.batch import Batch
from beam_tfrecord.sources.sql.source import Sql


def make_database(path: Path, *statements: str, rows: Sequence[tuple[Any, ...]] = ()) -> Path:
    """Make a SQLite file; `rows` go into the table ``t``."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    if rows:
        marks = ",".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    connection.commit()
    connection.close()
    return path


def conditions(source: Sql) -> list[tuple[str, int | None]]:
    """Return condition and rows of every partition."""
    (scan,) = source.all_scans()
    source.release()
    return [(partition.condition, partition.rows) for partition in scan.detail.partitions]


def rows_of(batches: Iterable[Batch]) -> list[dict[str, Any]]:
    """Return the rows of batches."""
    return [row for batch in batches for row in batch.rows()]


def shards_of(directory: Path) -> dict[str, str]:
    """Return the hash of every shard of a dataset."""
    return {shard.path: shard.xxh64 for shard in bt.Manifest.load(directory).shards}
