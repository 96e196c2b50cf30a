"""The input of the benchmark: tables of 4 int64, 4 float32 and 2 string columns, by seed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 100_000
# Float32 pictures of 112 x 112 x 3: 150,528 bytes a row.
ARRAY_SHAPE = (112, 112, 3)
ARRAYS_AT_ONCE = 256
CSV_TABLES = 5


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of one benchmark; all tables have as many rows.

    Attributes:
        parquet: One file a table.
        csv: The first `CSV_TABLES` tables again.
        table_rows: Rows of each table.
        stock_parquet: The first rows of the first table, for what is too slow for all of them.
        stock_rows: How many rows that is.
    """

    parquet: tuple[str, ...]
    csv: tuple[str, ...]
    table_rows: int
    stock_parquet: str
    stock_rows: int


def make_table(rows: int, *, seed: int) -> pa.Table:
    """Return a table whose values follow from `seed` alone."""
    random = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {}
    for index in range(4):
        columns[f"f{index}"] = pa.array(random.standard_normal(rows).astype(np.float32))
    for index in range(4):
        columns[f"i{index}"] = pa.array(random.integers(0, 1_000_000, rows))
    words = pa.array([f"category_{number:04d}" for number in range(1000)])
    columns["s0"] = words.take(pa.array(random.integers(0, 1000, rows)))
    users = pa.array(random.integers(0, 10**9, rows)).cast(pa.string())
    columns["s1"] = pc.binary_join_element_wise("user-", users, "")
    return pa.table(columns)


def write_arrays(path: Path, rows: int) -> None:
    """Write a NumPy file of random arrays, a few at a time: memory counts from here on."""
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, *ARRAY_SHAPE)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, ARRAYS_AT_ONCE):
            count = min(ARRAYS_AT_ONCE, rows - start)
            file.write(random.random((count, *ARRAY_SHAPE), np.float32).tobytes())


def _write_tables(folder: Path, *, rows: int, tables: int, stock_rows: int, seed: int) -> Inputs:
    parquet = [folder / f"rows-{index:02d}.parquet" for index in range(tables)]
    csv = [folder / f"rows-{index:02d}.csv" for index in range(min(tables, CSV_TABLES))]
    stock = folder / "stock.parquet"
    for index, path in enumerate(parquet):
        table = make_table(rows, seed=seed + index)
        pq.write_table(table, path, row_group_size=ROW_GROUP_ROWS)
        if index < len(csv):
            pyarrow.csv.write_csv(table, csv[index])
        if index == 0:
            # Small row groups, so that stock Beam has something to split.
            pq.write_table(table.slice(0, stock_rows), stock, row_group_size=25_000)
    return Inputs(
        parquet=tuple(map(str, parquet)),
        csv=tuple(map(str, csv)),
        table_rows=rows,
        stock_parquet=str(stock),
        stock_rows=min(stock_rows, rows),
    )


def make_inputs(work: Path, *, rows: int, tables: int, stock_rows: int, seed: int) -> Path:
    """Make the input below `work`, or take what an earlier benchmark made there.

    Args:
        work: A folder on the filesystem to be measured.
        rows: Rows of each table.
        tables: Number of tables.
        stock_rows: Rows for the slow cases, at most those of one table.
        seed: Seed of the first table; the others count up.

    Returns:
        The file that `load_inputs` reads.
    """
    folder = work / f"input-{rows}x{tables}-{stock_rows}-{seed}"
    told = folder / "inputs.json"
    if not told.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = _write_tables(folder, rows=rows, tables=tables, stock_rows=stock_rows, seed=seed)
        told.write_text(json.dumps(dataclasses.asdict(made)), encoding="utf-8")
    return told


def load_inputs(told: Path) -> Inputs:
    """Read what `make_inputs` noted."""
    fields = json.loads(told.read_text(encoding="utf-8"))
    fields["parquet"], fields["csv"] = tuple(fields["parquet"]), tuple(fields["csv"])
    return Inputs(**fields)
