"""The README: its Python runs, and the commands, flags and names in it are the real ones."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
from tests.cli_stand_ins import run
from tests.sources.made_images import jpeg, write_tree

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = README.splitlines()
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*|(?<![\w-])-[a-z]\b")
TRIPS = 300


@dataclasses.dataclass(frozen=True)
class CodeBlock:
    """A fenced block.

    Attributes:
        text: What is between the fences.
        line: Number of its first line in the README, from 1.
    """

    text: str
    line: int

    def compiled(self) -> Any:
        """Compile it so that a traceback shows the line of the README."""
        return compile("\n" * (self.line - 1) + self.text, str(ROOT / "README.md"), "exec")


def code_blocks(language: str) -> list[CodeBlock]:
    """Return the fenced blocks of one language, in order."""
    blocks, start = [], None
    for number, line in enumerate(LINES, 1):
        if line == f"```{language}":
            start = number + 1
        elif line == "```" and start is not None:
            blocks.append(CodeBlock("\n".join(LINES[start - 1 : number - 1]), start))
            start = None
    return blocks


def write_trips() -> None:
    """Write two CSV files and two Parquet files of the trips that the README speaks of."""
    Path("trips").mkdir()
    for number in (1, 2):
        rows = range(number * 1000, number * 1000 + TRIPS // 2)
        columns = {
            "fare": [row / 4 for row in rows],
            "distance": [row / 2 for row in rows],
            "hours": [row % 3 + 1 for row in rows],
        }
        pq.write_table(pa.table(columns), f"trips/{number}.parquet")
        lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
        Path(f"trips-{number:02d}.csv").write_text("\n".join(["fare,distance,hours", *lines]))


def write_flights() -> None:
    """Run the first command of the README on a few flights."""
    lines = [f"{i},{'NA' if i % 9 == 0 else i / 2}\n" for i in range(1000)]
    Path("flights.csv").write_text("flight,delay\n" + "".join(lines))
    command = code_blocks("console")[0].text.splitlines()[0].removeprefix("$ beam-tfrecord ")
    ran = run(*shlex.split(command))
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.startswith("wrote 1,000 rows in 2 splits, 2 shards (")


def flights_are_loaded(names: dict[str, Any]) -> None:
    train = names["train"]
    assert int(train.cardinality()) == -(-bt.load("flights", split="train").splits["train"] // 256)
    assert sorted(next(iter(train))) == ["delay", "flight"]


def both_splits_are_written(names: dict[str, Any]) -> None:
    splits = bt.load("out").splits
    assert list(splits) == ["train", "test"]
    assert sum(splits.values()) == TRIPS
    assert splits["train"] > splits["test"] > 0
    assert bt.load("out").schema.names == ("fare", "distance", "hours")


def eight_files_hold_the_fares(names: dict[str, Any]) -> None:
    files = sorted(str(path) for path in Path("out").glob("part-*-of-*"))
    assert files == [f"out/part-0000{i}-of-00008" for i in range(8)]
    tf = names["tf"]
    found = [
        tf.train.Example.FromString(record.numpy()).features.feature["fare"].float_list.value[0]
        for record in tf.data.TFRecordDataset(files)
    ]
    assert sorted(found) == [row / 4 for row in (*range(1000, 1150), *range(2000, 2150))]


def speed_is_written(names: dict[str, Any]) -> None:
    rows = list(bt.load("out").rows())
    assert len(rows) == TRIPS
    (row,) = (row for row in rows if row["fare"] == 251.0)
    assert row == {"fare": 251.0, "distance": 502.0, "hours": 3, "speed": pytest.approx(502 / 3)}


def features_are_scaled_and_encoded(names: dict[str, Any]) -> None:
    train = bt.load("clean", split="train").numpy()
    assert train["distance"].mean() == pytest.approx(0, abs=1e-5)
    assert train["distance"].std() == pytest.approx(1, abs=1e-5)
    features, fares = next(iter(names["train"]))
    assert features["hours"].shape == (len(fares), 3)
    assert set(features["hours"].numpy().sum(axis=1)) == {1.0}


def every_way_of_reading_gives_the_rows(names: dict[str, Any]) -> None:
    ds = names["ds"]
    assert len(ds) == ds.splits["train"] > 200
    assert len(list(ds.rows())) == ds.arrow().num_rows == len(ds.numpy()["fare"]) == len(ds)
    assert sum(batch.num_rows for batch in ds.batches()) == len(list(ds.examples())) == len(ds)
    features, fares = next(iter(ds.tf(batch_size=256, label="fare", shuffle=True)))
    assert sorted(features) == ["distance", "hours"]
    assert fares.shape == (256,)


def one_epoch_of_features_and_labels(names: dict[str, Any]) -> None:
    batches = list(names["dataset"])
    assert sum(len(fares) for _, fares in batches) == bt.load("out").splits["train"]
    assert sorted(batches[0][0]) == ["distance", "hours"]


def arrays_come_back(names: dict[str, Any]) -> None:
    rows = bt.load("digits", split="train").splits["train"]
    assert 30 < rows < 60
    assert names["images"].shape == (rows, 28, 28)
    assert names["images"].dtype == "uint8"
    features, labels = next(iter(names["batches"]))
    assert features["image"].shape == (32, 28, 28)
    assert set(labels.numpy()) <= set(range(10))


def trips_above_one_are_written(names: dict[str, Any]) -> None:
    rows = sorted(bt.load("shop").rows(), key=lambda row: row["id"])
    assert rows == [{"id": 4, "fare": 1.5}, {"id": 5, "fare": 2.0}, {"id": 6, "fare": 2.5}]


def write_photos() -> None:
    """Run the first command of the README on a few pictures, one of them broken."""
    for number in range(80):
        name = f"{'ab'[number % 2]}__{number}"
        write_tree(Path("photos"), **{name: jpeg(number, width=20 + number)})
    Path("photos/a/broken.jpg").write_bytes(jpeg()[:100])
    command = next(line for _, line in command_lines() if " photos/ " in line)
    ran = run(*shlex.split(command.removeprefix("$ beam-tfrecord ")))
    assert ran.exit_code == 0, ran.output


def pictures_have_one_size(names: dict[str, Any]) -> None:
    assert names["names"] == ("a", "b")
    images, labels = next(iter(names["train"]))
    assert images.shape == (32, 180, 180, 3)
    assert set(labels.numpy()) == {0, 1}


def write_out(**options: Any) -> None:
    bt.write("trips-*.csv", "out/", splits={"train": 0.9, "test": 0.1}, **options)


def write_shop() -> None:
    """Write a SQLite file of six trips."""
    with contextlib.closing(sqlite3.connect("shop.db")) as connection, connection:
        connection.execute("CREATE TABLE trips (id INTEGER PRIMARY KEY, fare REAL)")
        connection.executemany("INSERT INTO trips (fare) VALUES (?)", [(n / 2,) for n in range(6)])


def nothing() -> None:
    """Prepare nothing."""


# What must be there before each block, besides the trips, and what holds after it.
BLOCKS: list[tuple[str, Callable[[], None], Callable[[dict[str, Any]], None]]] = [
    ('bt.load("flights/"', write_flights, flights_are_loaded),
    ("bt.write(", nothing, both_splits_are_written),
    ("class RowToExample", nothing, eight_files_hold_the_fares),
    ("bt.MapRows(add_speed)", nothing, speed_is_written),
    ('"op": "zscore"', nothing, features_are_scaled_and_encoded),
    ("ds = bt.load(", write_out, every_way_of_reading_gives_the_rows),
    (
        "make_batched_features_dataset",
        lambda: write_out(compression="gzip"),
        one_epoch_of_features_and_labels,
    ),
    ('photos = bt.load("dataset/"', write_photos, pictures_have_one_size),
    ("bt.ReadFromNumpy(arrays)", nothing, arrays_come_back),
    ("bt.ReadFromSql(", write_shop, trips_above_one_are_written),
]


def test_every_python_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorflow")
    blocks = code_blocks("python")
    assert len(blocks) == len(BLOCKS) == README.count("```python")
    # One namespace, as one reads from the top: a later block may use an earlier import.
    names: dict[str, Any] = {"__name__": "readme"}
    for number, (block, (mark, prepare, check)) in enumerate(zip(blocks, BLOCKS, strict=True)):
        assert mark in block.text
        directory = tmp_path / str(number)
        directory.mkdir()
        monkeypatch.chdir(directory)
        write_trips()
        prepare()
        exec(block.compiled(), names)
        check(names)


def command_lines() -> Iterator[tuple[str, str]]:
    """Yield command and line, comment included, of every line in a console block about one."""
    for block in code_blocks("console"):
        command = None
        for line in block.text.splitlines():
            if named := re.match(r"\$ beam-tfrecord (\S+)", line):
                command = named[1]
            elif not line.startswith(" "):
                command = None
            if command is not None:
                yield command, line


def help_of(command: str) -> str:
    ran = run(command, "--help-all")
    assert ran.exit_code == 0, f"there is no command {command}"
    return ran.stdout


def test_every_command_is_told_and_every_told_command_exists() -> None:
    told = set(re.findall(r"(?:\$ |`)beam-tfrecord ([a-z]+)", README))
    assert told == set(cli.commands)


def test_flags_in_command_blocks_are_those_of_their_command() -> None:
    flags = {(command, flag) for command, line in command_lines() for flag in FLAG.findall(line)}
    assert {("write", "--split"), ("show", "--code"), ("head", "-n")} <= flags
    helps = {command: help_of(command) for command, _ in flags}
    unknown = {
        (command, flag)
        for command, flag in flags
        if not re.search(rf"(?<![\w-]){flag}(?![\w-])", helps[command])
    }
    assert unknown == set()


def test_flags_in_the_text_exist() -> None:
    text = " ".join(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", README))
    told = set(FLAG.findall(text))
    assert {"--no-shuffle", "--null", "--encoding", "--runner", "--schema"} <= told
    helps = " ".join(help_of(command) for command in cli.commands)
    assert {flag for flag in told if not re.search(rf"{flag}(?![\w-])", helps)} == set()


def option_examples() -> list[list[str]]:
    """Return the words of every option as the README writes it, one list an alternative.

    ``--max-rejects 10 | 1% | any`` are three: an alternative without a flag has the one before.
    """
    examples: list[list[str]] = []
    for command, line in command_lines():
        code = line.partition("#")[0].strip()
        if command != "write" or not code.startswith("--"):
            continue
        flag = ""
        for alternative in re.split(r" \| |\s{2,}", code):
            words = shlex.split(alternative)
            flag, words = (words[0], words) if words[0].startswith("--") else (flag, [flag, *words])
            examples.append(words)
    return examples


@pytest.mark.parametrize("words", option_examples(), ids=" ".join)
def test_options_are_taken_as_written(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("a,b,USER,ID\n1,2,u,3\n4,5,v,6\n")
    Path("my.py").write_text("def function(row):\n    return row\n")
    Path("schema.json").write_text(run("schema", "in.csv").stdout)
    splits = [] if words[0] == "--split" else ["--split", "train=0.5,test=0.5"]
    planned = run("plan", "in.csv", "out/", *splits, *words, "--json")
    assert planned.exit_code == 0, planned.stderr


def test_the_table_of_transforms_is_whole() -> None:
    rows = [line for line in LINES if line.startswith("| `")]
    first_cells = [row.split("|")[1] for row in rows if re.match(r"\| `[A-Z]", row)]
    told = {name for cell in first_cells for name in re.findall(r"`(\w+)", cell)}
    public = {name: getattr(bt, name) for name in bt.__all__}
    transforms = {
        name
        for name, value in public.items()
        if inspect.isclass(value) and issubclass(value, beam.PTransform | beam.DoFn)
    }
    assert told == transforms


def test_names_and_files_of_the_package_exist() -> None:
    names = set(re.findall(r"\bbt\.([A-Za-z_]+)", README))
    assert {"write", "load", "pipeline"} <= names
    assert names - set(bt.__all__) == set()
    modules = re.findall(r"`((?:\w+/)?\w+\.py|\w+/)`", "".join(LINES[-4:]))
    assert {"transforms/write.py", "dataset/"} <= set(modules)
    scripts = re.findall(r"\bscripts/\w+(?:/run)?", README)
    paths = [*(f"beam_tfrecord/{module}" for module in modules), *scripts]
    assert [path for path in paths if not (ROOT / path).exists()] == []
