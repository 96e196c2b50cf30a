"""What the behaviour suite needs to know of each source: how its files are made and broken.

A new source joins the suite with one more entry in `CASES`.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy import source as numpy_module
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.parquet import source as parquet_module
from beam_tfrecord.sources.parquet.source import Parquet

Row = dict[str, Any]

# What every source can hold: a number, a fraction and a text in each row.
TYPES = {"id": pa.int64(), "share": pa.float64(), "name": pa.string()}
SCHEMA = pa.schema(list(TYPES.items()))


def some_rows(count: int, *, first: int = 0) -> list[Row]:
    """Return `count` rows with nulls, commas, quotes, line ends and letters of every length."""
    names = ["plain", "a,b", 'say "x"', "two\nlines", "naïve", "日本語", "🦊", None, "end\r\n", " "]
    return [
        {
            "id": None if number % 11 == 3 else number,
            "share": None if number % 7 == 5 else number / 8,
            "name": names[number % len(names)],
        }
        for number in range(first, first + count)
    ]


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of source under test.

    Attributes:
        suffix: Suffix of its files.
        write: Writes rows with the columns of `SCHEMA` to a path.
        open: Makes the source of some paths, which cuts files of some KB into several units.
        use_small_units: Has files cut so, where no option does.
        held: What its files can hold of a row: not every kind of file has missing values.
        damage: Breaks a file of 200 rows somewhere behind its start.
        damage_message: Pattern of the error that then names the file and the place.
    """

    suffix: str
    write: Callable[[Path, Sequence[Row]], None]
    open: Callable[..., Source]
    damage: Callable[[Path], None]
    damage_message: str
    use_small_units: Callable[[pytest.MonkeyPatch], None] = lambda _: None
    held: Callable[[Row], Row] = lambda row: row


def _write_csv(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(TYPES), quoting=csv.QUOTE_MINIMAL)
        writer.writeheader()
        writer.writerows(rows)


def _damage_csv(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[120] = b"1,2,3,4,5"
    path.write_bytes(b"\n".join(lines))


def _write_parquet(path: Path, rows: Sequence[Row]) -> None:
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    pq.write_table(table, path, row_group_size=20, use_dictionary=False, write_page_checksum=True)


def _damage_parquet(path: Path) -> None:
    column = pq.ParquetFile(path).metadata.row_group(6).column(2)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 0xFF
    path.write_bytes(data)


def _write_numpy(path: Path, rows: Sequence[Row]) -> None:
    dtype = [("id", "<i8"), ("share", "<f8"), ("name", "<U16")]
    np.save(path, np.array([tuple(row.values()) for row in rows], dtype))


def _damage_numpy(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def _without_nulls(row: Row) -> Row:
    return {"id": row["id"] or 0, "share": row["share"] or 0.0, "name": row["name"] or ""}


def _open_images(paths: Any, **options: Any) -> Images:
    """Open tables of pictures, but for the further columns alone: those of the path, too."""
    named = [paths] if isinstance(paths, str | Path) else paths
    has_partitions = any("day=" in str(p) or any(Path(p).glob("day=*")) for p in named)
    columns = [*TYPES, "day", "city"] if has_partitions else [*TYPES]
    return Images(paths, path_column="file", **{"columns": columns, **options})


CASES = {
    "csv": Case(
        suffix=".csv",
        write=_write_csv,
        open=lambda paths, **options: Csv(paths, types=TYPES, chunk_bytes=1024, **options),
        damage=_damage_csv,
        damage_message=r"the row in x\.csv:121 has 5 fields but the first line has 3",
    ),
    "parquet": Case(
        suffix=".parquet",
        write=_write_parquet,
        open=Parquet,
        damage=_damage_parquet,
        damage_message=r"cannot read row group 6 of x\.parquet \(.*CRC checksum.*\)",
        use_small_units=lambda patch: patch.setattr(parquet_module.Parquet, "unit_bytes", 1500),
    ),
    "numpy": Case(
        suffix=".npy",
        write=_write_numpy,
        open=lambda paths, **options: Numpy(paths, example="row", **options),
        damage=_damage_numpy,
        damage_message=r"x\.npy is cut off: it has 2,000 bytes but its header says 16,192",
        use_small_units=lambda patch: patch.setattr(numpy_module.Numpy, "unit_bytes", 1500),
        held=_without_nulls,
    ),
    "images": Case(
        suffix=".parquet",
        write=_write_parquet,
        open=_open_images,
        damage=_damage_parquet,
        damage_message=r"cannot read row group 6 of x\.parquet \(.*CRC checksum.*\)",
        use_small_units=lambda patch: patch.setattr(parquet_module.Parquet, "unit_bytes", 1500),
    ),
}
