"""The same rows in other containers, orders and groupings, which give one and the same dataset.

Under a key the order of a dataset follows from the rows alone. So whatever the rows are filed in,
the shards have the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.sources.typed_files import TypedFiles
from tests.helpers.datasets import shard_hashes
from tests.helpers.formats import write_file
from tests.sources.made_sql import make_database

SCHEMA = pa.schema({"id": pa.int64(), "x": pa.float64(), "count": pa.int64(), "name": pa.string()})
_LETTERS = ("a", "Z", "é", "日", "🙂", '"', ",", ";", "\n", " ", "0", "'", "\\", "\t")

Row = tuple[int, float, int | None, str | None]


@dataclasses.dataclass(frozen=True)
class Filed:
    """Where rows lie, and how they are read.

    Attributes:
        inputs: What is written.
        options: Of the source.
        unit_bytes: Bytes of a unit of files with types; None: as always.
    """

    inputs: Any
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    unit_bytes: int | None = None


def draw_rows(draw, most=120):
    """Return random rows of `SCHEMA`; some share their id, and some are copies of others."""
    # Text that reads as no number, and no column without a value.
    rows = [(-1, 0.5, 7, "first")]
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


def _pieces(rows, draw):
    """Cut rows into one to five pieces, none of which is empty."""
    cuts = sorted(draw.sample(range(1, len(rows)), min(len(rows) - 1, draw.randrange(5))))
    return [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


def _csv(directory, rows):
    return write_file(directory / "t.csv", table_of(rows))


def files(suffix, options=None, *, unit_bytes=(None,), **choices):
    """Return what files rows in several files, with any of some options of source and writer."""

    def filed(directory, rows, draw):
        def any_of(levels):
            return {name: draw.choice(some) for name, some in levels.items()}

        for number, piece in enumerate(_pieces(rows, draw)):
            write_file(directory / f"{number}{suffix}", table_of(piece), **any_of(choices))
        return Filed(directory, any_of(options or {}), draw.choice(unit_bytes))

    return filed


def delta(directory, rows, draw):
    """Write a file for each piece, with rows that are deleted again, in partitions or not."""
    import deltalake

    path, gone = str(directory / "t"), (7, 0.5, 7, "gone!")
    by = draw.choice((None, ["count"]))
    for number, piece in enumerate(_pieces(rows, draw)):
        table = table_of([*piece, gone] if number % 2 == 0 else piece)
        deltalake.write_deltalake(path, table, mode="append", partition_by=by)
    deltalake.DeltaTable(path).delete("name = 'gone!'")
    return Filed(path, unit_bytes=draw.choice((None, 1, 500)))


def webdataset(directory, rows, draw):
    kind = draw.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    for number, piece in enumerate(_pieces(rows, draw)):
        columns = table_of(piece).select(["id", "count"])
        write_file(directory / f"{number}.tar", columns, prefix=f"{number}/", format=kind)
    return Filed(directory, {"union": True}, unit_bytes=draw.choice((None, 1, 5000)))


def stage(directory, rows, draw):
    bt.extract(_csv(directory, rows), directory / "stage")
    return Filed(directory / "stage")


def dataset(directory, rows, draw):
    """Write the rows in any order, splits and number of shards first."""
    bt.write(
        _csv(directory, rows),
        directory / "ds",
        splits=draw.choice((None, {"c": 0.5, "d": 0.5})),
        shards=draw.choice((2, 5)),
        compression=draw.choice(("none", "gzip")),
        seed=draw.randrange(9),
    )
    return Filed(directory / "ds")


def sqlite(directory, rows, draw):
    declared = "CREATE TABLE t (id INTEGER, x REAL, count INTEGER, name TEXT)"
    return Filed(make_database(directory / "t.sqlite", declared, rows=rows), {"table": "t"})


def npz(directory, rows, draw):
    save = draw.choice((np.savez, np.savez_compressed))
    for number, piece in enumerate(_pieces(rows, draw)):
        save(
            directory / f"{number}.npz",
            x=np.array([row[1] for row in piece], draw.choice(("<f8", ">f8"))),
            id=np.array([row[0] for row in piece], np.int64),
        )
    return Filed(directory, {"store": "values", "example": "row"})


def arrow_table(directory, rows, draw):
    return Filed(pa.concat_tables(map(table_of, _pieces(rows, draw))))


def pandas_frame(directory, rows, draw):
    import pandas

    return Filed(table_of(rows).to_pandas(types_mapper=pandas.ArrowDtype))


def pandas_objects(directory, rows, draw):
    import pandas

    return Filed(pandas.DataFrame(rows, columns=SCHEMA.names, dtype=object))


def polars_frame(directory, rows, draw):
    import polars

    frame = polars.from_arrow(table_of(rows))
    return Filed(draw.choice((frame, frame.lazy())))


def hugging_face(directory, rows, draw):
    datasets = pytest.importorskip("datasets")
    held = datasets.Dataset(table_of(rows)).shuffle(seed=draw.randrange(99))
    return Filed(draw.choice((held, held.to_iterable_dataset())))


CUT = {"unit_bytes": (None, 1, 500), "group_rows": (1, 7, 1000)}
# A piece alone may have no value of a column: its type is that of all files together.
TYPES = {"types": ({"name": "string", "x": "float64"},)}
VARIANTS = {
    "csv_cut_inside": files(".csv", {**TYPES, "chunk_bytes": (16, 40, 300)}, end=("\n", "\r\n")),
    "csv_with_semicolons": files(".csv", {**TYPES, "delimiter": ";"}, delimiter=";"),
    "csv_gzip": files(".csv.gz", TYPES),
    "json_lines_cut_inside": files(".jsonl", {"chunk_bytes": (16, 40, 300, 10**6)}),
    "json_arrays": files(".json", ensure_ascii=(False, True), indent=(None, 1)),
    "parquet_file": files(
        ".parquet",
        **CUT,
        use_dictionary=(False, True),
        compression=("none", "snappy", "zstd"),
        data_page_version=("1.0", "2.0"),
    ),
    "arrow_files": files(".arrow", **CUT, compression=(None, "lz4", "zstd")),
    "orc_file": files(".orc", **CUT, compression=("uncompressed", "zlib", "zstd")),
    "avro_file": files(
        ".avro",
        unit_bytes=(None, 100, 500),
        codec=("null", "deflate", "xz"),
        sync_interval=(1, 100, 16_000),
    ),
    "excel": files(".xlsx"),
    "records_of_others": files(".tfrecord"),
    **{
        one.__name__: one
        for one in (
            *(stage, sqlite, delta, dataset, npz, webdataset),
            *(arrow_table, pandas_frame, pandas_objects, polars_frame, hugging_face),
        )
    },
    "dicts": lambda directory, rows, draw: Filed(table_of(rows).to_pylist()),
    "generator": lambda directory, rows, draw: Filed(row for row in table_of(rows).to_pylist()),
}
# What they have types for, if not for all columns.
COLUMNS = {"npz": ("id", "x"), "webdataset": ("id", "count")}


def _of_sqlite(row: Row) -> Row:
    """Return a row as SQLite holds it: a whole number is an integer, which has no negative zero."""
    return (row[0], row[1] + 0.0, *row[2:])


def _of_excel(row: Row) -> Row:
    """Return a row as openpyxl writes it: numbers of 16 digits, and no text without characters."""
    return (row[0] % 10**9, float(f"{row[1]:.15g}") + 0.0, row[2], row[3] or None)


def _unchanged(row: Row) -> Row:
    return row


HELD = {"sqlite": _of_sqlite, "excel": _of_excel}


def hashes_of(directory, filed, columns):
    """Write rows under a key; return the hash of every shard, whose name has its split."""
    before = TypedFiles.unit_bytes
    if filed.unit_bytes is not None:
        TypedFiles.unit_bytes = filed.unit_bytes
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
        TypedFiles.unit_bytes = before
    hashes = shard_hashes(directory / "out")
    shards = {name: hashes[name] for name in hashes if name.endswith(".tfrecord")}
    return {"content": manifest.content, "examples": manifest.examples, **shards}


@functools.cache
def as_csv(held, columns, seed):
    """Return random rows as a container holds them, and what they give as a CSV file."""
    draw = random.Random(seed)
    rows = [held(row) for row in draw_rows(draw)]
    with tempfile.TemporaryDirectory() as scratch:
        return rows, hashes_of(Path(scratch), Filed(_csv(Path(scratch), rows)), columns)


def judge(directory, variant, seed):
    """File random rows in two ways, in two orders; return how many rows there are.

    Raises:
        AssertionError: The two datasets differ.
    """
    columns = COLUMNS.get(variant, tuple(SCHEMA.names))
    rows, expected = as_csv(HELD.get(variant, _unchanged), columns, seed)
    draw = random.Random(f"{seed} {variant}")
    (directory / "in").mkdir()
    filed = VARIANTS[variant](directory / "in", draw.sample(rows, len(rows)), draw)
    found = hashes_of(directory, filed, columns)
    assert found == expected, f"{variant}, seed {seed}"
    assert found["examples"] == len(rows)
    return len(rows)
