"""The jobs that must come out the same on every runner, and what coming out the same means."""

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Mapping

import pyarrow.parquet as pq
import pytest
from apache_beam.version import __version__ as beam_version

from beam_tfrecord.jobs import compose
from beam_tfrecord.runners.start import PRISM_PACKAGE, find_prism
from beam_tfrecord.runners.wheels import cache_directory
from beam_tfrecord.transforms.read_batches import ReadBatches
from tests.helpers.cli_stand_ins import run
from tests.helpers.datasets import sample_table, write_parquet
from tests.preprocess.made_rides import write_rides
from tests.sources.made_images import jpeg, write_tree

# Small tasks, so that there is work for several workers.
TASK_BYTES = 8_000

MAP = '''
def doubled(row):
    """Every thirteenth row cannot be."""
    if row["id"] % 13 == 12:
        raise ValueError(f"unlucky {row['id']}")
    return {**row, "twice": row["x"] * 2}


def lucky(row):
    return {**row, "id": row["id"] * 7}
'''

RIDES = ("--split-column", "fold", "--step", "zscore=fare,seconds", "--step", "one_hot=code")


@dataclasses.dataclass(frozen=True)
class Job:
    """A command, and what is known of its result whatever runs it.

    Attributes:
        words: After ``write``; ``OUT`` stands for the output.
        examples: Examples in each split; None: nothing is published.
        exit_code: Of the command.
        rejects: Rows that are left out.
    """

    words: tuple[str, ...]
    examples: Mapping[str, int] | None
    exit_code: int = 0
    rejects: int = 0


SPLIT = ("--split", "train=0.8,test=0.2")
JOBS = {
    "csv": Job(
        ("csv/*.csv", "OUT", *SPLIT, "--shards", "5", "--seed", "3"), {"train": 730, "test": 170}
    ),
    "images": Job(("photos", "OUT", "--split", "a=0.5,b=0.5"), {"a": 9, "b": 15}),
    "source order": Job(("parquet", "OUT", "--no-shuffle", "--shard-size", "4kB"), {"data": 900}),
    "source order, splits": Job(
        ("parquet", "OUT", "--no-shuffle", *SPLIT, "--shards", "4"), {"train": 712, "test": 188}
    ),
    "database": Job(
        ("sqlite:///shop.db", "OUT", "--from", "sql", "--table", "trips", "--key", "id"),
        {"data": 500},
    ),
    "map": Job(
        ("parquet", "OUT", "--map", "rows.py:lucky", "--compression", "gzip"), {"data": 900}
    ),
    "rejects": Job(
        ("parquet", "OUT", "--map", "rows.py:doubled", "--max-rejects", "8%", *SPLIT),
        {"train": 663, "test": 168},
        rejects=69,
    ),
    "too many rejects": Job(
        ("parquet", "OUT", "--map", "rows.py:doubled", "--max-rejects", "9"), None, exit_code=1
    ),
    "filter": Job(
        ("parquet", "OUT", "--filter", "id >= 300 and x > 0", *SPLIT), {"train": 233, "test": 57}
    ),
    "sample": Job(("csv/*.csv", "OUT", "--sample", "25%", "--seed", "3"), {"data": 206}),
    "groups": Job(
        ("parquet", "OUT", "--group", "name", "--split", "a=0.5,b=0.5"), {"a": 516, "b": 384}
    ),
    "no such column": Job(("parquet", "OUT", "--key", "nothing"), None, exit_code=2),
}

# These need TensorFlow in every worker.
TRANSFORM_JOBS = {
    "preprocessing": Job(("rides.parquet", "OUT", *RIDES), {"train": 500, "test": 100}),
    "preprocessing, given": Job(
        ("rides.parquet", "OUT", "--transform-fn", "fitted"), {"data": 600}
    ),
}


@dataclasses.dataclass(frozen=True)
class Result:
    """All of a result that must not differ.

    Attributes:
        exit_code: Of the command.
        lines: Errors and warnings, without the name of the output.
        files: SHA-256 of every file of the output by its path but those of ``job.json`` and of the
            model of a fitted function.
    """

    exit_code: int
    lines: tuple[str, ...]
    files: Mapping[str, str]


def make_inputs(directory):
    """Make the inputs of all jobs but those of `TRANSFORM_JOBS`."""
    table = sample_table(900)
    write_parquet(directory / "parquet", table, files=3, group_rows=60)
    (directory / "csv").mkdir()
    for number in range(4):
        rows = table.slice(number * 225, 225).to_pylist()
        lines = [f"{row['id']},{row['x']!r},{_quoted(row['name'])}\n" for row in rows]
        path = directory / "csv" / f"{number}.csv"
        path.write_text("id,x,name\n" + "".join(lines), encoding="utf-8")
    for number in range(24):
        name = f"{'ab'[number % 2]}__{number}"
        write_tree(directory / "photos", **{name: jpeg(number, width=20 + number)})
    connection = sqlite3.connect(directory / "shop.db")
    connection.execute("CREATE TABLE trips (id INTEGER PRIMARY KEY, fare REAL, note TEXT)")
    connection.executemany(
        "INSERT INTO trips VALUES (?, ?, ?)",
        [(n, n / 3, None if n % 7 == 0 else f"note {n}") for n in range(500)],
    )
    connection.commit()
    connection.close()
    (directory / "rows.py").write_text(MAP)
    return directory


def make_transform_inputs(directory):
    """Make the inputs of `TRANSFORM_JOBS`."""
    write_rides(directory / "rides.parquet")
    assert pq.read_metadata(directory / "rides.parquet").num_rows == 600
    assert run("write", directory / "rides.parquet", directory / "fitted", *RIDES).exit_code == 0
    return directory


def _quoted(text):
    return "" if text is None else '"' + text.replace('"', '""') + '"'


def small_tasks(monkeypatch):
    """Cut the input of every job into many tasks."""
    reader = functools.partial(ReadBatches, task_bytes=TASK_BYTES)
    monkeypatch.setattr(compose, "ReadBatches", reader)


def result_of(job, output, runner, *, beam=()):
    """Run a job from the directory of its inputs.

    Args:
        job: What to run.
        output: A directory that is not there.
        runner: For ``--runner``.
        beam: Beam's options.
    """
    words = [str(output) if word == "OUT" else word for word in job.words]
    ran = run("write", *words, "--runner", runner, "--", *beam)
    lines = (line for line in ran.stderr.splitlines() if line.startswith(("error:", "warning:")))
    return Result(
        ran.exit_code, tuple(line.replace(str(output), "OUT") for line in lines), _files(output)
    )


def _files(output):
    return {
        path.relative_to(output).as_posix(): hashlib.sha256(_lasting(path)).hexdigest()
        for path in sorted(output.rglob("*"))
        if path.is_file()
        and path.name not in ("job.json", "saved_model.pb")
        and not path.relative_to(output).as_posix().startswith(".")
    }


def _lasting(path):
    """Return what a file holds; a manifest without the hash of a fitted model, and so its own."""
    data = path.read_bytes()
    if path.name == "manifest.json" and b"saved_model.pb" in data:
        manifest = json.loads(data)
        del manifest["xxh64"], manifest["sidecars"]["transform_fn/saved_model.pb"]
        data = json.dumps(manifest).encode()
    return data


def prism():
    """Return the path of Prism: the user's, or where nothing may be skipped one that is built.

    It is kept outside of the tree, beside what other tests fetch.
    """
    if found := find_prism():
        return found
    kept = cache_directory() / f"prism-{beam_version}" / "prism"
    if kept.exists():
        return str(kept)
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None or os.environ.get("BEAM_TFRECORD_REQUIRE_ALL", "") in ("", "0"):
        pytest.skip(f"no prism here: go install {PRISM_PACKAGE}@v{beam_version}")
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-go-") as scratch:
        places = {"GOPATH": f"{scratch}/path", "GOCACHE": f"{scratch}/cache", "GOBIN": scratch}
        environment = {**os.environ, **places, "GOFLAGS": "-modcacherw"}
        command = [go, "install", f"{PRISM_PACKAGE}@v{beam_version}"]
        subprocess.run(command, env=environment, check=True, timeout=900)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(f"{scratch}/prism", kept)
    return str(kept)
