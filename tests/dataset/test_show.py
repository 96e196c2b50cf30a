"""`show` and `head`: the data they give, and the text of it."""

import datetime
import decimal
import json
import os
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.base.text import format_size
from beam_tfrecord.check.show import head, render_rows, render_show, show
from beam_tfrecord.cli.main import cli
from beam_tfrecord.dataset.load import load
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.loading.value_text import json_text
from tests.helpers.effort import WHOLE
from tests.helpers.made_datasets import make_dataset, write_examples
from tests.images.picture_zoo import chunk, ihdr, png

TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "x": pa.array([0.5, None, 2.0, -1.25], pa.float32()),
        "city": ["Oslo", "Rome", None, "Rome"],
    }
)
MOMENT = datetime.datetime(2020, 1, 2, 3, tzinfo=datetime.UTC)


@pytest.fixture
def path(tmp_path):
    make_dataset(tmp_path, TABLE, splits={"train": [0, 1, 2], "test": [3]}, shards=1)
    return tmp_path


def test_show_reads_the_manifest_alone(path):
    manifest = load(path).manifest
    for shard in manifest.shards:
        os.remove(path / shard.path)
    shown = show(path)
    assert json.loads(json.dumps(shown)) == shown
    split = {"examples": 1, "shards": 1}
    split |= dict.fromkeys(("bytes", "largest_shard_bytes"), manifest.splits["test"].bytes)
    assert shown["splits"]["test"] == split
    x = {"name": "x", "type": "float", "missing": 1, "min": -1.25, "max": 2.0, "null_share": 0.25}
    assert shown["features"][1] == x


def test_the_text_of_show(path):
    shown = show(path) | {"path": "out/", "rejected_rows": 7, "rejects": "out/rejects"}
    shown |= {"bytes": 1234, "source": {"kind": "csv", "files": [{"path": "a.csv", "bytes": 9}]}}
    for split in shown["splits"].values():
        split["bytes"] = 617
    assert (
        render_show(shown)
        == """\
out/: 4 examples, 1.2 kB (shuffled, seed 0)
from csv: a.csv

rejected: 7 rows (for the reasons, run beam-tfrecord head out/rejects)

split  examples  share  shards   size
train         3  75.0%       1  617 B
test          1  25.0%       1  617 B

feature  type     null    min  max
id       int64      0%      1    4
x        float   25.0%  -1.25    2
city     string  25.0%
"""
    )


def test_the_input_order_and_size_of_a_dataset(tmp_path):
    np.save(tmp_path / "zeros.npy", np.zeros((1000, 4)))
    bt.write(tmp_path / "zeros.npy", tmp_path / "gz", shuffle=False, compression="gzip")
    shown = show(tmp_path / "gz")
    stored = sum(file.stat().st_size for file in (tmp_path / "gz").glob("*.gz"))
    assert shown["stored_bytes"] == stored < shown["bytes"]
    sizes = f"{format_size(stored)} compressed from {format_size(shown['bytes'])}"
    assert f"1,000 examples, {sizes} (in input order, gzip)" in render_show(shown)
    assert "shards  uncompressed" in render_show(shown)
    (tmp_path / "gz" / "job.json").unlink()
    assert "? compressed from" in render_show(show(tmp_path / "gz"))


@pytest.mark.slow
def test_what_chose_the_rows_and_nan_are_shown(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1.5,nan\n2,3\n134000.5,-1\n")
    bt.write(tmp_path / "a.csv", tmp_path / "out", filter="x > 1.6", sample="100%")
    shown = show(tmp_path / "out")
    assert shown["settings"] == {"--filter": "x > 1.6", "--sample": "100%"}
    lines = render_show(shown).splitlines()
    assert lines[1:3] == ["from csv: a.csv", "rows chosen by --filter 'x > 1.6' --sample 100%"]
    assert lines[-2].split() == ["x", "double", "0%", "2", "134000.5"]
    bt.write(tmp_path / "a.csv", tmp_path / "all")
    assert "chosen" not in render_show(show(tmp_path / "all"))
    assert render_show(show(tmp_path / "all")).splitlines()[-1].endswith(" 3  1 NaN")


def test_types_are_text_for_people(tmp_path):
    features = (
        Feature("pixels", TensorType("uint8", [28, None])),
        Feature("words", pa.list_(pa.list_(pa.string()))),
        Feature("box", pa.list_(pa.float32(), 4)),
        Feature("at", pa.struct([("lat", pa.float64())])),
    )
    write_examples(tmp_path, {"data": []}, Schema(features))
    types = [line.split(maxsplit=1)[1] for line in render_show(show(tmp_path)).splitlines()[-4:]]
    assert types == ["uint8[28, ?]", "string[?, ?]", "float[4]", "struct<lat: double>"]


def test_a_stage_is_shown(tmp_path):
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    bt.extract(tmp_path / "rows.parquet", tmp_path / "stage")
    shown = show(tmp_path / "stage")
    assert (shown["examples"], shown["order"]) == (4, "source")
    assert [feature["name"] for feature in shown["features"]] == TABLE.column_names
    assert "from parquet: rows.parquet" in render_show(shown)
    assert render_show(show(tmp_path / "stage")).endswith(
        "feature  type\nid       int64\nx        float\ncity     string\n"
    )
    assert f"about {format_size(shown['bytes'])} as TFRecord files" in render_show(shown)


def test_times_losses_stores_and_defaults_are_shown(tmp_path):
    features = (
        Feature("at", "timestamp", default=0, observed=ColumnStats(0, 0, 1_500_000)),
        Feature("day", "date", observed=ColumnStats(0, -1, 365)),
        Feature("y", "double", observed=ColumnStats(1, 0.1, 2.0, 2.5e-8)),
        Feature("z", "double", store="bytes", observed=ColumnStats(0, 0.1, 2.0)),
        Feature("unseen", "int64"),
        Feature("since", "int64", dtype="datetime64[D]"),
        Feature("label", "int64", labels=tuple(f"c{number}" for number in range(12))),
    )
    write_examples(tmp_path, {"data": []}, Schema(features))
    shown = {feature["name"]: feature for feature in show(tmp_path)["features"]}
    ends = [(shown[name]["min"], shown[name]["max"]) for name in ("at", "day")]
    assert ends[0] == ("1970-01-01T00:00:00", "1970-01-01T00:00:01.500")
    assert ends[1] == ("1969-12-31", "1971-01-01")
    assert "null_share" not in shown["unseen"]
    text = render_show(show(tmp_path))
    assert "rounded to float32, relative error ≤ 2.5e-08" in text
    assert "stored as bytes" in text
    assert "classes c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 and 2 more" in text
    assert "default 0" in text
    assert "datetime64[D] in NumPy" in text


FLOATS_32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("is_wide", [False, True])
@given(st.lists(FLOATS_32, min_size=30, max_size=60))
@settings(max_examples=9 if WHOLE else 2, deadline=None)
def test_what_is_stored_as_float32_prints_as_short_as_float32(tmp_path_factory, is_wide, xs):
    tmp_path, shorts = tmp_path_factory.mktemp("short"), [float(str(np.float32(x))) for x in xs]
    wide = pa.float64() if is_wide else pa.float32()
    pq.write_table(pa.table({"x": pa.array(xs, wide)}), tmp_path / "a.parquet")
    bt.write(tmp_path / "a.parquet", tmp_path / "out")
    for of in (tmp_path / "out", tmp_path / "a.parquet"):
        ran = CliRunner().invoke(cli, ["head", str(of), "-n", "60", "--json"])
        printed = sorted(json.loads(line)["x"] for line in ran.output.splitlines())
        assert printed == sorted(xs if is_wide and of.suffix else shorts)
    for bound, short in (("min", min(shorts)), ("max", max(shorts))):
        assert show(tmp_path / "out")["features"][0][bound] == short
    if is_wide:
        exact = Schema((Feature("x", wide, store="bytes"),))
        bt.write(tmp_path / "a.parquet", tmp_path / "exact", schema=exact)
        assert sorted(row["x"] for row in head(tmp_path / "exact", 60)) == sorted(xs)


def test_rows_as_a_table():
    rows = [
        {"id": 1, "text": "two\nlines", "raw": b"\xff"},
        {"id": 200, "text": "x" * 31, "raw": None},
    ]
    assert render_rows(rows) == (
        " id  text                            raw\n"
        "  1  two lines                       <1 B>\n"
        f"200  {'x' * 29}…"
    )
    assert render_rows([]) == ""
    assert render_rows([{"\x1b[31m": "\x1b[2J"}]) == "\\x1b[31m\n\\x1b[2J"


def test_a_table_of_rows_leaves_out_columns_beyond_a_width():
    rows = [{"a": 1, "bb": "x", "c": 2.5, "dddddd": None}]
    assert render_rows(rows, max_width=10) == "a  bb    c\n1  x   2.5\n… and 1 more column"
    assert render_rows(rows, max_width=9) == "a  bb\n1  x\n… and 2 more columns"
    assert render_rows(rows, max_width=0) == "a\n1\n… and 3 more columns"
    assert "more" not in render_rows(rows, max_width=18)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((28, 28), np.float32), "<float32[28, 28]>"),
        (np.array([1, 2]), "[1, 2]"),
        (np.array(1.5), "1.5"),
        ([[1.23456789, 2], None], "[[1.23456789, 2], null]"),
        (float(np.float32(39.1)), "39.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-3e300, "-3e+300"),
        (float("-inf"), "-inf"),
        ([b"\xff" * 2000, "a"], "[<2.0 kB>, a]"),
        ({"lat": 1.0, "days": [True]}, "{lat: 1, days: [true]}"),
        (list(range(10**6)), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9…"),
        (b"plain bytes", "plain bytes"),
        (png(chunk(b"IHDR", ihdr(width=5, height=3)), chunk(b"IDAT")), "<PNG 5x3>"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (float("nan"), "nan"),
    ],
)
def test_values_in_a_table(value, text):
    assert render_rows([{"x": value}]).splitlines()[1] == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), '"NaN"'),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        ("ü\n", '"ü\\n"'),
        ("ü".encode(), '"ü"'),
        (b"\xff\x00", '{"b64": "/wA="}'),
        (datetime.date(2020, 1, 2), '"2020-01-02"'),
        (MOMENT, '"2020-01-02T03:00:00+00:00"'),
        (datetime.time(1, 2, 3), '"01:02:03"'),
        (datetime.timedelta(days=1, microseconds=500_000), '"PT86400.5S"'),
        (-datetime.timedelta(microseconds=1), '"-PT0.000001S"'),
        (np.timedelta64(1_000_000_001, "ns"), '"PT1.000000001S"'),
        (np.datetime64("2020-01-02T03:04:05.000000006", "ns"), '"2020-01-02T03:04:05.000000006"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ({"a": [1, b"x"]}, '{"a": [1, "x"]}'),
        ([("k", float("nan"))], '[["k", "NaN"]]'),
        (np.float32(0.1), "0.1"),
        (np.array([0.1, 2], np.float16), "[0.1, 2.0]"),
    ],
)
def test_values_as_json(value, text):
    assert json_text(value) == text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
