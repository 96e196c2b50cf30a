"""Inputs that change while a job reads them: what is changed, how, and at which moment.

Nothing here waits for luck: the change is made by the reader itself, or by the step that publishes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.jobs import run
from beam_tfrecord.publish import last_step
from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.avro.source import Avro
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.excel import Excel
from beam_tfrecord.sources.images import listing
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.json.source import Json
from beam_tfrecord.sources.lake.delta import Delta
from beam_tfrecord.sources.lake.iceberg import Iceberg
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.orc import Orc
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.tfrecord.source import Tfrecord
from beam_tfrecord.sources.webdataset import WebDataset
from tests.helpers.made_tables import delta_log, iceberg_metadata
from tests.helpers.records import example, framed

FILES = 2
OLD, NEW = 1, 2
# So few rows a batch, that a file has several batches in each of its units.
BATCH_ROWS = 7

Rows = list[tuple[int, int]]


def _table(first, rows, state):
    return pa.table({"id": np.arange(first, first + rows), "state": np.full(rows, state)})


def _csv(first: int, rows: int, state: int) -> bytes:
    # Every id has as many digits.
    lines = [f"{100_000 + row},{state}" for row in range(first, first + rows)]
    return "\n".join(["id,state", *lines, ""]).encode()


def _gzip(first: int, rows: int, state: int) -> bytes:
    # Not compressed, so the size does not depend on the values.
    return gzip.compress(_csv(first, rows, state), 0, mtime=0)


def _jsonl(first: int, rows: int, state: int) -> bytes:
    lines = (
        json.dumps({"id": 100_000 + row, "state": state}) for row in range(first, first + rows)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def _json(first: int, rows: int, state: int) -> bytes:
    return b"[%b]" % b",".join(_jsonl(first, rows, state).splitlines())


def _parquet(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    plain = {"compression": "none", "use_dictionary": False}
    pq.write_table(_table(first, rows, state), sink, row_group_size=max(1, rows // 3), **plain)
    return sink.getvalue()


def _arrow(first: int, rows: int, state: int) -> bytes:
    return _ipc(pa.ipc.new_file, _table(first, rows, state))


def _arrow_stream(first: int, rows: int, state: int) -> bytes:
    return _ipc(pa.ipc.new_stream, _table(first, rows, state))


def _ipc(make, table):
    sink = io.BytesIO()
    with make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(table) // 3))
    return sink.getvalue()


def _orc(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    table = _table(first, rows, state)
    # As text, because the sizes of statistics depend on numbers.
    table = table.set_column(1, "state", table.column("state").cast(pa.string()))
    pa.orc.write_table(table, sink, stripe_size=1, batch_size=max(1, rows // 3))
    return sink.getvalue()


def _avro(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    fields = [{"name": "id", "type": "long"}, {"name": "state", "type": "long"}]
    schema = {"type": "record", "name": "row", "fields": fields}
    made = _table(first, rows, state).to_pylist()
    fastavro.writer(sink, schema, made, sync_interval=rows, sync_marker=bytes(range(16)))
    return sink.getvalue()


def _xlsx(first: int, rows: int, state: int) -> bytes:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("rows")
    for row in [("id", "state"), *((100_000 + row, state) for row in range(first, first + rows))]:
        sheet.append(row)
    packed, plain = io.BytesIO(), io.BytesIO()
    book.save(packed)
    # Not compressed, so the size does not depend on the values; and without the time of now.
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(plain, "w") as new:
        for name in old.namelist():
            data = re.sub(rb"\d{4}-\d\d-\d\dT[\d:]{8}Z", b"2026-01-01T00:00:00Z", old.read(name))
            new.writestr(zipfile.ZipInfo(name), data)
    return plain.getvalue()


def _tar(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for row in range(100_000 + first, 100_000 + first + rows):
            for column, text in (("id", f"{row}"), ("state", f"{state}")):
                member = tarfile.TarInfo(f"{row}.{column}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
    return sink.getvalue()


def _npy(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.stack([np.arange(first, first + rows), np.full(rows, state)], axis=1))
    return sink.getvalue()


def _npz(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, id=np.arange(first, first + rows), state=np.full(rows, state))
    return sink.getvalue()


def _tfrecord(first: int, rows: int, state: int) -> bytes:
    examples = (example(id=100_000 + row, state=state) for row in range(first, first + rows))
    return b"".join(map(framed, examples))


def _png(first: int, rows: int, state: int) -> bytes:
    sink = io.BytesIO()
    Image.new("L", (4, 4), state).save(sink, "PNG", compress_level=0)
    return sink.getvalue()


def _in_zip(name, make):
    def zipped(first: int, rows: int, state: int) -> bytes:
        sink = io.BytesIO()
        # Not compressed, so the size does not depend on the values; with a time of its own.
        with zipfile.ZipFile(sink, "w") as archive:
            archive.writestr(zipfile.ZipInfo(name), make(first, rows, state))
        return sink.getvalue()

    return zipped


@dataclasses.dataclass(frozen=True)
class Input:
    """A kind of input.

    Attributes:
        source: The class that reads it.
        suffix: Of its files.
        make: Bytes of a file, given its first id, how many rows it has, and their state.
        options: Of the source.
        unit_bytes: Bytes of a unit, where files are to be cut; None: as always.
        finish: Adds what the directory of the files has besides.
    """

    source: type[Any]
    suffix: str
    make: Callable[[int, int, int], bytes]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    unit_bytes: int | None = None
    finish: Callable[[Path], None] = lambda _: None


INPUTS = {
    "csv": Input(Csv, ".csv", _csv),
    "csv cut inside": Input(Csv, ".csv", _csv, {"chunk_bytes": 300}),
    "csv.gz": Input(Csv, ".csv.gz", _gzip),
    "jsonl": Input(Json, ".jsonl", _jsonl),
    "jsonl cut inside": Input(Json, ".jsonl", _jsonl, {"chunk_bytes": 300}),
    "json": Input(Json, ".json", _json),
    "parquet": Input(Parquet, ".parquet", _parquet),
    "parquet cut inside": Input(Parquet, ".parquet", _parquet, unit_bytes=600),
    "delta cut inside": Input(Delta, ".parquet", _parquet, unit_bytes=600, finish=delta_log),
    "iceberg": Input(Iceberg, ".parquet", _parquet, finish=iceberg_metadata),
    "arrow cut inside": Input(Arrow, ".arrow", _arrow, unit_bytes=600),
    "arrow stream cut inside": Input(Arrow, ".arrows", _arrow_stream, unit_bytes=600),
    "orc cut inside": Input(Orc, ".orc", _orc, unit_bytes=600),
    "avro cut inside": Input(Avro, ".avro", _avro, unit_bytes=150),
    "excel": Input(Excel, ".xlsx", _xlsx),
    "webdataset cut inside": Input(WebDataset, ".tar", _tar, unit_bytes=9000),
    "npy": Input(Numpy, ".npy", _npy, {"example": "row"}),
    "npy cut inside": Input(Numpy, ".npy", _npy, {"example": "row"}, unit_bytes=500),
    "npz": Input(Numpy, ".npz", _npz, {"example": "row"}),
    "tfrecord": Input(Tfrecord, ".tfrecord", _tfrecord),
    "tfrecord cut inside": Input(Tfrecord, ".tfrecord", _tfrecord, unit_bytes=600),
    "pictures": Input(Images, ".png", _png),
    "csv in zips": Input(Csv, ".zip", _in_zip("a.csv", _csv)),
    "parquet in zips": Input(Parquet, ".zip", _in_zip("a.parquet", _parquet)),
    "tfrecord in zips": Input(Tfrecord, ".zip", _in_zip("a.tfrecord", _tfrecord)),
}
CHANGES = ("rewritten", "replaced by mv", "replaced by cp -p", "truncated", "appended", "removed")
MOMENTS = ("listed", "before a unit", "inside a unit", "after a unit", "before publishing")


def write_files(directory, kind, rows, state=OLD):
    """Write the files of an input; those of another state have the same sizes."""
    of = INPUTS[kind]
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{number}{of.suffix}" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_bytes(of.make(number * rows, rows, state))
    of.finish(directory)
    return paths


def change(paths: list[Path], kind: str, rows: int, how: str) -> None:
    """Change all files of an input at once."""
    for number, path in enumerate(paths):
        new, before = INPUTS[kind].make(number * rows, rows, NEW), path.stat()
        assert len(new) == before.st_size, "a change that shows in the size proves less"
        if how == "removed":
            path.unlink()
        elif how == "truncated":
            os.truncate(path, before.st_size // 2)
        elif how == "appended":
            with path.open("ab") as file:
                file.write(b"100,2\n")
        elif how == "replaced by mv":
            beside = path.with_name(f".{path.name}")
            beside.write_bytes(new)
            os.utime(beside, ns=(before.st_atime_ns, before.st_mtime_ns))
            beside.replace(path)
        else:
            with path.open("r+b") as file:
                file.write(new)
            if how == "replaced by cp -p":
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@contextlib.contextmanager
def small_units(kind):
    """Let the files of an input be cut where they are to be, and each picture be a unit."""
    of = INPUTS[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "PACK_FILES", 1)
        if of.unit_bytes is not None:
            patch.setattr(of.source, "unit_bytes", of.unit_bytes)
        yield


@contextlib.contextmanager
def at_moment(kind, moment, act):
    """Let jobs in this process call `act` once, at a moment of their reading."""
    left, of = [act], INPUTS[kind]
    # Where a source has both, the first calls the second.
    name = "read_hashed" if "read_hashed" in vars(of.source) else "read"
    read = getattr(of.source, name)

    def reach(reached):
        if reached == moment and left:
            left.pop()()

    def reading(self: Any, unit: Any, schema: Any, **options: Any) -> Iterator[Any]:
        reach("before a unit")
        for batch in read(self, unit, schema, **{**options, "batch_rows": BATCH_ROWS}):
            yield batch
            reach("inside a unit")
        reach("after a unit")

    listing, publication = run.list_input, last_step._publication_id

    def listed(*arguments: Any) -> Any:
        found = listing(*arguments)
        reach("listed")
        return found

    def publishing(*arguments: Any) -> Any:
        reach("before publishing")
        return publication(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of.source, name, reading)
        patch.setattr(run, "list_input", listed)
        patch.setattr(last_step, "_publication_id", publishing)
        yield
        assert not left, "the moment never came"


def rows_of(out):
    """Return id and state of every row of a dataset, in order."""
    found = []
    for row in bt.load(out).rows():
        if "image" in row:
            pixels = Image.open(io.BytesIO(row["image"])).tobytes()
            found.append((int(row["path"][:1]), pixels[0]))
            continue
        pair = row["data"] if "data" in row else (row["id"], row["state"])
        if isinstance(pair, bytes):
            pair = np.frombuffer(pair, np.int64)
        found.append((int(np.asarray(pair[0]).item()), int(np.asarray(pair[1]).item())))
    return sorted(found)


def rows_made(kind, rows, state):
    """Return what `rows_of` gives of an input that never changed."""
    if kind == "pictures":
        rows = 1
    is_text = kind.startswith(("csv", "json", "tfrecord", "excel", "webdataset"))
    offset = 100_000 if is_text else 0
    return [(offset + row, state) for row in range(FILES * rows)]


def judge(directory, kind, how, moment, rows):
    """Change an input while it is written; return what became of the job.

    Raises:
        AssertionError: The dataset is of no one state, or an error is not clear.
    """
    with small_units(kind):
        return _judged(directory, kind, how, moment, rows)


def _judged(directory, kind, how, moment, rows):
    of, out = INPUTS[kind], directory / "out"
    paths = write_files(directory / "in", kind, rows)
    inputs = directory / "in" / ("*.zip" if of.suffix == ".zip" else "")
    told, code = "", 0
    options = {"source_options": of.options}
    with at_moment(kind, moment, lambda: change(paths, kind, rows, how)):
        try:
            bt.write(inputs, out, **options)
        except BeamTFRecordError as error:
            told, code = str(error), error.exit_code
    if told:
        assert code == 1
        assert "\n" not in told, told
        assert told[:1] == told[:1].lower(), told
        assert any(path.name in told for path in paths), told
        assert not (out / "manifest.json").exists()
    else:
        assert rows_of(out) == rows_made(kind, rows, OLD), "the dataset is of no one state"
    if how not in ("rewritten", "replaced by mv", "replaced by cp -p"):
        return "refused" if told else "old"
    if not told:
        # It is no more what the dataset was made from.
        with pytest.raises(BeamTFRecordError, match="the input was edited since the dataset in"):
            bt.write(inputs, out, **options)
        return "old"
    bt.write(inputs, out, **options)
    assert rows_of(out) == rows_made(kind, rows, NEW), "what an attempt left was used again"
    return "refused"
