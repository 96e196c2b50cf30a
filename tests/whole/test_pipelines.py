"""The recipes: run as people run them, and their results read by TensorFlow alone."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.errors import UsageError
from tests.helpers import warm
from tests.helpers.datasets import read_examples, shard_hashes
from tests.helpers.records import read_records
from tests.helpers.repository import load_recipe
from tests.helpers.tf_example import Example

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "pipelines"


@pytest.fixture
def recipe(monkeypatch):
    """Return a function that imports a recipe."""
    return functools.partial(load_recipe, monkeypatch)


def script(name, *words, cwd):
    return subprocess.run(
        [*warm.program(), str(RECIPES / f"{name}.py"), *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def values(example: Any) -> dict[str, list[Any]]:
    """Return the values of an example by feature, of whichever of the three lists they are in."""
    return {
        name: list(getattr(feature, feature.WhichOneof("kind")).value)
        for name, feature in example.features.feature.items()
    }


def write_trips(directory):
    """Write 200 trips, one without a fare and every tenth without an hour, as two CSV files."""
    lines = [f"{i / 2},{i},{i % 10}\n" for i in range(200)]
    lines[7] = ",7,7\n"
    for number, part in ((1, lines[:120]), (2, lines[120:])):
        text = "fare,distance,hours\n" + "".join(part)
        (directory / f"trips-{number:02d}.csv").write_text(text)


CSV_WORDS = ["--input", "trips-*.csv", "--splits", "train=0.8,test=0.2", "--compression", "gzip"]


@pytest.mark.slow
def test_csv_as_a_script_with_processes_and_here_with_threads(recipe, tmp_path, monkeypatch):
    write_trips(tmp_path)
    beam_options = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    words = [*CSV_WORDS, "--output", "script/", *beam_options]
    ran = script("csv_to_tfrecord", *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    monkeypatch.chdir(tmp_path)
    recipe("csv_to_tfrecord").main([*CSV_WORDS, "--output", "threads/"])
    assert shard_hashes("script") == shard_hashes("threads")
    assert sorted(shard_hashes("threads")) == [
        *("manifest.json", "schema.json", "schema.pbtxt"),
        *("test-00000-of-00001.tfrecord.gz", "train-00000-of-00001.tfrecord.gz"),
    ]
    found = [values(example) for split in ("train", "test") for example in _of("threads", split)]
    assert len(found) == 199
    by_distance = {row["distance"][0]: row for row in found}
    assert by_distance[3.0] == {"fare": [1.5], "distance": [3.0], "speed": [1.0]}
    assert by_distance[52.0] == {"fare": [26.0], "distance": [52.0], "speed": [26.0]}
    assert by_distance[60.0] == {"fare": [30.0], "distance": [60.0]}
    assert sorted(by_distance) == [float(i) for i in range(200) if i != 7]


def _of(directory, split):
    examples = list(read_examples(directory, split))
    assert examples, split
    return examples


@pytest.mark.xdist_group("tensorflow")
def test_parquet_with_a_dofn_that_builds_examples(recipe, tmp_path):
    (tmp_path / "trips").mkdir()
    fares = [1.5, 2.5, 3.5, 4.5]
    notes = ["a", None, "grüß\n", ""]
    for number, rows in ((0, slice(0, 1)), (1, slice(1, 4))):
        table = pa.table(
            {
                "fare": pa.array(fares[rows], pa.float64()),
                "distance": pa.array([1.0, None, 2.0, 3.0][rows], pa.float64()),
                "note": pa.array(notes[rows], pa.string()),
            }
        )
        pq.write_table(table, tmp_path / "trips" / f"{number}.parquet")
    inputs = [str(tmp_path / "trips" / f"{number}.parquet") for number in (0, 1)]
    words = ["--input", *inputs, "--output", str(tmp_path / "out" / "part"), "--num_shards", "2"]
    recipe("parquet_to_tfrecord").main([*words, "--direct_num_workers=1"])
    files = [tmp_path / "out" / f"part-0000{i}-of-00002" for i in range(2)]
    found = [values(Example.FromString(record)) for file in files for record in read_records(file)]
    assert sorted(found, key=lambda row: row["fare"]) == [
        {"fare": [1.5], "distance": [1.0], "note": [b"a"]},
        {"fare": [2.5]},
        {"fare": [3.5], "distance": [2.0], "note": ["grüß\n".encode()]},
        {"fare": [4.5], "distance": [3.0], "note": [b""]},
    ]
    with pytest.raises(UsageError, match="already holds another dataset"):
        recipe("parquet_to_tfrecord").main(words)


@pytest.mark.slow
def test_numpy_arrays_as_they_are_and_scaled(recipe, tmp_path):
    main = recipe("numpy_to_tfrecord").main
    images = np.arange(40 * 4, dtype=np.uint8).reshape(40, 2, 2)
    np.savez(tmp_path / "a.npz", image=images, label=np.arange(40))
    words = ["--input", str(tmp_path / "a.npz"), "--direct_num_workers=1"]
    main([*words, "--output", f"{tmp_path}/plain/"])
    main([*words, "--output", f"{tmp_path}/scaled/", "--scale", "--splits", "all=1"])
    found = [values(example) for example in read_examples(tmp_path / "plain")]
    assert {row["label"][0]: row["image"][0] for row in found} == {
        label: image.tobytes() for label, image in enumerate(images)
    }
    assert sorted(shard_hashes(tmp_path / "plain"))[3:] == [
        *("test-00000-of-00001.tfrecord", "train-00000-of-00001.tfrecord")
    ]
    scaled = {
        row["label"][0]: row["image"][0] for row in map(values, read_examples(tmp_path / "scaled"))
    }
    assert (
        np.frombuffer(scaled[39], "<f4").tolist() == (images[39] / np.float32(255)).ravel().tolist()
    )


@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "tft_to_tfrecord"))
        for name in sorted(path.stem for path in RECIPES.glob("*.py"))
    ],
)
def test_help_shows_the_usage_of_the_first_lines(recipe, name, capsys):
    with pytest.raises(SystemExit) as stop:
        recipe(name).main(["--help"])
    assert stop.value.code == 0
    assert re.search(rf"\n    python pipelines/{name}\.py --(input|url) ", capsys.readouterr().out)


@pytest.mark.slow
def test_a_database_recipe_writes_tables_and_queries(recipe, tmp_path):
    path = tmp_path / "shop.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE trips (id INTEGER PRIMARY KEY, fare REAL, zone TEXT)")
        rows = [(n, n / 4, None if n % 5 == 0 else f"zone {n % 3}") for n in range(200)]
        connection.executemany("INSERT INTO trips VALUES (?, ?, ?)", rows)
    main = recipe("jdbc_to_tfrecord").main
    asked = ["--url", f"sqlite:///{path}", "--splits", "train=0.9,test=0.1"]
    main([*asked, "--table", "trips", "--partitions", "3", "--output", f"{tmp_path}/whole/"])
    found = [values(example) for example in read_examples(tmp_path / "whole")]
    assert sorted(found, key=lambda one: one["id"]) == [
        {"id": [n], "fare": [fare]} | ({} if zone is None else {"zone": [zone.encode()]})
        for n, fare, zone in rows
    ]
    query = "SELECT zone, COUNT(*) AS trips FROM trips GROUP BY zone"
    out = tmp_path / "counts"
    main([*asked, "--query", query, "--partition_column", "zone", "--output", f"{out}/"])
    counts = [values(example)["trips"] for example in read_examples(out)]
    assert sorted(counts) == [[40], [53], [53], [54]]
