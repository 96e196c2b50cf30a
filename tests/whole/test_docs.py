"""README.md, docs/ and the design pages: snippets run, what they name and link to exists.

A page runs from top to bottom in a folder that contains only `penguins.csv`. A ``console`` block
has commands of a shell, each with the output that the page shows for it. All ``python`` blocks
run in one namespace; a ``text`` block after one shows its output. A block that begins with a
comment of a file's name is saved under that name instead. A ``sh`` block needs something that a
test does not have, such as a cluster: its commands are only parsed.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import fnmatch
import inspect
import io
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import types
from pathlib import Path

import apache_beam as beam
import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord import errors
from beam_tfrecord.cli.main import cli
from beam_tfrecord.features.arrow_types import type_from_json
from tests.helpers import formats, warm
from tests.helpers.pages import blocks_of, console
from tests.helpers.repository import ROOT, tracked_files

DOCS = ROOT / "docs"
DESIGNS = sorted(ROOT.glob("beam_tfrecord/*/DESIGN.md"))
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *DESIGNS]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z_-]*|(?<![\w-])-[a-z]\b")

# Pages that always run; all others are slow.
FAST = {"types.md", "stop-and-resume.md"}
# A page that runs elsewhere: cells of a session in tests/jobs/test_notebooks.py.
NOT_RUN = {"notebooks.md"}
# Flags of other programs that the text names.
FOREIGN_FLAGS = {"--all", "--artifacts-dir", "--force-reinstall", "--no-deps", "-c", "-e", "-m"}


def commands(*languages):
    """Yield the words of every command `beam-tfrecord` in blocks of the languages."""
    for page in PAGES:
        for block in blocks_of(page):
            if block.language not in languages:
                continue
            text = "".join(command for command, _ in console(block))
            for line in (text or block.text).replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
                    del words[0]
                if words[:1] == ["beam-tfrecord"]:
                    shell = (i for i, word in enumerate(words) if re.match(r"[|>&]|\d>", word))
                    if found := words[1 : next(shell, None)]:
                        yield found


def assert_output(seen, shown, where):
    """Compare output with the page: ``...`` matches anything, and all seconds count as equal."""
    seen, shown = (re.sub(r"\d+\.\d+ s\b", "1.0 s", text) for text in (seen, shown))
    shown = re.sub(r"\s*\.\.\.\s*", "...", shown)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.REPORT_NDIFF
    if not (checker := doctest.OutputChecker()).check_output(shown, seen, flags):
        example = doctest.Example("", shown)
        pytest.fail(f"{where}\n{checker.output_difference(example, seen, flags)}", pytrace=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the penguins, and the programs `beam-tfrecord` and `python` of this tree."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("python", ""), ("beam-tfrecord", "-P -m beam_tfrecord")):
        line = f'exec {shlex.join(warm.program())} {words} "$@"'
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # Threads of PyTorch would wait for each other.
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(DOCS / "penguins.csv", folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return folder


def run_console(block):
    """Run the commands of a block: with the output shown, or with success if none is shown."""
    for command, shown in console(block):
        ran = subprocess.run(
            ["sh", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        where = f"{block.page.name}:{block.line}: $ {command}"
        if shown:
            assert_output(ran.stdout, shown, where)
        else:
            assert ran.returncode == 0, f"{where}{ran.stdout}"


def run_python(block, names, shown):
    """Run a block, and compare what it prints."""
    code = block.compiled()
    if "import torch" in block.text:
        # In a process that has imported TensorFlow, PyTorch's optimizers abort.
        ran = subprocess.run(
            [sys.executable, "-c", block.text], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, f"{block.page.name}:{block.line}{ran.stderr}"
        assert_output(ran.stdout, shown, f"{block.page.name}:{block.line}")
        return
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    assert_output(printed.getvalue(), shown, f"{block.page.name}:{block.line}")


def rows_by_id(path):
    return sorted(bt.load(path).rows(), key=lambda row: row["id"])


def check_readme(names):
    assert len(names["train"]) == 278
    assert len(list(Path("out").glob("part-*-of-00004"))) == 4


def check_csv(names):
    assert bt.diff("tabs", "others").same_data
    assert bt.load("text").schema.names == ("species", "year")
    assert {len(bt.load(name)) for name in ("tabs", "others", "named", "again", "piped")} == {344}
    assert bt.load("joined").arrow()["sex"].null_count > 100


def check_pipelines(names):
    rows = list(bt.load("out").rows())
    assert len(rows) == 342
    assert all(r["ratio"] == pytest.approx(r["bill_length_mm"] / r["bill_depth_mm"]) for r in rows)
    files = sorted(str(path) for path in Path("examples").glob("part-*-of-*"))
    assert files == [f"examples/part-0000{i}-of-00008" for i in range(8)]
    tf = names["tf"]
    examples = map(tf.train.Example.FromString, tf.data.TFRecordDataset(files).as_numpy_iterator())
    years = [example.features.feature["numbers"].int64_list.value[0] for example in examples]
    assert sorted(set(years)) == [2007, 2008, 2009]
    assert len(years) == 344
    assert rows_by_id("rows") == [{"id": 1, "fare": 2.5}, {"id": 2, "fare": None}]


def check_preprocessing(names):
    train = bt.load("steps", split="train").numpy()
    assert train["bill_length_mm"].mean() == pytest.approx(0, abs=1e-5)
    assert train["bill_length_mm"].std() == pytest.approx(1, abs=1e-5)
    features, _ = next(iter(names["train"]))
    assert features.shape == (32, 4)
    assert names["train"].feature_names[0] == "island=Biscoe"
    assert set(features[:, :3].numpy().sum(axis=1)) == {1.0}
    assert len(bt.load("ratios")) == 342


def check_splits(names):
    rows = list(bt.load("ordered").rows())
    assert [row["bill_length_mm"] for row in rows[:3]] == pytest.approx([39.1, 39.5, 40.3])
    assert len(list(Path("many").glob("*.tfrecord.gz"))) == 6
    assert set(bt.load("by-year").splits) == {"2007", "2008", "2009"}
    of_group = {}
    for split in ("train", "test"):
        for row in bt.load("by-island", split=split).rows():
            of_group.setdefault((row["species"], row["year"]), set()).add(split)
    assert {len(splits) for splits in of_group.values()} == {1}
    test = [row["species"] for row in bt.load("stratified", split="test").rows()]
    assert {one: test.count(one) for one in test} == {"Adelie": 30, "Chinstrap": 14, "Gentoo": 25}
    assert len(bt.load("counted", split="train")) == 200
    assert {row["year"] for row in bt.load("dated", split="test").rows()} == {2009}


def check_recipes(names):
    train, test = (bt.load("windows", split=name).numpy()["past"] for name in ("train", "test"))
    assert train.shape == (800, 24)
    assert set(train.ravel()).isdisjoint(test.ravel())
    assert len(bt.load("birds")) == len(bt.load("again")) == 344


# What must hold after a page has run, besides the output that it shows.
CHECKS = {
    "README.md": check_readme,
    "csv.md": check_csv,
    "pipelines.md": check_pipelines,
    "preprocessing.md": check_preprocessing,
    "recipes.md": check_recipes,
    "splits-and-order.md": check_splits,
}


def runnable():
    """Yield the pages with snippets."""
    for page in PAGES:
        is_run = any(block.language in ("console", "python") for block in blocks_of(page))
        if is_run and page.name not in NOT_RUN:
            is_fast = page.name in FAST
            marks = [] if is_fast else [pytest.mark.slow]
            yield pytest.param(page, id=str(page.relative_to(ROOT)), marks=marks)


@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize("page", list(runnable()))
def test_the_snippets_of_a_page_run(page, folder, monkeypatch):
    # TensorFlow finds the source of functions by their module.
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    names = vars(module)
    blocks = blocks_of(page)
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language == "console":
            run_console(block)
        elif block.language == "python" and block.file:
            Path(block.file).write_text(block.text)
        elif block.language == "python":
            shown = after.text if after and after.language == "text" else ""
            run_python(block, names, shown)
    CHECKS.get(page.name, lambda names: None)(names)


def flags_of(command):
    parameters = cli.commands[command].params
    return {flag for p in parameters for flag in (*p.opts, *p.secondary_opts)} | {"--help"}


def test_every_command_is_on_some_page_and_every_command_on_a_page_exists():
    pattern = r"(?:^\$ |^|`)beam-tfrecord ([a-z]+)"
    named = set(re.findall(pattern, "\n".join(TEXTS.values()), re.MULTILINE))
    assert named == set(cli.commands)


@pytest.mark.parametrize("words", list(commands("sh")), ids=" ".join)
def test_commands_that_tests_cannot_run_are_parsed(words):
    name, *arguments = words
    if name != "--version":
        group = click.Context(cli, **cli.context_settings)
        cli.commands[name].make_context(name, arguments, parent=group)


def without_blocks(text):
    return re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_flags_in_the_text_exist():
    text = without_blocks("\n".join(TEXTS.values()))
    # What follows a lone -- is Beam's.
    spans = [re.sub(r"(^| )-- .*", "", span) for span in re.findall(r"`([^`\n]+)`", text)]
    named = {flag for span in spans for flag in FLAG.findall(span)}
    assert {"--no-shuffle", "--null", "--encoding", "--runner", "--schema"} <= named
    known = set().union(*map(flags_of, cli.commands)) | FOREIGN_FLAGS
    # So are flags with an underscore.
    assert {flag for flag in named - known if "_" not in flag} == set()


def test_every_public_name_is_in_the_reference():
    named = set(re.findall(r"`(\w+)`", TEXTS[DOCS / "python.md"] + TEXTS[DOCS / "pipelines.md"]))
    assert named >= set(bt.__all__) - {"__version__"}


def test_the_table_of_transforms_is_complete():
    page = TEXTS[DOCS / "pipelines.md"]
    rows = [line.split("|")[1] for line in page.splitlines() if re.match(r"\| `[A-Z]", line)]
    named = {name for cell in rows for name in re.findall(r"`(\w+)", cell)}
    public = {name: getattr(bt, name) for name in bt.__all__}
    assert named == {
        name
        for name, value in public.items()
        if inspect.isclass(value) and issubclass(value, beam.PTransform | beam.DoFn)
    }


def test_every_name_of_a_type_in_the_table_is_one():
    _, section = TEXTS[DOCS / "types.md"].split("## Names of types")
    section, _ = section.split("##", 1)
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    names = re.findall(r"`([^`]+)`", " ".join(cell for row in rows for cell in row))
    assert {"int64", "text", "timestamp[us]", '{"list": "int64"}'} <= set(names)
    for name in names:
        type_from_json(json.loads(name) if name.startswith("{") else name)


@pytest.mark.slow
def test_the_messages_to_search_for_are_ours():
    nodes = (
        node
        for path in (ROOT / "beam_tfrecord").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )
    texts = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    page = TEXTS[DOCS / "troubleshooting.md"]
    ours = re.sub(r"^## (Beam|TensorFlow|PyTorch).*?(?=^## |\Z)", "", page, flags=re.M | re.S)
    named = re.findall(r"^- `([^`]+)`", ours, re.MULTILINE)
    assert len(named) > 5
    parts = {part for message in named for part in re.split(r"…|\d+", message)}
    assert [part for part in parts if not any(part in text for text in texts)] == []


def test_every_error_is_in_the_table_with_its_exit_code():
    rows = re.findall(
        r"^\| (`[A-Z].*`) \| (\d) \|", TEXTS[DOCS / "rejects-and-errors.md"], re.MULTILINE
    )
    named = {name: int(code) for cell, code in rows for name in re.findall(r"`(\w+)`", cell)}
    base = errors.BeamTFRecordError
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    assert named == {
        error.__name__: error.exit_code
        for error in found
        if issubclass(error, base) and error is not base
    }


def test_names_and_files_of_the_project_exist():
    text = "\n".join(TEXTS.values())
    names = set(re.findall(r"\bbt\.([A-Za-z_]+)", text))
    assert {"write", "load", "pipeline"} <= names
    assert names - set(bt.__all__) == set()
    paths = set(re.findall(r"`((?:scripts|tests|pipelines|beam_tfrecord)/[\w./-]+)", text))
    assert {"scripts/demo", "pipelines/train_images.py"} <= paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def anchors(page):
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = without_blocks(page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere():
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    assert set(PAGES) <= set(pages)
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if re.match(r"[a-z]+:", target):
                continue
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_index_lists_every_page():
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", TEXTS[DOCS / "README.md"]))
    assert linked == {page.name for page in DOCS.glob("*.md")} - {"README.md"}


def test_a_pattern_for_the_shards_of_a_split_fits_no_other_split():
    patterns = re.findall(r"/((?:train|test)-[^\"'/\s]*\*[^\"'/\s]*)[\"']", "".join(TEXTS.values()))
    assert len(patterns) >= 3
    for split, pattern in ((pattern.partition("-")[0], pattern) for pattern in patterns):
        assert fnmatch.fnmatch(f"{split}-00003-of-00012.tfrecord", pattern)
        assert not fnmatch.fnmatch(f"{split}-extra-00003-of-00012.tfrecord", pattern)


def sentences(page):
    """Yield the sentences of a page outside of its blocks, and the cells of its tables."""
    text = re.sub(r"<!--.*?-->", "", without_blocks(TEXTS[page]), flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)", text):
        ends = r"\|" if part.lstrip().startswith("|") else r"(?<=[.!?])[\"')*_]*\s"
        yield from re.split(ends, " ".join(part.split()))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in DESIGNS], ids=lambda p: p.name
)
def test_no_sentence_and_no_cell_is_long(page):
    assert [text for text in sentences(page) if len(text.split()) > 25] == []


def make_inputs():
    """Make the files that the examples of docstrings read, most with the one row of a trip."""
    import deltalake
    from PIL import Image
    from pyiceberg.catalog.sql import SqlCatalog

    bt.write("penguins.csv", "penguins", null_words=["NA"], splits="train=0.8,test=0.2")
    bt.write("penguins.csv", "others", null_words=["NA"], splits="train=0.8,test=0.2", seed=1)
    frame = pd.DataFrame({"id": [1], "fare": [2.5]})
    frame.to_csv("trips.csv", index=False)
    pd.concat([frame, frame]).to_csv("july.csv", index=False)
    bt.write("trips.csv", "trips")
    frame.to_json("trips.jsonl", orient="records", lines=True)
    frame.to_parquet("trips.parquet")
    frame.to_orc("trips.orc")
    frame.to_feather("trips.arrow")
    frame.to_excel("trips.xlsx", index=False)
    shutil.copy("trips/data-00000-of-00001.tfrecord", "trips.tfrecord")
    table = pa.Table.from_pandas(frame)
    Path("trips.tar").write_bytes(formats.tar_samples(table))
    Path("trips.avro").write_bytes(formats.avro_file(table))
    with contextlib.closing(sqlite3.connect("trips.db")) as database:
        frame.to_sql("trips", database, index=False)
    deltalake.write_deltalake("trips_delta", table)
    catalog = SqlCatalog("c", uri="sqlite:///catalog.db", warehouse=f"file://{Path.cwd()}/lake")
    catalog.create_namespace("ns")
    catalog.create_table("ns.trips", schema=table.schema).append(table)
    for label in ("cat", "dog"):
        Path("photos", label).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(f"photos/{label}/1.png")
    image = {"id": 1, "file_name": "cat/1.png", "width": 8, "height": 8}
    coco = {"images": [image], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    Path("objects.json").write_text(json.dumps(coco))


@pytest.mark.slow
@pytest.mark.xdist_group("tensorflow")
def test_the_example_of_every_public_name_runs(folder, capsys):
    make_inputs()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for name in sorted(set(bt.__all__) - {"__version__"}):
        text = inspect.getdoc(getattr(bt, name))
        example = doctest.DocTestParser().get_doctest(
            text, {"bt": bt, "beam": beam, "np": np, "pa": pa}, name, None, 0
        )
        assert example.examples, name
        runner.run(example)
    assert runner.summarize().failed == 0, capsys.readouterr().out
