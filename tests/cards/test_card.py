"""`card`: a page that any browser shows safely, and that is the same for the same rows."""

import contextlib
import html.parser
import io
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import DataError, UsageError
from tests.helpers.formats import write_file
from tests.helpers.made_datasets import make_dataset

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>alert(1)</script>",
    "</pre></title><svg onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% for x in y %}",
    "http://example.com/x.png",
    "url(http://example.com)",
    "\u202eright to left \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "👩‍👩‍👧 emoji",
    "\0\x1b[31m control",
    "x" * 10_000,
)
TAGS = """
a article body code dd details div dl dt footer h1 h2 h3 head header html image li line main meta
nav p path pre q rect section span style summary svg table tbody td th thead title tr ul
""".split()  # noqa: SIM905
POLICY = ("meta", "content", True)


class Page(html.parser.HTMLParser):
    """Collects the tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text.append(data)


def page_of(path, **options):
    with open(bt.card(path, **options), encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    assert not page.tags - {*TAGS}
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name != "style", tag
        if name in ("href", "src"):
            assert value.startswith("#" if tag == "a" else "data:image/"), value
    policies = [v for tag, n, v in page.attributes if (tag, n, "src" in v) == POLICY]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    return text, "".join(page.text)


def table(rows=200):
    random = np.random.default_rng(0)
    return {
        "x": random.normal(size=rows),
        "n": random.integers(0, 1000, rows),
        "word": [f"w{number % 5}" for number in range(rows)],
    }


def test_it_shows_what_the_dataset_holds(tmp_path):
    rows = pa.table({**table(), "label": [i % 3 for i in range(200)]})
    bt.write(rows, tmp_path / "d", splits="a=0.7,b=0.3")
    _, text = page_of(tmp_path / "d")
    for part in ("Splits", "Sample rows", "How it was made", "Median", "w4", "--split", "error ≤"):
        assert part in text, part
    assert "No two splits share an equal example." in text
    # A column that names the split makes all examples differ.
    bt.write(rows, tmp_path / "by", split_column="word")
    assert "No two splits" not in page_of(tmp_path / "by")[1]
    assert "3 classes" in text
    assert bt.verify(tmp_path / "d").ok


def test_hostile_names_and_values_run_nothing(tmp_path):
    columns = {name: list(HOSTILE) for name in (*HOSTILE, "label")}
    bt.write(columns, tmp_path / "d")
    text, shown = page_of(
        tmp_path / "d", title=HOSTILE[0], description=HOSTILE[3], license=HOSTILE[1]
    )
    assert HOSTILE[0] in shown
    assert "{{ 7 * 7 }}" in shown
    assert len(text) < 150_000


@pytest.mark.slow
def test_equal_rows_have_an_equal_page(tmp_path):
    for name, shards in (("one", 2), ("two", 5)):
        bt.write(table(), tmp_path / name, splits="a=0.7,b=0.3", shards=shards)
    pages = {page_of(tmp_path / name, title="t")[0] for name in ("one", "two", "one")}
    assert len(pages) == 1


def test_fifty_columns_and_three_splits_fit_in_100_kb(tmp_path):
    random = np.random.default_rng(0)
    columns = {f"column_{at}": random.normal(at, 1 + at, 1000) for at in range(31)}
    columns |= {f"number_{at}": random.integers(0, 100 * at + 2, 1000) for at in range(10)}
    columns |= {f"word_{at}": random.choice(list("abcdefgh"), 1000).tolist() for at in range(10)}
    splits = {"train": range(800), "test": range(800, 900), "validation": range(900, 1000)}
    make_dataset(tmp_path / "d", pa.table(columns), splits=splits)
    text, shown = page_of(tmp_path / "d")
    assert len(text.encode()) <= 100_000
    assert "1 more columns" in shown


def test_no_split_at_all(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n")
    bt.write(tmp_path / "x.csv", tmp_path / "d", types={"a": "int64", "b": "text"})
    _, text = page_of(tmp_path / "d")
    assert "There are no rows." in text


def test_only_nulls_and_only_nan(tmp_path):
    columns = pa.table({
        "null": pa.array([None] * 9, pa.float32()),
        "nan": pa.array([float("nan")] * 9, pa.float32()),
        "inf": pa.array([float("inf")] * 9, pa.float32()),
        "lists": pa.array([[]] * 9, pa.list_(pa.int64())),
    })  # fmt: skip
    make_dataset(tmp_path / "d", columns)
    _, text = page_of(tmp_path / "d")
    assert "100.0%" in text
    assert "no values" in text


def test_words_about_a_dataset_are_kept(tmp_path):
    bt.write(table(), tmp_path / "d")
    bt.card(tmp_path / "d", title="Weather", license="CC0-1.0")
    bt.card(tmp_path / "d", description="Of two years.")
    kept = json.loads((tmp_path / "d" / "about.json").read_text())
    assert kept == {"title": "Weather", "license": "CC0-1.0", "description": "Of two years."}
    bt.write({"x": [1.0, 2.0]}, tmp_path / "d", overwrite=True)
    _, text = page_of(tmp_path / "d")
    assert "Weather" in text
    assert bt.verify(tmp_path / "d").ok
    (tmp_path / "d" / "about.json").write_text("[]")
    with pytest.raises(DataError, match=r"about\.json is not a JSON object of texts"):
        bt.card(tmp_path / "d")


def test_equal_examples_in_several_splits_are_counted(tmp_path):
    same = pa.table({"x": [1, 2, 3]})
    make_dataset(tmp_path / "d", same, splits={"a": [0, 1, 2], "b": [1, 2]})
    _, text = page_of(tmp_path / "d")
    assert "2 distinct examples are in more than one split" in text


def test_pictures_have_labels_and_boxes(tmp_path):
    file = io.BytesIO()
    Image.fromarray(np.zeros((100, 300, 3), np.uint8)).save(file, "PNG")
    box = {"xmin": 0.1, "ymin": 0.2, "xmax": 0.5, "ymax": 0.4}
    columns = {
        "image": pa.array([file.getvalue(), b"no picture"], pa.binary()),
        "label": ["<b>cat", "dog"],
        **{f"image/object/bbox/{side}": [[at], []] for side, at in box.items()},
    }
    make_dataset(tmp_path / "d", pa.table(columns))
    text, shown = page_of(tmp_path / "d")
    assert text.count("<image ") == text.count("data:image/png;base64,") == 1
    assert "<rect x=30.0 y=20.0 width=120.0 height=20.0 />" in text
    assert "<b>cat" in shown


@pytest.mark.parametrize(
    "name", ["x.csv", "x.jsonl", "x.avro", "x.xlsx", "x.parquet", "x.tfrecord"]
)
def test_stats_and_card_take_what_write_takes(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    write_file(tmp_path / "in" / name, pa.table({"n": [1, 2, 1, 3, 1], "s": list("abaca")}))
    ran = CliRunner().invoke(cli, ["stats", f"in/{name}", "--json"])
    found = json.loads(ran.stdout)["splits"]["data"]
    assert (found["examples"], found["copies"]) == (5, 2)
    assert found["features"]["n"]["mean"] == 1.6
    assert found["features"]["s"]["top"] == [["a", 3], ["b", 1], ["c", 1]]
    text, shown = page_of(f"in/{name}", label="s", description="Mine")
    assert "2 rows are duplicates of others in all columns" in shown
    assert "3 classes" in shown
    assert "How to load" not in text
    assert {file.name for file in tmp_path.rglob("*")} == {"in", name, "card.html"}


def test_options_of_the_input_and_rejected_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.csv").write_text("a;b\n1;x\n<b>\n")
    words = ["x.csv", "--delimiter", ";"]
    ran = CliRunner().invoke(cli, ["stats", *words])
    assert ran.stdout.startswith("data: 1 example\n")
    assert "1 row rejected: beam-tfrecord card has the reasons" in ran.stderr
    assert "x.csv:3 has 1 field" in page_of("x.csv", source_options={"delimiter": ";"})[1]
    ran = CliRunner().invoke(cli, ["stats", *words, "--output", "o", "--runner", "flink"])
    assert "--runner is for datasets" in ran.stderr
    assert "rejected" not in ran.stderr  # it is refused before the input is read
    _, shown = page_of({"a": [1, 2]}, against=pa.table({"a": [1.5]}))
    assert "before: memory" in shown
    assert "a: double → int64" in shown


def test_values_that_are_no_numbers_and_no_pictures(tmp_path):
    columns = {
        "meta": [{"lang": "de", "score": row / 3} for row in range(100)],
        "turns": [[{"text": "hi"}] * (row % 3 + 5) for row in range(100)],
        "wav": [b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes([row]) for row in range(100)],
        "speaker": [row // 50 for row in range(100)],
        "churn": [int(row % 20 == 0) for row in range(100)],
    }
    splits = {"train": range(50), "test": range(50, 100)}
    make_dataset(tmp_path / "d", pa.table(columns), splits=splits)
    page_of(tmp_path / "d", label="churn")
    _, shown = page_of(tmp_path / "d")
    assert "no values" not in shown
    assert "unreadable" not in shown
    assert "struct<lang: string, score: double>" in shown
    assert "5 to 7" in shown
    assert shown.count("50.0%") == 4  # the shares of the two splits, and of the two speakers
    assert "2 classes, the rarest 5.0%, the most frequent 95.0%" in shown
    assert "show manifest.json --code keras --label churn" in shown
    with pytest.raises(UsageError, match="column 'nope' is not in the schema"):
        bt.card(tmp_path / "d", label="nope")


def test_small_arrays_are_pictures(tmp_path):
    bt.write({"digit": np.arange(640).reshape(10, 8, 8).astype(np.uint8)}, tmp_path / "d")
    assert page_of(tmp_path / "d")[0].count("<image ") == 10


def test_what_changed_between_two_datasets(tmp_path):
    random = np.random.default_rng(1)
    same = random.normal(size=(2, 2000))
    texts = [f"{number}{'x' * (number % 3)}" for number in range(1000, 3000)]
    old = {"same": same[0], "moved": random.normal(size=2000), "gone": [1] * 2000, "texts": texts}
    new = {
        "same": same[1],
        "moved": random.normal(1, size=2000),
        "new": [1] * 2000,
        # So few that all are counted: the lengths are still compared with those of the others.
        "texts": texts[::4] * 4,
    }
    make_dataset(tmp_path / "old", pa.table(old))
    make_dataset(tmp_path / "new", pa.table(new))
    assert bt.card(tmp_path / "new", against=tmp_path / "old").endswith("drift.html")
    _, text = page_of(tmp_path / "new", against=tmp_path / "old")
    assert "gone: int64 → gone" in text
    assert "new: new → int64" in text
    changed = text[text.index("Jensen-Shannon") :][:80]
    assert "moved" in changed
    assert "same" not in changed
    assert "texts" not in changed
    assert f"before: {tmp_path / 'old'}" in text
    assert f"now: {tmp_path / 'new'}" in text
    assert "always 1" not in text


def test_no_password_is_on_the_card(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS a")
        database.commit()
    bt.write(f"sqlite:///{tmp_path}/x.db?password=hunter2", tmp_path / "d", table="t")
    with open(bt.card(tmp_path / "d"), encoding="utf-8") as file:
        page = file.read()
    assert "sql: x.db" in page
    assert "hunter2" not in page


def test_the_commands(tmp_path):
    make_dataset(tmp_path / "d", pa.table({"x": [1, 2, 3]}))
    words = ["card", tmp_path / "d", "--title", "Numbers", "--output", tmp_path / "x.html"]
    ran = CliRunner().invoke(cli, list(map(str, words)))
    assert ran.exit_code == 0, ran.output
    assert "<h1>Numbers</h1>" in (tmp_path / "x.html").read_text()
    assert not (tmp_path / "d" / "card.html").exists()
    ran = CliRunner().invoke(cli, ["write", "x.csv", "out", "--card", "--detach"])
    assert ran.exit_code == 2
    assert "--card needs the end of the job" in ran.output


@pytest.mark.slow
def test_write_with_a_card(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    for _ in range(2):
        words = ["write", str(tmp_path / "x.csv"), str(tmp_path / "d"), "--card"]
        assert CliRunner().invoke(cli, words).exit_code == 0
        (tmp_path / "d" / "card.html").unlink()
