"""`export`: files of other formats, from which a dataset can be made again."""

import datetime
import decimal
import itertools
import json
import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from tests.helpers.cli_stand_ins import run
from tests.helpers.datasets import ids, sample_table, visible_names
from tests.helpers.made_datasets import make_dataset
from tests.sources.made_images import jpeg, write_tree

# Many characters in texts of 1 and of 16, and text that looks like a missing value or like syntax.
TEXTS = ["", "NA", "null", " a ", "a,b", '"', 'a"b', "\r\n", "\\n", *map(chr, range(1, 0x180))]
TEXTS += ["".join(map(chr, range(at, at + 16))) for at in range(0x180, 0xD800, 0x400)]
FLOATS = itertools.cycle([math.nan, math.inf, -0.0, 0.1, 1e-45, None])
FLAT = pa.table(
    {
        "text": [*TEXTS, None],
        "float": pa.array(itertools.islice(FLOATS, len(TEXTS) + 1), pa.float32()),
        "bool": [True, *[None] * len(TEXTS)],
        "big": [2**62, *[None] * len(TEXTS)],
    }
)
TIMES = pa.table(
    {
        'a "day",': pa.array([datetime.date(1969, 12, 31), None]),
        "ns": pa.array([1, None], pa.timestamp("ns")),
        "ms": pa.array([1, None], pa.timestamp("ms")),
        "zoned": pa.array([1, None], pa.timestamp("us", "Europe/Berlin")),
        "time": pa.array([datetime.time(1, 2, 3, 4), None]),
        "price": pa.array([decimal.Decimal("1.50"), None]),
    }
)
NESTED = pa.table(
    {
        "list": pa.array([[1.5, math.nan], None], pa.list_(pa.float32())),
        "deep": [[["a"], []], None],
        "struct": [{"x": 1, "y": "b"}, {"x": None, "y": ""}],
        "fixed": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        "uuid": pa.array([b"a" * 16, None], pa.uuid()),
    }
)
BYTES = pa.table(
    {
        "bytes": [b"\xff", b""],
        "span": pa.array([1, None], pa.duration("ms")),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 2, 2), np.float32)),
    }
)
HELD = {"csv": (FLAT, TIMES), "jsonl": (FLAT, TIMES, NESTED)}
HELD["parquet"] = (FLAT, TIMES, NESTED, BYTES)


@pytest.mark.parametrize(("to", "table"), [(to, one) for to, of in HELD.items() for one in of])
def test_a_dataset_is_made_again_from_its_export(to, table, tmp_path):
    made = make_dataset(tmp_path / "a", table, shards=2)
    assert bt.export(tmp_path / "a", tmp_path / "out", to=to) == table.num_rows
    files = [tmp_path / "out" / name for name in visible_names(tmp_path / "out")]
    assert [file.name for file in files] == [f"data-0000{n}-of-00002.{to}" for n in range(2)]
    again = bt.write(files, tmp_path / "b", schema=tmp_path / "a" / "schema.json")
    assert again.content == made.content


def test_other_programs_read_the_files(tmp_path):
    make_dataset(tmp_path / "a", FLAT, shards=1)
    for to in HELD:
        bt.export(tmp_path / "a", tmp_path / to, to=to)
    # An empty text is in quotes, and a missing one is an empty field.
    read = pa.csv.ConvertOptions(
        column_types=FLAT.schema,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    name = "data-00000-of-00001"
    found = [
        pa.csv.read_csv(tmp_path / f"csv/{name}.csv", parse_options=parse, convert_options=read),
        pq.read_table(tmp_path / "parquet"),
        pa.Table.from_pylist(
            list(map(json.loads, (tmp_path / f"jsonl/{name}.jsonl").read_text().split("\n")[:-1])),
            FLAT.schema,
        ),
    ]
    for table in found:
        assert repr(table.to_pylist()) == repr(FLAT.to_pylist())


@pytest.mark.parametrize(("to", "table"), [("csv", NESTED), ("csv", BYTES), ("jsonl", BYTES)])
def test_each_column_that_a_format_cannot_hold_is_named(to, table, tmp_path):
    for name in table.column_names:
        make_dataset(tmp_path / name, table.select([name]))
        with pytest.raises(UsageError, match=f"column '{name}' is .*, which {to} cannot hold"):
            bt.export(tmp_path / name, tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


def test_doubles_come_back_as_the_decimals_that_they_were(tmp_path):
    prices = [number / 100 for number in range(10_000)] + [9e-30, -1234.56, 52e9]
    exact = [1 / 4096, float(2**30)] + [math.nan] * (len(prices) - 2)
    bt.write({"price": prices, "exact": exact}, tmp_path / "a", shuffle=False)
    bt.export(tmp_path / "a", tmp_path / "out", to="csv")
    table = pa.csv.read_csv(tmp_path / "out" / "data-00000-of-00001.csv")
    for found in (table, bt.load(tmp_path / "a").arrow()):
        assert found["price"].to_pylist() == prices
        assert found["exact"].to_pylist()[:2] == exact[:2]


def test_file_k_is_shard_k_and_an_export_goes_on(tmp_path):
    a, out = tmp_path / "a", tmp_path / "out"
    make_dataset(a, sample_table(90), splits={"test": range(20), "train": range(89, 19, -1)})
    assert bt.export(a, out, to="csv", split="test", columns=["name", "id"]) == 20
    kept = {name: os.stat(out / name).st_ino for name in visible_names(out)}
    (out / ".train-00000-of-00002.csv.0.part").touch()  # of a killed export
    assert bt.export(a, out, to="csv", columns=["name", "id"]) == 90
    os.remove(out / "train-00001-of-00002.csv")
    assert bt.export(a, out, to="csv", columns=["name", "id"]) == 90
    assert {name: os.stat(out / name).st_ino for name in kept} == kept
    assert sorted(os.listdir(out)) == [".export.json", *visible_names(out)]
    read = pa.csv.ParseOptions(newlines_in_values=True)
    tables = [pa.csv.read_csv(out / name, parse_options=read) for name in visible_names(out)]
    assert tables[0].column_names == ["name", "id"]
    assert pa.concat_tables(tables)["id"].to_pylist() == ids(a)


def test_a_damaged_shard_ends_an_export_which_goes_on_once_it_is_restored(tmp_path):
    make_dataset(tmp_path / "a", sample_table(90), shards=3)
    shard = tmp_path / "a" / "data-00001-of-00003.tfrecord"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + b"?")
    with pytest.raises(DataError, match=r"data-00001-of-00003\.tfrecord' is damaged"):
        bt.export(tmp_path / "a", tmp_path / "out", to="jsonl")
    assert "data-00001-of-00003.jsonl" not in visible_names(tmp_path / "out")
    shard.write_bytes(whole)
    assert bt.export(tmp_path / "a", tmp_path / "out", to="jsonl") == 90
    assert len(visible_names(tmp_path / "out")) == 3


def test_a_directory_is_for_one_export(tmp_path):
    table = sample_table(9)
    make_dataset(tmp_path / "a", table)
    make_dataset(tmp_path / "b", table.slice(1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(TargetExists, match="full' holds other files: choose another"):
        bt.export(tmp_path / "a", tmp_path / "full", to="csv")
    bt.export(tmp_path / "a", tmp_path / "out", to="csv")
    for name, wanted in [("b", {}), ("a", {"to": "jsonl"}), ("a", {"columns": ["id"]})]:
        with pytest.raises(TargetExists, match="an export of another dataset, format or columns"):
            bt.export(tmp_path / name, tmp_path / "out", **{"to": "csv", **wanted})
    with pytest.raises(UsageError, match="cannot export to 'xml': choose parquet, csv"):
        bt.export(tmp_path / "a", tmp_path / "new", to="xml")
    with pytest.raises(UsageError, match="there is no column 'image' to export"):
        bt.export(tmp_path / "a", tmp_path / "new", to="images")


def test_images_become_the_files_that_they_were(tmp_path):
    images = {f"{name}__{number}": jpeg(number) for name in ("cat", "dog") for number in range(3)}
    write_tree(tmp_path / "in", **images)
    written = bt.write(tmp_path / "in", tmp_path / "a", shards=2)
    assert bt.export(tmp_path / "a", tmp_path / "out", to="images") == 6
    for path in (tmp_path / "in").glob("*/*"):
        same = tmp_path / "out" / "data" / path.relative_to(tmp_path / "in")
        assert same.read_bytes() == path.read_bytes()
    assert bt.write(tmp_path / "out" / "data", tmp_path / "b").content == written.content


def test_names_of_images_never_leave_their_folder_or_hide_each_other(tmp_path):
    rows = {"image": [jpeg(0), jpeg(1), b"?"], "path": ["../..", "/x/.a.jpg", "a/b.jpg"]}
    make_dataset(tmp_path / "a", pa.table(rows), shards=1)
    bt.export(tmp_path / "a", tmp_path / "out", to="images")
    names = ["00000-000000.jpeg", "00000-000001.jpeg", "b.jpg"]
    assert visible_names(tmp_path / "out" / "data") == names
    make_dataset(tmp_path / "b", pa.table({**rows, "label": ["a", "a", ".."]}))
    with pytest.raises(DataError, match=r"label '\.\.', which cannot be the name of a folder"):
        bt.export(tmp_path / "b", tmp_path / "unsafe", to="images")
    make_dataset(tmp_path / "c", pa.table({**rows, "path": ["a.jpg", "b/b.jpg", "c/b.jpg"]}))
    for _ in range(2):
        with pytest.raises(DataError, match=r"2 images have the name 'data/b\.jpg'"):
            bt.export(tmp_path / "c", tmp_path / "met", to="images")
    bt.export(tmp_path / "c", tmp_path / "numbered", to="images", columns=["image"])
    assert len(visible_names(tmp_path / "numbered" / "data")) == 3


def test_the_command_line(tmp_path):
    make_dataset(tmp_path / "a", sample_table(9), splits={"train": range(8), "test": [8]})
    words = ["export", tmp_path / "a", tmp_path / "out", "--to", "csv", "--columns", "id,x"]
    result = run(*words, "--split", "train")
    assert (result.exit_code, result.stderr.strip()[:15]) == (0, "exported 8 rows")
    assert run("export", tmp_path / "a", tmp_path / "out", "--to", "jsonl").exit_code == 2
    assert run("export", tmp_path / "a", tmp_path / "b.jsonl", "--split", "test").exit_code == 0
    assert visible_names(tmp_path / "b.jsonl") == [
        f"test-0000{shard}-of-00002.jsonl" for shard in range(2)
    ]
    for name, given in (("b", "no format"), ("b.txt", "txt")):
        result = run("export", tmp_path / "a", tmp_path / name)
        assert result.exit_code == 2
        assert f"cannot export to {given!r}: choose parquet, csv, jsonl, images" in result.stderr
    result = run(*words, "--split", "train[:2]")
    assert (result.exit_code, "no split 'train[:2]' to export" in result.stderr) == (2, True)
