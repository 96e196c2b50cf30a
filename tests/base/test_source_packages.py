"""Sources of other packages, as the metadata of installed packages declares them."""

import logging
import re
import sys
from types import SimpleNamespace

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs.preflight import modules_of
from beam_tfrecord.sources.choose import detect_kind, make_source, parse_options
from tests.helpers.cli_stand_ins import run

SOURCE = """
import dataclasses
from beam_tfrecord.sources.csv.source import Csv

@dataclasses.dataclass(frozen=True)
class Words(Csv):
    kind = {kind!r}
    suffixes = {suffixes!r}
    number: int = 1
    word: str | None = None
    pair: tuple[str, ...] = ()
"""


# The fewest fields that a source may have.
PLAIN = """
import dataclasses
import pyarrow as pa
from beam_tfrecord.rows.batch import Batch, Origin
from beam_tfrecord.sources import base, files

@dataclasses.dataclass(frozen=True)
class Words(base.Source):
    kind = {kind!r}
    suffixes = {suffixes!r}
    infers_from_scans = True
    paths: tuple[str, ...]

    def files(self):
        return files.list_files(files.as_paths(self.paths), self.suffixes)

    def scan(self, chunk):
        return base.Scan(chunk, None)

    def units(self, scans):
        (scan,) = scans
        file = scan.chunk.file
        return [base.Unit(file.name, file, 0, 0, file.bytes, None, file.bytes, file.bytes + 1)]

    def merge(self, inferences):
        return pa.schema([("word", pa.string()), ("length", pa.int64())])

    def read(self, unit, schema, *, batch_rows=1000):
        with open(unit.file.path) as lines:
            rows = [dict(word=line.strip(), length=len(line.strip())) for line in lines]
        yield Batch(pa.RecordBatch.from_pylist(rows, schema=schema), Origin(unit.name, 0, 0))
"""


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """A function that installs a package with a source into a directory of this test."""
    site = tmp_path_factory.mktemp("site")
    monkeypatch.syspath_prepend(site)
    made = []

    def install(package, kind, *suffixes, text=SOURCE, declared=None):
        made.append(module := package.replace("-", "_"))
        (site / f"{module}.py").write_text(text.format(kind=kind, suffixes=suffixes))
        info = site / f"{module}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(
            f"[beam_tfrecord.sources]\n{declared or kind} = {module}:Words\n"
        )

    yield install
    for module in made:
        sys.modules.pop(module, None)


def test_kind_and_suffix_are_known(install, tmp_path):
    install("our-words", "words", ".words")
    (tmp_path / "x.words").write_text("a\n1\n")
    (tmp_path / "notes.md").touch()
    for path in ("y.words", "y.words.gz", tmp_path / "*.words", tmp_path):
        assert detect_kind(path) == "words"
    assert detect_kind("y", from_="words") == "words"
    source = make_source(tmp_path, options={"number": 2})
    assert (type(source).__name__, source.number) == ("Words", 2)
    (tmp_path / "x.csv").touch()
    with pytest.raises(UsageError, match=r"holds csv \(1 file\) and words \(1 file\): pass --from"):
        detect_kind(tmp_path)


def test_options_are_keywords(install, tmp_path):
    install("our-words", "words", ".words")
    (tmp_path / "x.words").write_text("a\n1\n")
    assert bt.schema(tmp_path / "x.words", number=3).names == ("a",)
    planned = bt.plan(tmp_path / "x.words", tmp_path / "out", number=3)
    assert planned["input"]["kind"] == "words"
    with pytest.raises(UsageError, match="number is not an option of csv input"):
        bt.plan(tmp_path / "x.csv", tmp_path / "out", number=3)
    with pytest.raises(UsageError, match=r"numbr is not an option of words .* mean number\?"):
        make_source("x.words", options={"numbr": 3})
    with pytest.raises(UsageError, match="unexpected keyword argument 'numbr'"):
        bt.plan(tmp_path / "x.words", tmp_path / "out", numbr=3)


def test_a_source_without_columns_takes_a_schema(install, tmp_path):
    install("plain-words", "words", ".words", text=PLAIN)
    (tmp_path / "x.words").write_text("one\nthree\n")
    schema = bt.schema(tmp_path / "x.words").select(["length"])
    assert bt.write(tmp_path / "x.words", tmp_path / "out", schema=schema).examples == 2
    assert sorted(row["length"] for row in bt.load(tmp_path / "out")) == [3, 5]
    with pytest.raises(UsageError, match="--columns is not an option of words input"):
        bt.write(tmp_path / "x.words", tmp_path / "o", columns=["word"])


def test_a_source_that_fails_is_named_with_its_file(install, tmp_path):
    faulty = "        if {{'a.words': 0}}[unit.file.name]:\n            pass\n        with open("
    install("bad-words", "words", ".words", text=PLAIN.replace("        with open(", faulty))
    for name in ("a.words", "b.words"):
        (tmp_path / name).write_text("one\n")
    told = r"source 'words' failed in b\.words: KeyError: 'b\.words'"
    with pytest.raises(RuntimeError, match=told):
        bt.write(tmp_path, tmp_path / "out")
    ran = run("write", tmp_path, tmp_path / "out")
    assert re.search(f"unexpected RuntimeError: {told}", ran.stderr)
    assert ran.exit_code == 2


def test_texts_of_options_follow_the_types_of_fields(install):
    install("our-words", "words", ".words")
    texts = ["number=5", "word=5", 'pair=["a","b"]', "header=false", "delimiter=;", "wrong=1"]
    assert parse_options(texts, "x.words") == {
        "number": 5,
        "word": "5",
        "pair": ("a", "b"),
        "header": False,
        "delimiter": ";",
        "wrong": "1",
    }
    for wrong, message in {
        "number": "--source-option 'number' has no value: write NAME=VALUE",
        "number=x": "--source-option number='x' is not JSON: ",
    }.items():
        with pytest.raises(UsageError, match=message):
            parse_options([wrong], "x.words")
    with pytest.raises(UsageError, match="'word' is there twice"):
        parse_options(["word=a", "word=b"], "x.words")
    with pytest.raises(UsageError, match="options of csv input have flags of their own"):
        parse_options(["delimiter=;"], "x.csv")


def test_ours_come_first_with_a_warning(install, caplog):
    install("a-words", "words", ".words", ".csv")
    install("b-words", "words", ".words")
    install("c-words", "csv", ".csv")
    install("d-words", "more", ".words")
    caplog.set_level(logging.WARNING, "beam_tfrecord")
    assert make_source("x.csv").__class__.__module__.startswith("beam_tfrecord.")
    kinds = [
        "kind 'words' of the package b-words is not used: a-words has it, too",
        "kind 'csv' of the package c-words is not used: beam-tfrecord has it, too",
    ]
    assert caplog.messages == kinds
    caplog.clear()
    assert type(make_source("x.words")).__module__ == "a_words"
    assert set(caplog.messages) == set(kinds)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"text": "import not_there\n"},
            "cannot load source 'words' of the package bad-words (ModuleNotFoundError: No module "
            "named 'not_there'): correct or uninstall the package",
        ),
        (
            {"kind": "other", "declared": "words"},
            "cannot use source 'words' of the package bad-words: bad_words:Words has to be a "
            "dataclass that is a Source, with kind = 'words'",
        ),
    ],
)
def test_a_defective_package_matters_only_if_it_is_needed(install, tmp_path, changes, message):
    install("bad-words", **{"kind": "words", **changes})
    install("good-words", "good", ".good")
    (tmp_path / "x.words").touch()
    assert make_source("x.csv").kind == "csv"
    assert make_source("x.good").kind == "good"
    with pytest.raises(UsageError) as error:
        make_source("x.csv", from_="words")
    assert str(error.value) == message
    with pytest.raises(UsageError, match=r"cannot tell what .* holds: ") as error:
        make_source(tmp_path / "x.words")
    assert "|words|good, or see docs" in str(error.value)
    assert str(error.value).endswith(f"; {message}")


def test_remote_workers_get_its_module(install):
    install("our-words", "words", ".words")
    settings = SimpleNamespace(source=make_source("x.words"))
    assert modules_of(settings) == ("our_words",)
    assert modules_of(SimpleNamespace(source=make_source("x.csv"))) == ()
