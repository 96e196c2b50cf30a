"""Golden datasets: every source, order, split and compression keeps the bytes it had.

``golden/digests.txt`` holds a digest a job: of the manifest of some jobs, without what follows from
sizes of input files or from the model of a fitted function, and of the hashes of every source with
every order, split and compression. Resized pictures are not among them: their bytes depend on the
version of Pillow. After a change that is meant, with a new number of the
writing rules, ``golden/rewrite`` shows what changed in the manifests, and writes the digests anew.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import hashlib
import io
import itertools
import json
import random
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from tests.helpers.made_tables import delta_log, iceberg_metadata

GOLDEN = Path(__file__).parents[1] / "golden"
LINES = (GOLDEN / "digests.txt").read_text().splitlines()
DIGESTS = {name: digest for digest, name in (line.split(" ", 1) for line in LINES)}
ROWS = 500
WORDS = ("ann", "bob", "çelik", "дима", "e,f", 'g"h', "line\nbreak", "")


def _rows() -> list[dict[str, Any]]:
    """Return rows whose values follow from `random.Random` alone, which is stable by promise."""
    draw = random.Random(7)
    start = datetime.datetime(2024, 2, 28, tzinfo=datetime.UTC)
    return [
        {
            "id": i,
            "x": draw.random() * 10 ** draw.randrange(-3, 6),
            "n": draw.choice([None, -(2**62), 0, 1, 255]),
            "name": draw.choice([None, *WORDS]),
            "flag": draw.random() < 0.5,
            "when": start + datetime.timedelta(microseconds=draw.randrange(10**13)),
            "day": datetime.date(1999, 12, 31) + datetime.timedelta(days=draw.randrange(9999)),
        }
        for i in range(ROWS)
    ]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    return str(value).lower() if isinstance(value, bool) else str(value)


def csv(directory):
    """Write the rows as two CSV files."""
    rows = _rows()
    for number, part in enumerate((rows[:200], rows[200:])):
        lines = [",".join(rows[0]), *(",".join(map(_text, row.values())) for row in part)]
        (directory / f"{number}.csv").write_bytes("\n".join(lines).encode() + b"\n")
    return str(directory / "*.csv")


def json_lines(directory):
    """Write the rows, with lists and objects, as two files of JSON Lines."""
    rows = [
        {
            **row,
            "when": row["when"].isoformat(),
            "day": str(row["day"]),
            "list": [row["x"]] * (row["id"] % 3),
            "struct": {"a": row["n"], "b": {"c": row["name"]}},
        }
        for row in _rows()
    ]
    for number, part in enumerate((rows[:200], rows[200:])):
        lines = [json.dumps(row, ensure_ascii=bool(number)) for row in part]
        (directory / f"{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return str(directory / "*.jsonl")


def _table():
    """Return the rows, with lists, structs, maps and decimals."""
    table = pa.Table.from_pylist(_rows())
    numbers = [list(range(i % 4)) if i % 5 else None for i in range(ROWS)]
    more = {
        "list": pa.array(numbers, pa.list_(pa.int32())),
        "nested": pa.array([[[i], [], [i, 1]][: i % 4] for i in range(ROWS)]),
        "pair": pa.array([[i / 4, -i] for i in range(ROWS)], pa.list_(pa.float32(), 2)),
        "struct": pa.array([{"a": i, "b": str(i)} for i in range(ROWS)]),
        "map": pa.array(
            [[(str(i), i)] * (i % 3) for i in range(ROWS)], pa.map_(pa.string(), pa.int64())
        ),
        "price": pa.array([decimal.Decimal(i).scaleb(-2) for i in range(ROWS)]),
        "blob": pa.array([bytes([i % 256, 0]) for i in range(ROWS)]),
        "word": pa.array([WORDS[i % 8] for i in range(ROWS)]).dictionary_encode(),
    }
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def parquet(directory):
    """Write the rows as Parquet."""
    pq.write_table(_table(), directory / "a.parquet", row_group_size=130)
    return str(directory / "a.parquet")


def arrow(directory):
    """Write the rows as an Arrow file and an Arrow stream."""
    table = _table()
    for name, make in (("0.arrow", pa.ipc.new_file), ("1.arrows", pa.ipc.new_stream)):
        with make(directory / name, table.schema) as writer:
            half = table.slice(0, 200) if name == "0.arrow" else table.slice(200)
            writer.write_table(half, max_chunksize=130)
    return str(directory)


def orc(directory):
    """Write the rows as ORC, which has no dictionaries."""
    table = _table()
    words = table.column("word").cast(pa.string())
    table = table.set_column(table.schema.get_field_index("word"), "word", words)
    pa.orc.write_table(table, directory / "a.orc", stripe_size=1, batch_size=130)
    return str(directory / "a.orc")


def avro(directory):
    """Write the rows as Avro."""
    types = {"id": "long", "x": "double", "n": ["null", "long"], "name": ["null", "string"]}
    types |= {"flag": "boolean", "when": {"type": "long", "logicalType": "timestamp-micros"}}
    types |= {"day": {"type": "int", "logicalType": "date"}}
    fields = [{"name": name, "type": of} for name, of in types.items()]
    with (directory / "a.avro").open("wb") as file:
        schema = {"type": "record", "name": "row", "fields": fields}
        fastavro.writer(file, schema, _rows(), codec="deflate", sync_interval=2000)
    return str(directory / "a.avro")


def delta(directory):
    """Write the rows as two files of a Delta Lake table."""
    table = pa.Table.from_pylist(_rows())
    for name, part in (("0", table.slice(0, 200)), ("1", table.slice(200))):
        pq.write_table(part, directory / f"{name}.parquet", row_group_size=130)
    delta_log(directory)
    return str(directory)


def iceberg(directory):
    """Write the rows as two files of an Iceberg table."""
    delta(directory)
    shutil.rmtree(directory / "_delta_log")
    iceberg_metadata(directory)
    return str(directory)


def excel(directory):
    """Write the rows as an Excel workbook, whose times have no zones and no fractions."""
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("rows")
    rows = _rows()
    sheet.append(list(rows[0]))
    for row in rows:
        row["when"] = row["when"].replace(tzinfo=None, microsecond=0)
        sheet.append(list(row.values()))
    book.save(directory / "a.xlsx")
    return str(directory / "a.xlsx")


def webdataset(directory):
    """Write rows as the samples of two tar files."""
    for part, rows in enumerate((_rows()[:200], _rows()[200:])):
        with tarfile.open(directory / f"{part}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            for row in rows:
                columns = {"bin": f"{row['x']}", "id": f"{row['id']}", "txt": row["name"] or ""}
                columns["cls"] = str(row["flag"] + 0)
                for column, text in columns.items():
                    member = tarfile.TarInfo(f"é/{row['id']:04}.{column}")
                    member.size = len(text.encode())
                    tar.addfile(member, io.BytesIO(text.encode()))
    return str(directory / "*.tar")


def dataset(directory):
    """Write the Parquet rows as a dataset of two splits."""
    bt.write(parquet(directory), directory / "ds", splits={"train": 0.75, "test": 0.25}, shards=5)
    return str(directory / "ds")


def others(directory):
    """Copy the shards of the dataset without its manifest, as files of another program."""
    (directory / "others").mkdir()
    for path in Path(dataset(directory)).glob("*.tfrecord"):
        path.rename(directory / "others" / path.name)
    return str(directory / "others")


def sqlite(directory):
    """Write the rows as a SQLite table."""
    path = directory / "a.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL, n INTEGER, name TEXT)")
        found = [(row["id"], row["x"], row["n"], row["name"]) for row in _rows()]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", found)
    return f"sqlite:///{path}"


def flagged(directory):
    """Write the rows as a SQLite table with a column that can name splits."""
    url = sqlite(directory)
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.execute("ALTER TABLE t ADD COLUMN flag TEXT")
        connection.execute("UPDATE t SET flag = CASE id % 3 WHEN 0 THEN 'yes' ELSE 'no' END")
        connection.commit()
    return url


def duckdb(directory):
    """Write the rows as a DuckDB table."""
    import duckdb

    made = pa.Table.from_pylist(_rows())  # noqa: F841 - DuckDB finds it by its name
    with duckdb.connect(str(directory / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM made")
    return f"duckdb:///{directory / 'a.duckdb'}"


def stage(directory):
    """Extract the rows of the CSV files."""
    (directory / "csv").mkdir()
    bt.extract(csv(directory / "csv"), directory / "stage")
    return str(directory / "stage")


def numpy(directory):
    """Write arrays of several types and shapes as one .npz file."""
    number = np.arange(ROWS)
    np.savez(
        directory / "a.npz",
        image=(number[:, None, None] * np.arange(12).reshape(3, 4)).astype(np.uint8),
        label=number % 10,
        half=(number / 8).astype(np.float16),
        double=number / 3,
        text=np.array([f"é{i}" for i in number]),
        moment=number.astype("M8[ms]"),
        complex=number * (1 + 2j),
        big=number.astype(">i4").reshape(ROWS, 1),
    )
    return str(directory / "a.npz")


def dicts(directory: Path) -> list[dict[str, Any]]:
    """Return the rows as dicts in memory."""
    return _rows()


def pictures(directory):
    """Return the folder of pictures beside this file, one folder a class."""
    return str(GOLDEN / "pictures")


HALVES = {"splits": {"a": 0.5, "b": 0.5}}

JOBS = {
    "csv": (csv, {}),
    "csv, splits, gzip": (csv, {**HALVES, "compression": "gzip", "seed": 3}),
    "csv, source order": (csv, {"shuffle": False}),
    "csv, source order, splits": (csv, {"shuffle": False, **HALVES}),
    "csv, limit, columns": (csv, {"limit": 123, "columns": ["id", "name", "day"]}),
    "json": (json_lines, {}),
    "json, key, types": (
        json_lines,
        {"key": ["id"], "source_options": {"types": {"day": "date", "x": "float32"}}, **HALVES},
    ),
    "parquet, key, group": (parquet, {"key": ["id"], "group": ["name"], **HALVES}),
    "parquet, key": (parquet, {"key": ["name", "n"], "shards": 5, **HALVES}),
    "parquet, source order, gzip": (
        parquet,
        {"shuffle": False, "compression": "gzip", "shard_size": 9_000},
    ),
    "parquet, group of floats": (parquet, {"group": ["x"], **HALVES}),
    "parquet, split column": (parquet, {"split_column": "flag", "columns": ["flag", "id", "word"]}),
    "arrow, key, group": (arrow, {"key": ["id"], "group": ["name"], **HALVES}),
    "orc": (orc, HALVES),
    "avro": (avro, HALVES),
    "delta, filter": (delta, {"filter": "id < 150 and x > 1 or id = 499", **HALVES}),
    "iceberg, key": (iceberg, {"key": ["id"], **HALVES}),
    "excel": (excel, HALVES),
    "webdataset, columns": (webdataset, {"columns": ["txt", "bin", "cls"], **HALVES}),
    "sqlite": (sqlite, {"source_options": {"table": "t"}, **HALVES}),
    "sqlite, source order": (sqlite, {"source_options": {"table": "t"}, "shuffle": False}),
    "numpy": (numpy, HALVES),
    "numpy, values": (numpy, {"source_options": {"store": "values"}, "columns": ["image", "half"]}),
    "dataset": (dataset, {"seed": 2}),
    "dataset, key, gzip": (dataset, {"key": ["id"], "compression": "gzip"}),
    "dataset, source order, splits": (dataset, {"shuffle": False, **HALVES}),
    "records of others": (others, HALVES),
    "records of others, columns": (others, {"columns": ["word", "pair", "id"], "shards": 3}),
    "dicts, key": (dicts, {"key": ["id"], **HALVES}),
    "pictures": (pictures, HALVES),
    "pictures, source order": (pictures, {"shuffle": False, "source_options": {"check": "decode"}}),
    "preprocessed": (
        csv,
        {
            "splits": {"train": 0.8, "test": 0.2},
            "columns": ["id", "x", "n", "name"],
            "step": ["zscore=id", "impute=n:how=constant:value=5", "minmax=x"],
        },
    ),
}


TABLE = {"source_options": {"table": "t"}}
# Source: how it is made, its options, its column of splits, and a key.
SOURCES = {
    "csv": (csv, {}, "flag", "id"),
    "json": (json_lines, {}, "flag", "id"),
    "parquet": (parquet, {}, "flag", "id"),
    "arrow": (arrow, {}, "flag", "id"),
    "orc": (orc, {}, "flag", "id"),
    "avro": (avro, {}, "flag", "id"),
    "excel": (excel, {}, "flag", "id"),
    "webdataset": (webdataset, {}, "cls", "id"),
    "sqlite": (flagged, TABLE, "flag", "id"),
    "duckdb": (duckdb, TABLE, "flag", "id"),
    "stage": (stage, {}, "flag", "id"),
    "numpy": (numpy, {}, "label", "label"),
    "dataset": (dataset, {}, "flag", "id"),
    "records of others": (others, {}, "flag", "id"),
    "dicts": (dicts, {}, "flag", "id"),
    "pictures": (pictures, {}, "label_name", "path"),
}
ORDERS = ("shuffled", "by key", "source")
SPLITS = ("none", "hash", "column")
COMPRESSIONS = ("none", "gzip")


def _every_job():
    """Return a job of every source with every order, way to split and compression."""
    jobs = {}
    for source, order, split, compression in itertools.product(
        SOURCES, ORDERS, SPLITS, COMPRESSIONS
    ):
        make, options, column, key = SOURCES[source]
        chosen = {**options, "compression": compression, "shards": 12, "max_rejects": "any"}
        chosen |= {"by key": {"key": key}, "source": {"shuffle": False}}.get(order, {})
        chosen |= {"hash": HALVES, "column": {"split_column": column}}.get(split, {})
        jobs[f"{source}, {order}, {split}, {compression}"] = (make, chosen)
    return jobs


EVERY_JOB = _every_job()


def digested(name):
    """Run a job; return a digest of its manifest, and the canonical JSON that was digested.

    That is the manifest without what depends on the sizes of input files, and for `EVERY_JOB` the
    part that says which bytes there are.
    """
    make, options = (JOBS | EVERY_JOB)[name]
    with tempfile.TemporaryDirectory() as directory:
        made, out = Path(directory, "in"), Path(directory, "out")
        made.mkdir()
        bt.write(make(made), out, **options)
        manifest = json.loads((out / "manifest.json").read_text())
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        for shard in shards:
            assert (out / shard["path"]).is_file()
    (generation,) = manifest.pop("generations")
    if name in JOBS:
        del manifest["xxh64"]
        manifest["sidecars"].pop("transform_fn/saved_model.pb", None)
        manifest["rejects"] = generation["rejects"]
    else:
        manifest = {
            "content": manifest["content"],
            "rejects": generation["rejects"]["rows"],
            "schema": manifest["sidecars"]["schema.json"],
            "shards": {shard["path"]: shard["xxh64"] for shard in shards},
        }
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest(), text


def _check(name):
    digest, text = digested(name)
    told = f"{name} is not the golden one; run tests/golden/rewrite to see what changed"
    assert digest == DIGESTS[name], f"{told}. It is:\n{text}"


# The quick tier has no packages for these.
SLOW = ("delta, filter", "iceberg, key", "preprocessed")


@pytest.mark.slow_after(12)
@pytest.mark.filterwarnings("ignore")  # tensorflow-transform warns of its own calls
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in JOBS]
)
def test_dataset_is_the_golden_one(name):
    _check(name)


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_every_order_split_and_compression_is_the_golden_one(source):
    for name in EVERY_JOB:
        if name.startswith(f"{source}, "):
            _check(name)


if __name__ == "__main__":  # for golden/rewrite
    json.dump({name: digested(name) for name in sys.argv[1:] or JOBS | EVERY_JOB}, sys.stdout)
