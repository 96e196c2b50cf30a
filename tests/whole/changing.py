"""Inputs that change while a job reads them: what is changed, how, and at which moment.

Nothing here waits for luck: the change is made by the reader itself, or by the step that publishes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.jobs import run
from beam_tfrecord.publish import last_step
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.delta import Delta
from beam_tfrecord.sources.images import folders as listing
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy import Numpy
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.sources.tfrecord import Tfrecord
from tests.helpers.formats import csv_file, parquet_file, tfrecord_file
from tests.helpers.made_tables import delta_log

FILES = 2
OLD, NEW = 1, 2
# So few rows a batch, that a file has several batches in each of its units.
BATCH_ROWS = 7


def _table(first, rows, state):
    # Every id has as many digits.
    ids = np.arange(100_000 + first, 100_000 + first + rows)
    return pa.table({"id": ids, "state": np.full(rows, state)})


def _gzip(table):
    # Not compressed, so the size does not depend on the values.
    return gzip.compress(csv_file(table), 0, mtime=0)


def _npy(table):
    sink = io.BytesIO()
    np.save(sink, np.stack([column.to_numpy() for column in table.columns], axis=1))
    return sink.getvalue()


def _png(table):
    sink = io.BytesIO()
    Image.new("L", (4, 4), table["state"][0].as_py()).save(sink, "PNG", compress_level=0)
    return sink.getvalue()


@dataclasses.dataclass(frozen=True)
class Input:
    """A kind of input.

    Attributes:
        source: The class that reads it.
        suffix: Of its files.
        form: Bytes of a file, given its table.
        options: Of the source.
        unit_bytes: Bytes of a unit, where files are to be cut; None: as always.
        finish: Adds what the directory of the files has besides.
    """

    source: type[Any]
    suffix: str
    form: Callable[[pa.Table], bytes]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    unit_bytes: int | None = None
    finish: Callable[[Path], None] = lambda _: None

    def make(self, first, rows, state):
        """Return the bytes of a file, given its first id, how many rows it has, and their state."""
        return self.form(_table(first, rows, state))


def _parquet(table):
    plain = {"compression": "none", "use_dictionary": False}
    return parquet_file(table, group_rows=max(1, len(table) // 3), **plain)


INPUTS = {
    "csv": Input(Csv, ".csv", csv_file),
    "csv cut inside": Input(Csv, ".csv", csv_file, {"chunk_bytes": 300}),
    "csv.gz": Input(Csv, ".csv.gz", _gzip),
    "parquet cut inside": Input(Parquet, ".parquet", _parquet, unit_bytes=600),
    "delta cut inside": Input(Delta, ".parquet", _parquet, unit_bytes=600, finish=delta_log),
    "npy cut inside": Input(Numpy, ".npy", _npy, {"example": "row"}, unit_bytes=500),
    "tfrecord": Input(Tfrecord, ".tfrecord", tfrecord_file, unit_bytes=600),
    "pictures": Input(Images, ".png", _png),
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
    read = of.source.read

    def reach(reached):
        if reached == moment and left:
            left.pop()()

    def reading(self, unit, schema, **options):
        reach("before a unit")
        for batch in read(self, unit, schema, **{**options, "batch_rows": BATCH_ROWS}):
            yield batch
            reach("inside a unit")
        reach("after a unit")

    listing, publication = run.list_input, last_step._publication_id

    def listed(*arguments):
        found = listing(*arguments)
        reach("listed")
        return found

    def publishing(*arguments):
        reach("before publishing")
        return publication(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of.source, "read", reading)
        patch.setattr(run, "list_input", listed)
        patch.setattr(last_step, "_publication_id", publishing)
        yield
        assert not left, "the moment never came"


def states_of(out):
    """Return id and state of every row of a dataset, in order."""
    found = []
    for row in bt.load(out).rows():
        if "image" in row:
            pixels = Image.open(io.BytesIO(row["image"])).tobytes()
            found.append((int(row["path"][:1]), pixels[0]))
            continue
        pair = row["data"] if "data" in row else (row["id"], row["state"])
        found.append((int(pair[0]), int(pair[1])))
    return sorted(found)


def rows_made(kind, rows, state):
    """Return what `states_of` gives of an input that never changed."""
    rows, offset = (1, 0) if kind == "pictures" else (rows, 100_000)
    return [(offset + row, state) for row in range(FILES * rows)]


def judge(directory, kind, how, moment, rows):
    """Change an input while it is written; return what became of the job.

    Raises:
        AssertionError: The dataset is of no one state, or an error is not clear.
    """
    with small_units(kind):
        return _judged(directory, kind, how, moment, rows)


def _judged(directory, kind, how, moment, rows):
    of, inputs, out = INPUTS[kind], directory / "in", directory / "out"
    paths = write_files(inputs, kind, rows)
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
        assert states_of(out) == rows_made(kind, rows, OLD), "the dataset is of no one state"
    if how not in ("rewritten", "replaced by mv", "replaced by cp -p"):
        return "refused" if told else "old"
    if not told:
        # It is no more what the dataset was made from.
        with pytest.raises(BeamTFRecordError, match="the input was edited since the dataset in"):
            bt.write(inputs, out, **options)
        return "old"
    bt.write(inputs, out, **options)
    assert states_of(out) == rows_made(kind, rows, NEW), "what an attempt left was used again"
    return "refused"
