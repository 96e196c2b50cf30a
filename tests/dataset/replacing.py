"""Readers beside a writer: a dataset is replaced step by step while it is read.

The writer is the package's own `put_in_place` in a thread that stops before each of its steps. What
lets it go on is the reader: at every element, and whenever it opens a file or looks at the
manifest. So every order of their steps can come, by a seed. A reader must give all rows of the old
dataset, or all of the new one, or end with an error that says what happened.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import beam_tfrecord as bt
from beam_tfrecord.dataset.record_files import OpenedManifest
from beam_tfrecord.format.hashes import file_hash
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.rejects import SavedRejects
from beam_tfrecord.format.stage import StageFile, StageManifest
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, directory_target
from beam_tfrecord.publish.publication import Publication
from beam_tfrecord.publish.transaction import put_in_place
from beam_tfrecord.records import tfrecord
from beam_tfrecord.sources import typed_files
from tests.helpers.made_datasets import make_dataset

OLD_ROWS, OLD_SHARDS = 120, 4
# Rows and shards of what replaces it: the same sizes, other shards, other rows.
NEW = {"same": (120, 4), "shards": (120, 6), "less": (90, 3), "more": (180, 4)}

# A row is the number of its dataset: a value of one byte in either.
Rows = list[int]


@dataclasses.dataclass(frozen=True)
class Reader:
    """A way to read.

    Attributes:
        read: Yields the rows of a directory piece by piece.
        epochs: How often each row comes.
    """

    read: Callable[[Path], Iterator[Rows]]
    epochs: int = 1


def _rows(out):
    for row in bt.load(out).rows():
        yield [row["of"]]


def _batches(out):
    for batch in bt.load(out, columns=["of"]).batches(7):
        yield batch.column("of").to_pylist()


def _examples(out):
    for example in bt.load(out).examples():
        # Feature `of` comes last: its value is the last byte.
        yield [example[-1]]


def _at_once(name, out):
    yield [int(value) for value in getattr(bt.load(out, columns=["of"]), name)()["of"].tolist()]


def _arrow(out):
    yield bt.load(out).arrow()["of"].to_pylist()


def _torch(out):
    for batch in bt.load(out).torch(7):
        yield batch["of"].tolist()


def _parts(out):
    dataset = bt.load(out)
    for index in range(2):
        for row in dataset.of_shards(index, 2).rows():
            yield [row["of"]]


def _tf(out, **options):
    for batch in bt.load(out).tf(7, **options):
        yield batch["of"].numpy().tolist()


READERS = {
    "rows": Reader(_rows),
    "batches": Reader(_batches),
    "examples": Reader(_examples),
    "arrow": Reader(_arrow),
    "numpy": Reader(functools.partial(_at_once, "numpy")),
    "torch": Reader(_torch),
    "of_shards": Reader(_parts),
}
TF_READERS = {
    "tf": Reader(_tf),
    "tf twice": Reader(functools.partial(_tf, repeat=2), 2),
    "tf mixed": Reader(functools.partial(_tf, shuffle=20), 1),
}


class Datasets:
    """An old dataset, and new ones by what is other about them, each made once.

    Args:
        directory: Where they are, and where trials take place.
        kind: ``plain``, ``gzip`` or ``stage``.
    """

    def __init__(self, directory, kind):
        self.directory = directory
        self.kind = kind
        self.old = self._make("old", 1, OLD_ROWS, OLD_SHARDS)
        self.new = {name: self._make(name, 2, *size) for name, size in NEW.items()}

    def _make(self, name, value, rows, shards):
        table = pa.table({"number": np.arange(rows), "of": np.full(rows, value)})
        out = self.directory / name
        if self.kind == "stage":
            _make_stage(out, table, shards)
        else:
            compression = "GZIP" if self.kind == "gzip" else ""
            make_dataset(out, table, shards=shards, compression=compression)
        return out


def _make_stage(out, table, count):
    out.mkdir(parents=True)
    files, rows = [], table.num_rows // count
    for number in range(count):
        path = out / f"part-{number:05d}.parquet"
        pq.write_table(table.slice(number * rows, rows), path)
        files.append(StageFile(path.name, rows, path.stat().st_size, file_hash(str(path))))
    manifest = StageManifest("", table.schema, None, {"rows": 0}, tuple(files))
    (out / "manifest.json").write_text(manifest.dumps())


# How a dataset takes the place of another: published by a job; or copied by a program that knows
# nothing of manifests, which writes into the files that are there or renames new ones over them,
# shards first, and the manifest last or never.
WAYS = ("published", "written over", "renamed over", "written over, but for the manifest")


class Writer:
    """Puts a dataset in the place of another, a step at a time."""

    def __init__(self, new, out, way="published"):
        self._turns = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._way = way
        self._thread = threading.Thread(target=self._run, args=(new, out), daemon=True)
        self.error = None
        self.is_done = False
        self._thread.start()
        self._stands.acquire()

    def check(self):
        """Wait for the next turn; the writer calls this before each step, as it does a lease's."""
        self._stands.release()
        self._turns.acquire()

    def advance(self, steps):
        """Let it take some steps."""
        with self._lock:
            while steps and not self.is_done:
                self._turns.release()
                self._stands.acquire()
                steps -= 1

    def finish(self):
        """Let it end."""
        self.advance(10_000)
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _publish(self, new, out):
        directory = out / ".tmp-0123456789abcdef"
        directory.mkdir()
        pieces = [(name, _piece(new / name, directory, number)) for number, name in _files(new)]
        text = (new / "manifest.json").read_text()
        sidecars = {p.name: p.read_bytes() for p in new.glob("schema.*")}
        job = Job(directory_target(out), str(directory))
        publication = Publication(job, pieces, text, sidecars, SavedRejects(0, "", ""), {})
        put_in_place(publication, self)  # type: ignore[arg-type]

    def _copy(self, new, out):
        names = [name for _, name in _files(new)]
        if "manifest" not in self._way:
            names.append("manifest.json")
        for name in names:
            self.check()
            target = out / name if "written" in self._way else out / ".copy"
            shutil.copyfile(new / name, target)
            os.replace(target, out / name)

    def _run(self, new, out):
        try:
            (self._publish if self._way == "published" else self._copy)(new, out)
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True
            self._stands.release()


def _files(made):
    if list(made.glob("*.parquet")):
        return list(enumerate(file.path for file in StageManifest.load(made).files))
    return list(enumerate(shard.path for shard in Manifest.load(made).shards))


def _piece(path, directory, number):
    copy = directory / f"shard-{number}"
    shutil.copy(path, copy)
    size, digest = path.stat().st_size, file_hash(str(path))
    return FinishedShard("data", (number,), str(copy), 1, size, digest, 0, size, digest)


def try_reader(datasets, new, reader, seed, way="published"):
    """Read a dataset that is replaced meanwhile; return ``old``, ``new`` or ``error``.

    Raises:
        AssertionError: Rows of both came, or not all of one, without an error that says so.
    """
    draw = random.Random(seed)
    out = datasets.directory / "out"
    for used in (out, out.with_name("map")):
        shutil.rmtree(used, ignore_errors=True)
    shutil.copytree(datasets.old, out)
    # Seldom or often, so that few or many of its steps fall between two of the reader's.
    chance = draw.choice([0.02, 0.1, 0.5, 1])

    def event():
        if draw.random() < chance:
            writer.advance(draw.choice([1, 1, 2, 3, 100]))

    seen = collections.Counter()
    error = None
    with _events(event):
        writer = Writer(datasets.new[new], out, way)
        # Some are opened in the middle of it, or after it. Files that are copied without a sign to
        # readers are a mixed dataset in the middle, as `verify` tells.
        writer.advance(draw.choice([0, 0, 0, 1, 4, 100] if way == "published" else [0, 0, 0, 100]))
        try:
            for rows in reader.read(out):
                seen.update(rows)
                event()
        except Exception as raised:
            error = raised
        writer.finish()
    return outcome(reader, seen, error, {1: OLD_ROWS, 2: NEW[new][0]})


def outcome(reader, seen, error, expected):
    """Return how a reader ended: ``old``, ``new`` or ``error``.

    Args:
        reader: The reader.
        seen: How many rows came of each dataset.
        error: What ended it.
        expected: Number of rows of each dataset; 1 is the old one.

    Raises:
        AssertionError: Rows of both came, or not all of one, without an error that says so.
    """
    if error is not None:
        words = ["replaced or removed after", "changed or removed after", "no dataset at"]
        words += ["changed or replaced after"]
        assert any(word in str(error) for word in words), error
        assert len(seen) < 2, f"{seen} before {error}"
        return "error"
    assert len(seen) == 1, f"rows of both: {seen}"
    ((value, count),) = seen.items()
    assert count == expected[value] * reader.epochs, seen
    return "old" if value == 1 else "new"


@contextlib.contextmanager
def _events(event):
    """Call a function before and after files are opened and the manifest is looked at."""

    def around(function):
        @functools.wraps(function)
        def called(*arguments, **options):
            event()
            result = function(*arguments, **options)
            event()
            return result

        return called

    with contextlib.ExitStack() as stack:
        # What outlasts a power cut is not the question here, and takes most of the time.
        for name in ("fsync", "fdatasync"):
            stack.enter_context(mock.patch.object(os, name))
        spots = [(tfrecord, "open_read"), (typed_files, "open_input")]
        spots.append((OpenedManifest, "check"))
        for owner, name in spots:
            stack.enter_context(mock.patch.object(owner, name, around(getattr(owner, name))))
        yield
