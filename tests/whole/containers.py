"""The same rows in other containers, orders and groupings, which give one and the same dataset.

Under a key the order of a dataset follows from the rows alone. So whatever the rows are filed in,
the shards have the same bytes.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import random
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.sources.typed_files import TypedFiles
from tests.helpers.datasets import shard_hashes
from tests.helpers.formats import FORMATS, write_file
from tests.helpers.made_tables import hinted_catalog
from tests.helpers.zips import zip_of
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


def csv_file(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    end = draw.choice(("\n", "\r\n"))
    return Filed(write_file(directory / "t.csv", table_of(rows), end=end))


def csv_cut_inside(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = write_file(directory / "t.csv", table_of(rows))
    return Filed(path, {"chunk_bytes": draw.choice((16, 40, 300))})


def csv_with_semicolons(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = write_file(directory / "t.csv", table_of(rows), delimiter=";")
    return Filed(path, {"delimiter": ";"})


def csv_directories(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    # A piece alone may have no value of a column: its type is that of all files together.
    for number, piece in enumerate(_pieces(rows, draw)):
        below = draw.choice((".", "a", "a/b", "c"))
        write_file(directory / below / f"{number}.csv", table_of(piece))
    return Filed(directory, {"types": {"name": "string", "x": "float64"}})


def csv_gzip(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path, text = directory / "t.csv.gz", FORMATS[".csv"](table_of(rows))
    cut = draw.randrange(len(text))
    path.write_bytes(gzip.compress(text[:cut]) + gzip.compress(text[cut:]))
    return Filed(path)


def csv_utf16(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = directory / "t.csv"
    path.write_bytes(FORMATS[".csv"](table_of(rows)).decode().encode("utf-16"))
    return Filed(path, {"encoding": "utf-16"})


def json_lines_cut_inside(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    # A missing key is null, too.
    lines = FORMATS[".jsonl"](table_of(rows)).replace(b', "name": null', b"").splitlines()
    end = draw.choice((b"\n", b"\r\n", b"\n\n"))
    (directory / "t.jsonl").write_bytes(end.join(lines))
    return Filed(directory, {"chunk_bytes": draw.choice((16, 40, 300, 10**6))})


def json_arrays(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    for number, piece in enumerate(_pieces(rows, draw)):
        how = {"ensure_ascii": draw.random() < 0.5, "indent": draw.choice((None, 1))}
        suffix = ".json.gz" if draw.random() < 0.5 else ".json"
        write_file(directory / f"{number}{suffix}", table_of(piece), **how)
    return Filed(directory)


def parquet_file(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    path = write_file(
        directory / "t.parquet",
        table_of(rows),
        group_rows=draw.randrange(1, len(rows) + 1),
        use_dictionary=draw.random() < 0.5,
        compression=draw.choice(("none", "snappy", "zstd")),
        data_page_version=draw.choice(("1.0", "2.0")),
    )
    return Filed(path, unit_bytes=draw.choice((None, 1, 500)))


def arrow_files(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    """Write files and streams, compressed and not, of plain and dictionary columns."""
    for number, piece in enumerate(_pieces(rows, draw)):
        table = table_of(piece)
        if draw.random() < 0.5:
            words = table.column("name").combine_chunks().dictionary_encode()
            table = table.set_column(3, "name", words)
        write = FORMATS[draw.choice((".arrow", ".arrows"))]
        compression = draw.choice((None, "lz4", "zstd"))
        size = draw.randrange(1, len(piece) + 1)
        data = write(table, group_rows=size, compression=compression)
        (directory / f"{number}.arrow").write_bytes(data)
    return Filed(directory, unit_bytes=draw.choice((None, 1, 500)))


def orc_file(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    codec = draw.choice(("uncompressed", "zlib", "zstd"))
    size = draw.randrange(1, len(rows) + 1)
    path = write_file(directory / "t.orc", table_of(rows), compression=codec, group_rows=size)
    return Filed(path, unit_bytes=draw.choice((None, 1, 500)))


def avro_file(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    is_whole = {"id", "x"}
    schema = pa.schema([field.with_nullable(field.name not in is_whole) for field in SCHEMA])
    write_file(
        directory / "t.avro",
        table_of(rows).cast(schema),
        codec=draw.choice(("null", "deflate", "xz")),
        sync_interval=draw.choice((1, 100, 16_000)),
    )
    return Filed(directory, unit_bytes=draw.choice((None, 100, 500)))


def delta(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    """Write a file for each piece, with rows that are deleted again, in partitions or not."""
    import deltalake

    path, gone = str(directory / "t"), (7, 0.5, 7, "gone!")
    by = draw.choice((None, ["count"]))
    for number, piece in enumerate(_pieces(rows, draw)):
        table = table_of([*piece, gone] if number % 2 == 0 else piece)
        deltalake.write_deltalake(path, table, mode="append", partition_by=by)
    deltalake.DeltaTable(path).delete("name = 'gone!'")
    return Filed(path, unit_bytes=draw.choice((None, 1, 500)))


def iceberg(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    """Write a file for each piece, of a table of which a column is renamed later."""
    catalog = hinted_catalog("made", uri="sqlite:///:memory:", warehouse=f"file://{directory}")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=SCHEMA.set(2, pa.field("was", pa.int64())))
    first, *others = _pieces(rows, draw)
    table.append(table_of(first).rename_columns(table.schema().as_arrow().names))
    with table.update_schema() as change:
        change.rename_column("was", "count")
    for piece in others:
        table.append(table_of(piece))
    catalog.engine.dispose()
    return Filed(directory / "ns" / "t", unit_bytes=draw.choice((None, 1, 500)))


def excel(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    for number, piece in enumerate(_pieces(rows, draw)):
        write_file(directory / f"{number}.xlsx", table_of(piece))
    return Filed(directory)


def webdataset(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    kind = draw.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT))
    for number, piece in enumerate(_pieces(rows, draw)):
        columns = table_of(piece).select(["id", "count"])
        write_file(directory / f"{number}.tar", columns, prefix=f"{number}/", format=kind)
    return Filed(directory, {"union": True}, unit_bytes=draw.choice((None, 1, 5000)))


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


def dataset(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    """Write the rows in any order, splits and number of shards first."""
    bt.write(
        csv_file(directory, rows, draw).inputs,
        directory / "ds",
        splits=draw.choice((None, {"c": 0.5, "d": 0.5})),
        shards=draw.choice((2, 5)),
        compression=draw.choice(("none", "gzip")),
        seed=draw.randrange(9),
    )
    return Filed(directory / "ds")


def records_of_others(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    for number, piece in enumerate(_pieces(rows, draw)):
        suffix = draw.choice((".tfrecord", ".tfrecord.gz", f".tfrecord-{number:05d}-of-00009"))
        data = FORMATS[".tfrecord"](table_of(piece))
        packed = gzip.compress(data) if suffix.endswith(".gz") else data
        (directory / f"{number}{suffix}").write_bytes(packed)
    return Filed(directory)


def sqlite(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    declared = "CREATE TABLE t (id INTEGER, x REAL, count INTEGER, name TEXT)"
    return Filed(make_database(directory / "t.sqlite", declared, rows=rows), {"table": "t"})


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


def dicts(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    return Filed(table_of(rows).to_pylist())


def generator(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    return Filed(row for row in table_of(rows).to_pylist())


def arrow_table(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    return Filed(pa.concat_tables(map(table_of, _pieces(rows, draw))))


def pandas_frame(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    import pandas

    return Filed(table_of(rows).to_pandas(types_mapper=pandas.ArrowDtype))


def pandas_objects(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    import pandas

    frame = pandas.DataFrame(rows, columns=SCHEMA.names, dtype=object)
    return Filed(frame.sample(frac=1, random_state=draw.randrange(99)))


def polars_frame(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    import polars

    frame = polars.from_arrow(table_of(rows))
    return Filed(draw.choice((frame, frame.lazy())))


def hugging_face(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    datasets = pytest.importorskip("datasets")
    held = datasets.Dataset(table_of(rows)).shuffle(seed=draw.randrange(99))
    return Filed(draw.choice((held, held.to_iterable_dataset())))


def zipped(directory: Path, rows: list[Row], draw: random.Random) -> Filed:
    ways = (csv_cut_inside, json_arrays, parquet_of_other_types, arrow_files, orc_file, avro_file)
    (directory / "unzipped").mkdir()
    filed = draw.choice((*ways, dataset, records_of_others))(directory / "unzipped", rows, draw)
    (directory / "zips").mkdir()
    inside = Path(filed.inputs).relative_to(directory / "unzipped")
    zip_of(
        directory / "unzipped",
        directory / "zips" / "t.zip",
        draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)),
    )
    return dataclasses.replace(filed, inputs=directory / "zips" / "t.zip" / inside)


Variant = Callable[[Path, list[Row], random.Random], Filed]
ALL_COLUMNS = (
    *(csv_cut_inside, csv_with_semicolons, csv_directories, csv_gzip, csv_utf16),
    *(json_lines_cut_inside, json_arrays),
    *(parquet_file, parquet_of_other_types, arrow_files, orc_file, avro_file),
    *(stage, sqlite, duckdb, excel, delta, iceberg),
    *(dataset, records_of_others, zipped),
    *(dicts, generator, arrow_table, pandas_frame, pandas_objects, polars_frame, hugging_face),
)
# What they have types for, if not for all columns.
COLUMNS = {npz: ("id", "x"), webdataset: ("id", "count")}
VARIANTS = (*ALL_COLUMNS, *COLUMNS)


def _of_sqlite(row: Row) -> Row:
    """Return a row as SQLite holds it: a whole number is an integer, which has no negative zero."""
    return (row[0], row[1] + 0.0, *row[2:])


def _of_excel(row: Row) -> Row:
    """Return a row as openpyxl writes it: numbers of 16 digits, and no text without characters."""
    return (row[0] % 10**9, float(f"{row[1]:.15g}") + 0.0, row[2], row[3] or None)


def _unchanged(row: Row) -> Row:
    return row


HELD = {sqlite: _of_sqlite, excel: _of_excel}


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


def filed_hashes(directory, way, rows, columns, draw):
    (directory / "in").mkdir()
    return hashes_of(directory, way(directory / "in", rows, draw), columns)


@functools.cache
def as_csv(held, columns, seed):
    """Return random rows as a container holds them, and what they give as a CSV file."""
    draw = random.Random(seed)
    rows = [held(row) for row in draw_rows(draw)]
    with tempfile.TemporaryDirectory() as scratch:
        return rows, filed_hashes(Path(scratch), csv_file, rows, columns, draw)


def judge(directory, variant, seed):
    """File random rows in two ways, in two orders; return how many rows there are.

    Raises:
        AssertionError: The two datasets differ.
    """
    columns = COLUMNS.get(variant, tuple(SCHEMA.names))
    rows, expected = as_csv(HELD.get(variant, _unchanged), columns, seed)
    draw = random.Random(f"{seed} {variant.__name__}")
    found = filed_hashes(directory, variant, draw.sample(rows, len(rows)), columns, draw)
    assert found == expected, f"{variant.__name__}, seed {seed}"
    assert found["examples"] == len(rows)
    return len(rows)
