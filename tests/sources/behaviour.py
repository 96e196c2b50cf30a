"""What `SourceConformance` needs to know of each source: how its files are made and broken.

A new source joins the suite with one more entry in `CASES`.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.sources import numpy as numpy_module
from beam_tfrecord.sources import parquet as parquet_module
from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.avro import Avro
from beam_tfrecord.sources.base import Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.excel import Excel
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.numpy import Numpy
from beam_tfrecord.sources.orc import Orc
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.sources.tfrecord import Tfrecord
from beam_tfrecord.testing import SCHEMA, Row
from tests.helpers import formats
from tests.helpers.records import damage_record, write_shard

PICTURE = Path(__file__).parents[1] / "golden/pictures/cats/png-1.png"
TYPES = {field.name: field.type for field in SCHEMA}


@dataclasses.dataclass(frozen=True)
class Case:
    """One kind of source under test.

    Attributes:
        suffix: Suffix of its files.
        write: Writes rows with the columns of `SCHEMA` to a path.
        open: Makes the source of some paths, which cuts files of some KB into several units.
        cuts_files: Whether it cuts a file into several units.
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
    cuts_files: bool = True
    use_small_units: Callable[[pytest.MonkeyPatch], None] = lambda _: None
    held: Callable[[Row], Row] = lambda row: row


def _table(rows):
    return pa.Table.from_pylist(list(rows), SCHEMA)


def _writer(form, **options):
    """Return what writes rows in a format of the catalogue."""
    return lambda path, rows: path.write_bytes(form(_table(rows), **options))


_SMALL_GROUPS = {"group_rows": 20, "use_dictionary": False, "write_page_checksum": True}
_write_parquet = _writer(formats.parquet_file, **_SMALL_GROUPS)


def _damage_csv(path):
    lines = path.read_bytes().split(b"\n")
    lines[120] = b"1,2,3,4,5"
    path.write_bytes(b"\n".join(lines))


def _damage_json(path):
    lines = path.read_bytes().split(b"\n")
    lines[120] = b'{"id": 1 "share": 2}'
    path.write_bytes(b"\n".join(lines))


def _damage_parquet(path):
    column = pq.ParquetFile(path).metadata.row_group(6).column(2)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 5] ^= 0xFF
    path.write_bytes(data)


def _damage_arrow(path):
    """Let an offset of a text lead behind all texts; nothing in the file but sense forbids it."""
    data = pa.py_buffer(path.read_bytes())
    offsets = pa.ipc.open_file(data).get_batch(6).column(2).buffers()[1]
    changed = bytearray(data)
    at = offsets.address - data.address + 4 * 5
    changed[at : at + 4] = b"\x7f" * 4
    path.write_bytes(changed)


def _damage_stream(path):
    path.write_bytes(path.read_bytes()[:-600])


def _damage_orc(path):
    data = bytearray(path.read_bytes())
    middle = pa.orc.ORCFile(path).content_length // 2
    data[middle : middle + 600] = b"\xff" * 600
    path.write_bytes(data)


_SYNC = bytes(range(16))


def _damage_avro(path):
    data = bytearray(path.read_bytes())
    data[[at for at in range(len(data)) if data.startswith(_SYNC, at)][4] - 6] ^= 0xFF
    path.write_bytes(data)


def _write_numpy(path: Path, rows: Sequence[Row]) -> None:
    dtype = [("id", "<i8"), ("share", "<f8"), ("name", "<U16")]
    np.save(path, np.array([tuple(row.values()) for row in rows], dtype))


def _damage_numpy(path):
    path.write_bytes(path.read_bytes()[:2000])


def _without_nulls(row: Row) -> Row:
    return {"id": row["id"] or 0, "share": row["share"] or 0.0, "name": row["name"] or ""}


def _write_images(path: Path, rows: Sequence[Row]) -> None:
    """Write a table of pictures, with one picture for all rows."""
    table = _table(rows).append_column("file", pa.array([str(PICTURE)] * len(rows)))
    path.write_bytes(formats.parquet_file(table, **_SMALL_GROUPS))


def _open_images(paths, **options):
    """Open tables of pictures for their further columns: those of the path, too."""
    named = [paths] if isinstance(paths, str | Path) else paths
    has_partitions = any("day=" in str(p) or any(Path(p).glob("day=*")) for p in named)
    columns = [*TYPES, "day", "city"] if has_partitions else [*TYPES]
    return Images(paths, path_column="file", **{"columns": columns, **options})


def _damage_excel(path):
    """Cut the XML of the sheet off, in a container that is complete."""
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    (sheet,) = (name for name in parts if "worksheets/" in name)
    parts[sheet] = parts[sheet][: len(parts[sheet]) * 2 // 3]
    with zipfile.ZipFile(path, "w") as book:
        for name, data in parts.items():
            book.writestr(name, data)


def _without_returns(row: Row) -> Row:
    # XML has no carriage returns.
    return {**row, "name": row["name"] and row["name"].replace("\r", "")}


CASES = {
    "csv": Case(
        suffix=".csv",
        write=_writer(formats.csv_file, end="\r\n"),
        open=lambda paths, **options: Csv(paths, types=TYPES, chunk_bytes=1024, **options),
        damage=_damage_csv,
        damage_message=r"the row in x\.csv:121 has 5 fields but the first line has 3",
    ),
    "parquet": Case(
        suffix=".parquet",
        write=_write_parquet,
        open=Parquet,
        damage=_damage_parquet,
        damage_message=r"cannot read x\.parquet from row [0-9]+ on \(.*CRC checksum.*\)",
        use_small_units=lambda patch: patch.setattr(parquet_module.Parquet, "unit_bytes", 1500),
    ),
    "arrow": Case(
        suffix=".arrow",
        write=_writer(formats.arrow_file, group_rows=20),
        open=Arrow,
        damage=_damage_arrow,
        damage_message=r"cannot read x\.arrow from row 120 on \(.*offset.*\)",
        use_small_units=lambda patch: patch.setattr(Arrow, "unit_bytes", 3000),
    ),
    "arrow stream": Case(
        suffix=".arrows",
        write=_writer(formats.arrow_stream, group_rows=20),
        open=Arrow,
        damage=_damage_stream,
        damage_message=r"cannot read x\.arrows from row [0-9]+ on \(Expected to ",
        use_small_units=lambda patch: patch.setattr(Arrow, "unit_bytes", 3000),
    ),
    "orc": Case(
        suffix=".orc",
        write=_writer(formats.orc_file, group_rows=20),
        open=Orc,
        damage=_damage_orc,
        damage_message=r"cannot read x\.orc from row (80|100) on \(.+\): write the file again",
        use_small_units=lambda patch: patch.setattr(Orc, "unit_bytes", 3000),
    ),
    "excel": Case(
        suffix=".xlsx",
        write=_writer(formats.excel_file),
        open=lambda paths, **options: Excel(paths, types=TYPES, **options),
        damage=_damage_excel,
        cuts_files=False,
        damage_message=r"x\.xlsx is not a valid xlsx file \(.*\): save it as \.xlsx",
        held=_without_returns,
    ),
    "json": Case(
        suffix=".jsonl",
        write=_writer(formats.json_lines),
        open=lambda paths, **options: Json(paths, types=TYPES, chunk_bytes=1024, **options),
        damage=_damage_json,
        damage_message=r"x\.jsonl:121 is not valid JSON \(Expecting ',' delimiter, column 10\)",
    ),
    "avro": Case(
        suffix=".avro",
        write=_writer(formats.avro_file, codec="deflate", sync_interval=400, sync_marker=_SYNC),
        open=Avro,
        damage=_damage_avro,
        damage_message=r"cannot read x\.avro from row [0-9]+ on \(.+\): write the file",
        use_small_units=lambda patch: patch.setattr(Avro, "unit_bytes", 700),
    ),
    "numpy": Case(
        suffix=".npy",
        write=_write_numpy,
        open=lambda paths, **options: Numpy(paths, example="row", **options),
        damage=_damage_numpy,
        damage_message=r"x\.npy has 1,808 bytes of values but its header says 16,000",
        use_small_units=lambda patch: patch.setattr(numpy_module.Numpy, "unit_bytes", 1500),
        held=_without_nulls,
    ),
    "images": Case(
        suffix=".parquet",
        write=_write_images,
        open=_open_images,
        damage=_damage_parquet,
        damage_message=r"cannot read x\.parquet from row [0-9]+ on \(.*CRC checksum.*\)",
        use_small_units=lambda patch: patch.setattr(parquet_module.Parquet, "unit_bytes", 1500),
    ),
    "tfrecord": Case(
        suffix=".tfrecord",
        write=lambda path, rows: write_shard(path, _table(rows)),
        open=Tfrecord,
        damage=lambda path: damage_record(path, 120),
        damage_message=r"x\.tfrecord is damaged at byte [\d,]+ \(record 120\): the checksum",
        use_small_units=lambda patch: patch.setattr(Tfrecord, "unit_bytes", 1500),
    ),
}
