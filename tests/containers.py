"""The same rows in other containers, orders and groupings, which give one and the same dataset.

Under a key the order of a dataset follows from the rows alone. So whatever the rows are filed in,
the shards have the same bytes.
"""

from __future__ import annotations

import dataclasses
import gzip
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import beam_tfrecord as bt
from beam_tfrecord.sources.parquet.source import Parquet
from tests.datasets import shard_hashes

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.float64(), "count": pa.int64(), "name": pa.string()})
# What NumPy has types for, and no nulls in.
NUMBERS = ("id", "x")
_LETTERS = ("a", "Z", "é", "日", "🙂", '"', ",", ";", "\n", " ", "0", "'", "\\", "\t")

Row = tuple[int, float, int | None, str | None]


@dataclasses.dataclass(frozen=True)
class Filed:
    """Where rows lie, and how they are read.

    Attributes:
        inputs: What is written.
        options: Of the source.
        unit_bytes: Bytes of a unit of Parquet; None: as always.
    """

    inputs: Any
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    unit_bytes: int | None = None


def draw_rows(draw: random.Random, most: int = 120) -> list[Row]:
    """Return random rows of `SCHEMA`; some share their id, and some are copies of others."""
    # Text that reads as no number, and no column without a value.
    rows: list[Row] = [(-1, 0.5, 7, "first")]
    for _ in range(draw.randrange(most)):
        name = "".join(draw.choices(_LETTERS, k=draw.randrange(6)))
        rows.append(
            (
                draw.randrange(-(2**63), 2**63) if draw.random() < 0.2 else draw.randrange(50),
                draw.choice((0.0, -0.0, 1e300, 5e-324, draw.uniform(-9, 9)))
                if draw.random() < 0.5
                else draw.gauss(0, 1e6),
                None if draw.random() < 0.2 else draw.randrange(-9, 9),
                None if draw.random() < 0.2 else name,
            )
        )
    return [row for row in rows if abs(row[1]) < 3e38] + draw.choices(rows[:1], k=2)


def table_of(rows: list[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def _csv(rows: list[Row], delimiter: str = ",", end: str = "\n") -> bytes:
    lines = [delimiter.join(SCHEMA.names)]
    for number, x, count, name in rows:
        text = "" if name is None else '"' + name.replace('"', '""') + '"'
        shown = "" if count is None else str(count)
        lines.append(delimiter.join((str(number), repr(x), shown, text)))
    return (end.join(lines) + end).encode()


def _pieces(rows: list[Row], draw: random.Random) -> list[list[Row]]:
    """Cut rows into one to five pieces, none of which is empty."""
    cuts = sorted(draw.sample(range(1, len(rows)), min(len(rows) - 1, draw.randrange(5))))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def csv_file(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.csv"
    path.write_bytes(_csv(rows, end=draw.choice(("\n", "\r\n"))))
    return Filed(path)


def csv_cut_inside(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.csv"
    path.write_bytes(_csv(rows))
    return Filed(path, {"chunk_bytes": draw.choice((16, 40, 300))})


def csv_with_semicolons(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.csv"
    path.write_bytes(_csv(rows, ";"))
    return Filed(path, {"delimiter": ";"})


def csv_directories(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    # A piece alone may have no value of a column: its type is that of all files together.
    for number, piece in enumerate(_pieces(rows, draw)):
        below = directory / draw.choice((".", "a", "a/b", "c"))
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.csv").write_bytes(_csv(piece))
    return Filed(directory, {"types": {"name": "string", "x": "float64"}})


def csv_gzip(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path, text = directory / "t.csv.gz", _csv(rows)
    cut = draw.randrange(len(text))
    path.write_bytes(gzip.compress(text[:cut]) + gzip.compress(text[cut:]))
    return Filed(path)


def csv_utf16(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.csv"
    path.write_bytes(_csv(rows).decode().encode("utf-16"))
    return Filed(path, {"encoding": "utf-16"})


def parquet_file(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.parquet"
    pq.write_table(
        table_of(rows),
        path,
        row_group_size=draw.randrange(1, len(rows) + 1),
        use_dictionary=draw.random() < 0.5,
        compression=draw.choice(("none", "snappy", "zstd")),
        data_page_version=draw.choice(("1.0", "2.0")),
    )
    return Filed(path, unit_bytes=draw.choice((None, 1, 500)))


def parquet_of_other_types(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    """Write large, dictionary and chunked columns, in another order."""
    for number, piece in enumerate(_pieces(rows, draw)):
        table = (
            pa.concat_tables([table_of(piece[:1]), table_of(piece[1:])])
            if piece[1:]
            else (table_of(piece))
        )
        kind = draw.choice(
            (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()))
        )
        names = table.column("name").combine_chunks()
        names = names.dictionary_encode() if pa.types.is_dictionary(kind) else names.cast(kind)
        table = table.set_column(3, "name", names).select(["name", "count", "id", "x"])
        pq.write_table(table, directory / f"{number}.parquet")
    return Filed(directory)


def stage(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    bt.extract(csv_file(directory, rows, draw).inputs, directory / "stage")
    return Filed(directory / "stage")


def sqlite(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (id INTEGER, x REAL, count INTEGER, name TEXT)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return Filed(path, {"table": "t"})


def duckdb(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    import duckdb

    path = directory / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute('CREATE TABLE t (id BIGINT, x DOUBLE, "count" BIGINT, name VARCHAR)')
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    return Filed(f"duckdb:///{path}", {"table": "t"})


def npz(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    save = draw.choice((np.savez, np.savez_compressed))
    for number, piece in enumerate(_pieces(rows, draw)):
        save(
            directory / f"{number}.npz",
            x=np.array([row[1] for row in piece], draw.choice(("<f8", ">f8"))),
            id=np.array([row[0] for row in piece], np.int64),
        )
    return Filed(directory, {"store": "values", "example": "row"})


Variant = Callable[[Path, list[Row], random.Random], Filed]
ALL_COLUMNS: tuple[Variant, ...] = (
    *(csv_cut_inside, csv_with_semicolons, csv_directories, csv_gzip, csv_utf16),
    *(parquet_file, parquet_of_other_types, stage, sqlite, duckdb),
)
VARIANTS: tuple[Variant, ...] = (*ALL_COLUMNS, npz)


def hashes_of(directory: Path, filed: Filed, columns: tuple[str, ...]) -> dict[str, Any]:
    """Write rows under a key; return the hash of every shard, whose name has its split."""
    before = Parquet.unit_bytes
    if filed.unit_bytes is not None:
        Parquet.unit_bytes = filed.unit_bytes
    try:
        manifest = bt.write(
            filed.inputs,
            directory / "out",
            splits={"a": 0.6, "b": 0.4},
            key=["id"],
            columns=columns,
            shards=4,
            source_options=filed.options,
        )
    finally:
        Parquet.unit_bytes = before
    hashes = shard_hashes(directory / "out")
    shards = {name: hashes[name] for name in hashes if name.endswith(".tfrecord")}
    return {"content": manifest.content, "examples": manifest.examples, **shards}


def judge(directory: Path, variant: Variant, seed: int) -> int:
    """File random rows in two ways, in two orders; return how many rows there are.

    Raises:
        AssertionError: The two datasets differ.
    """
    draw = random.Random(seed)
    rows = draw_rows(draw)
    if variant is sqlite:
        # It stores a whole number as an integer, which has no negative zero.
        rows = [(number, x + 0.0, *rest) for number, x, *rest in rows]
    columns = NUMBERS if variant is npz else tuple(SCHEMA.names)
    found = []
    for number, way in enumerate((csv_file, variant)):
        below = directory / f"{number}"
        (below / "in").mkdir(parents=True)
        filed = way(below / "in", rows, draw)
        found.append(hashes_of(below, filed, columns))
        rows = draw.sample(rows, len(rows))
    one, other = found
    assert one == other, f"{variant.__name__}, seed {seed}"
    assert one["examples"] == len(rows)
    return len(rows)
