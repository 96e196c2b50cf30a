"""What a schema, manifest, dataset, stage and plan look like at the end of a notebook's cell."""

import html.parser
import json

import pyarrow as pa

import beam_tfrecord as bt
from beam_tfrecord.base.text import MAX_ROWS, not_found
from beam_tfrecord.features.feature import ColumnStats
from tests.helpers.cli_stand_ins import manifest_of

HOSTILE = '<script>alert("1")</script>&\x1b[31m\n'


class Shown(html.parser.HTMLParser):
    """The tags of some HTML, and the cells of each line of its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags = set()
        self.lines = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert dict(attributes).get("style", "") in ("", "text-align: left", "text-align: right")
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")

    def handle_data(self, data):
        self.text += data
        if self.lines and self.lines[-1]:
            self.lines[-1][-1] += data


def shown(value):
    return Shown(value._repr_html_())


SCHEMA = bt.Schema(
    (
        bt.Feature("id", "int64", nullable=False),
        bt.Feature("pixels", "uint8", nullable=False, shape=(28, 28)),
        bt.Feature("words", pa.list_(pa.string()), fill=""),
        bt.Feature("fare", "float64", store="bytes", default=0.5, observed=ColumnStats(1200)),
        bt.Feature("label", "int64", labels=("cat", "dog")),
    )
)


def test_a_schema_is_a_table():
    assert repr(SCHEMA) == (
        "Schema:\n"
        "column  type    shape     null\n"
        "id      int64             no\n"
        "pixels  uint8   [28, 28]  no\n"
        "words   string  [?]       yes   nulls in lists are ''\n"
        "fare    double            yes   stored as bytes, default 0.5, 1,200 missing\n"
        "label   int64             yes   2 class names"
    )
    lines = shown(SCHEMA).lines
    assert lines[0] == ["column", "type", "shape", "null", ""]
    assert lines[2] == ["pixels", "uint8", "[28, 28]", "no", ""]


def test_a_manifest_is_one_line_and_two_tables():
    manifest = manifest_of(schema=SCHEMA)
    assert repr(manifest) == (
        "<Manifest: train=700, test=300; 100.0 MB; id, pixels, words, fare, label>"
    )
    lines = shown(manifest).lines
    assert lines[:3] == [
        ["split", "examples", "shards", "size"],
        ["train", "700", "1", "70.0 MB"],
        ["test", "300", "1", "30.0 MB"],
    ]
    assert lines[3:] == shown(SCHEMA).lines


def test_a_dataset_shows_its_splits_and_columns(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 50)
    bt.write(tmp_path / "a.csv", tmp_path / "out", splits="train=1,test=0")
    dataset = bt.load(tmp_path / "out", split="train", columns=["y"])
    assert repr(dataset) == f"<Dataset {str(tmp_path / 'out')!r}: train=50; y>"
    html = shown(dataset)
    assert html.text.startswith(f"Dataset {str(tmp_path / 'out')!r}")
    tables = ["split", "train", "column", "y", "feature", "y", "y", *"22222"]
    assert [line[0] for line in html.lines] == tables


def test_a_plan_is_a_dict_and_a_table(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    planned = bt.plan(tmp_path / "a.csv", tmp_path / "out")
    assert json.loads(json.dumps(planned)) == planned
    html = shown(planned)
    assert ["input", "csv, 1 file, 2 B, 1 row"] in html.lines
    assert ["order", "shuffled"] in html.lines


def test_hostile_names_are_escaped():
    default = f"{HOSTILE}\udc80"
    schema = bt.Schema((bt.Feature(HOSTILE, pa.struct({HOSTILE: pa.int64()}), default=default),))
    manifest = manifest_of(schema=schema, splits={HOSTILE: (1, 10)})
    for value in (schema, manifest):
        html = shown(value)
        assert html.tags == {"table", "thead", "tbody", "tr", "th", "td"}
        assert '<script>alert("1")</script>&\\x1b[31m\\n' in [line[0] for line in html.lines]
        for text in (repr(value), value._repr_html_()):
            assert text.replace("\n", "").isprintable()
            text.encode()
    assert len(repr(schema).splitlines()) == 3
    assert "\n" not in repr(manifest)


def test_tables_of_many_columns_are_cut():
    columns = tuple(bt.Feature(f"column_{n}_{'x' * 200}", "int64") for n in range(1000))
    schema = bt.Schema(columns)
    lines = repr(schema).splitlines()
    assert len(lines) == MAX_ROWS + 3
    assert lines[-1] == "… and 950 more"
    assert max(map(len, lines)) < 100
    html = shown(schema)
    assert len(html.lines) == MAX_ROWS + 1
    assert html.text.endswith("… and 950 more")
    splits = {f"split_{n}": (1, 10) for n in range(1000)}
    manifest = manifest_of(schema=schema, splits=splits)
    assert len(repr(manifest)) < 2000
    assert repr(manifest).count("and 990 more") == 2
    assert len(manifest._repr_html_()) < 30_000


def test_a_missing_column_names_the_most_similar_one():
    message = not_found("agee", ["name", "age", "age"], of="--types")
    problem, hint = message.split(": ")
    assert problem == "column 'agee' of --types is not in the input"
    assert hint == "did you mean 'age'? the columns are name, age"
    many = not_found("x", [f"column_{i}" for i in range(1000)])
    assert many.endswith(", column_9 and 990 more")
    field = not_found("place/latitude", ["id", "place"])
    assert field.endswith(": pass 'place' for all of its fields; the columns are id, place")
    assert not_found("x", [], where="a.csv") == "column 'x' is not in a.csv: it has none"
