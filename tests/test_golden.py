"""Golden datasets: every source, order, split and compression keeps the bytes it had.

``golden/expected.json`` holds the manifests, without what follows from sizes of input files.
Resized pictures are not among them: their bytes depend on the version of Pillow. To write the file
anew, after a change that is meant and has its line in `beam_tfrecord.rules`:

    python -m tests.test_golden
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import random
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt

GOLDEN = Path(__file__).with_name("golden")
EXPECTED = GOLDEN / "expected.json"
ROWS = 500
WORDS = ("ann", "bob", "çelik", "дима", "e,f", 'g"h', "line\nbreak", "")


def _rows() -> list[dict[str, Any]]:
    """Return rows whose values follow from `random.Random` alone, which is stable by promise."""
    draw = random.Random(7)
    start = datetime.datetime(2024, 2, 28, tzinfo=datetime.timezone.utc)
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


def csv(directory: Path) -> str:
    """Write the rows as two CSV files."""
    rows = _rows()
    for number, part in enumerate((rows[:200], rows[200:])):
        lines = [",".join(rows[0]), *(",".join(map(_text, row.values())) for row in part)]
        (directory / f"{number}.csv").write_bytes("\n".join(lines).encode() + b"\n")
    return str(directory / "*.csv")


def parquet(directory: Path) -> str:
    """Write the rows, with lists, structs, maps and decimals, as Parquet."""
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
    pq.write_table(table, directory / "a.parquet", row_group_size=130)
    return str(directory / "a.parquet")


def sqlite(directory: Path) -> str:
    """Write the rows as a SQLite table."""
    path = directory / "a.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL, n INTEGER, name TEXT)")
        found = [(row["id"], row["x"], row["n"], row["name"]) for row in _rows()]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", found)
    return f"sqlite:///{path}"


def numpy(directory: Path) -> str:
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


def pictures(directory: Path) -> str:
    """Return the folder of pictures beside this file, one folder a class."""
    return str(GOLDEN / "pictures")


Make = Callable[[Path], str]
HALVES = {"splits": {"a": 0.5, "b": 0.5}}

JOBS: dict[str, tuple[Make, dict[str, Any]]] = {
    "csv": (csv, {}),
    "csv, splits, gzip": (csv, {**HALVES, "compression": "gzip", "seed": 3}),
    "csv, source order": (csv, {"shuffle": False}),
    "csv, source order, splits": (csv, {"shuffle": False, **HALVES}),
    "csv, limit, columns": (csv, {"limit": 123, "columns": ["id", "name", "day"]}),
    "parquet, key, group": (parquet, {"key": ["id"], "group": ["name"], **HALVES}),
    "parquet, key": (parquet, {"key": ["name", "n"], "shards": 5, **HALVES}),
    "parquet, source order, gzip": (
        parquet,
        {"shuffle": False, "compression": "gzip", "shard_size": 9_000},
    ),
    "parquet, group of floats": (parquet, {"group": ["x"], **HALVES}),
    "parquet, split column": (parquet, {"split_column": "flag", "columns": ["flag", "id", "word"]}),
    "sqlite": (sqlite, {"source_options": {"table": "t"}, **HALVES}),
    "sqlite, source order": (sqlite, {"source_options": {"table": "t"}, "shuffle": False}),
    "numpy": (numpy, HALVES),
    "numpy, values": (numpy, {"source_options": {"store": "values"}, "columns": ["image", "half"]}),
    "pictures": (pictures, HALVES),
    "pictures, source order": (
        pictures,
        {"shuffle": False, "source_options": {"check": "decode"}},
    ),
    "preprocessed": (
        csv,
        {
            "splits": {"train": 0.8, "test": 0.2},
            "columns": ["id", "x", "n", "name"],
            "step": ["zscore=id", "impute=n:how=constant:value=5", "minmax=x"],
        },
    ),
}


def _written(name: str, directory: Path) -> dict[str, Any]:
    """Run a job; return its manifest without what depends on the sizes of input files."""
    make, options = JOBS[name]
    (directory / "in").mkdir()
    source = make(directory / "in")
    bt.write(source, directory / "out", **options)
    manifest = json.loads((directory / "out" / "manifest.json").read_text())
    for varying in ("fingerprint", "source", "xxh64"):
        del manifest[varying]
    return manifest


@pytest.mark.filterwarnings("ignore")  # tensorflow-transform warns of its own calls
@pytest.mark.parametrize("name", JOBS)
def test_dataset_is_the_golden_one(name: str, tmp_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text())[name]
    assert _written(name, tmp_path) == expected
    shards = [shard for split in expected["splits"].values() for shard in split["shards"]]
    for shard in shards:
        assert (tmp_path / "out" / shard["path"]).is_file()


def _write_expected() -> None:
    found = {}
    for name in JOBS:
        with tempfile.TemporaryDirectory() as directory:
            found[name] = _written(name, Path(directory))
    EXPECTED.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(_write_expected())
