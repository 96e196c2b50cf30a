"""The whole way, from files to a dataset, judged by TensorFlow and by the bytes on the disk."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import (
    BeamTFRecordError,
    DataError,
    RejectedRows,
    TargetExists,
    UsageError,
    options_named_by,
)
from beam_tfrecord.jobs.run import describe
from beam_tfrecord.jobs.settings import make_settings
from beam_tfrecord.options.jobs import WriteOptions
from beam_tfrecord.testing import SCHEMA, some_rows
from tests.helpers import warm
from tests.helpers.datasets import ids, read_examples, sample_table, shard_hashes, write_parquet
from tests.sources.behaviour import CASES
from tests.sources.made_images import jpeg


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    return write_parquet(tmp_path_factory.mktemp("input"), sample_table(1000), files=3)


@pytest.fixture(scope="module")
def both_orders(parquet, tmp_path_factory):
    """Return datasets that no test changes, by whether they are shuffled."""
    top = tmp_path_factory.mktemp("orders")
    for shuffle in (True, False):
        bt.write(parquet, top / f"{shuffle}", shuffle=shuffle)
    return {shuffle: top / f"{shuffle}" for shuffle in (True, False)}


def test_splits_have_their_shares(parquet, tmp_path):
    manifest = bt.write(parquet, tmp_path, splits={"train": 0.8, "test": 0.2}, shards=5)
    assert 700 < manifest.splits["train"].examples == len(ids(tmp_path, "train")) < 900
    assert (manifest.examples, len(manifest.shards)) == (1000, 5)


def test_the_directory_holds_what_is_documented_and_nothing_else(parquet, tmp_path):
    bt.write(parquet, tmp_path, splits="train=0.5,test=0.5", shards=2)
    assert sorted(os.listdir(tmp_path)) == [
        "_index",
        "job.json",
        "manifest.json",
        "schema.json",
        "schema.pbtxt",
        "test-00000-of-00001.tfrecord",
        "train-00000-of-00001.tfrecord",
    ]
    indexes = sorted(os.listdir(tmp_path / "_index"))
    assert indexes == ["idx-test-00000-of-00001", "idx-train-00000-of-00001"]


def test_source_order_is_the_order_of_the_input(parquet, both_orders, tmp_path):
    assert ids(both_orders[False]) == list(range(1000))
    bt.write(parquet, tmp_path / "many", shuffle=False, shards=7)
    assert ids(tmp_path / "many") == list(range(1000))
    assert len(list((tmp_path / "many").glob("*.tfrecord"))) == 7
    bt.write(parquet, tmp_path / "split", shuffle=False, splits="a=0.5,b=0.5")
    assert ids(tmp_path / "split", "a") == sorted(ids(tmp_path / "split", "a"))
    assert sorted(ids(tmp_path / "split")) == list(range(1000))


def test_source_order_in_one_pass_cuts_shards_by_size(parquet, tmp_path):
    manifest = bt.write(parquet, tmp_path, shuffle=False, shard_size="10kB")
    assert ids(tmp_path) == list(range(1000))
    sizes = [shard.bytes for shard in manifest.shards]
    assert len(sizes) > 3
    assert max(sizes) <= 12_500


def test_shuffled_order_is_not_the_order_of_the_input(both_orders):
    order = np.array(ids(both_orders[True]))
    assert sorted(order) == list(range(1000))
    # Spearman's correlation of 1,000 shuffled ranks is within 0.16 but for one time in 10^6.
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.16


def test_seed_changes_order_and_splits(parquet, tmp_path):
    bt.write(parquet, tmp_path / "a", splits="train=0.5,test=0.5")
    bt.write(parquet, tmp_path / "b", splits="train=0.5,test=0.5", seed=1)
    assert ids(tmp_path / "a") != ids(tmp_path / "b")
    assert set(ids(tmp_path / "a", "train")) != set(ids(tmp_path / "b", "train"))


@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "source"])
def test_gzip_holds_the_same_records(parquet, both_orders, tmp_path, shuffle):
    plain = bt.Manifest.load(both_orders[shuffle])
    packed = bt.write(parquet, tmp_path / "packed", shuffle=shuffle, compression="gzip")
    assert ids(both_orders[shuffle]) == ids(tmp_path / "packed")
    assert [s.xxh64 for s in plain.shards] == [s.xxh64 for s in packed.shards]
    assert packed.shards[0].path == "data-00000-of-00001.tfrecord.gz"
    assert (tmp_path / "packed" / packed.shards[0].path).read_bytes()[:10].hex() == (
        "1f8b08000000000000ff"
    )


def test_a_row_without_a_split_is_a_reject(tmp_path):
    table = pa.table({"id": [0, 1, 2], "part": ["train", None, "train"]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="split column 'part' has no value"):
        bt.write(tmp_path / "t.parquet", tmp_path / "out", split_column="part")
    assert not (tmp_path / "out" / "manifest.json").exists()
    bt.write(tmp_path / "t.parquet", tmp_path / "out", split_column="part", max_rejects=1)
    assert sorted(ids(tmp_path / "out")) == [0, 2]
    rejects = pq.read_table(tmp_path / "out" / "rejects" / "rejects-00000.parquet").to_pylist()
    assert [(r["unit"], r["row"], r["column"], r["code"]) for r in rejects] == [
        ("t.parquet", 1, "part", "no-split")
    ]


def test_no_rows_give_a_manifest_without_shards(tmp_path):
    pq.write_table(sample_table(0), tmp_path / "t.parquet")
    for shuffle in (True, False):
        out = tmp_path / f"out-{shuffle}"
        manifest = bt.write(tmp_path / "t.parquet", out, shuffle=shuffle)
        assert manifest.examples == 0
        assert manifest.shards == ()
        assert manifest.schema.names == ("id", "x", "name")


@pytest.mark.slow
def test_one_huge_row(tmp_path):
    huge = os.urandom(1_000_000) * 100
    table = pa.table({"id": [0, 1, 2], "blob": pa.array([b"a", huge, b"c"], pa.binary())})
    pq.write_table(table, tmp_path / "t.parquet")
    for shuffle in (True, False):
        out = tmp_path / f"out-{shuffle}"
        bt.write(tmp_path / "t.parquet", out, shuffle=shuffle)
        blobs = {
            example.features.feature["id"].int64_list.value[0]: (
                example.features.feature["blob"].bytes_list.value[0]
            )
            for example in read_examples(out)
        }
        assert blobs == {0: b"a", 1: huge, 2: b"c"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "", r"a.csv' is empty: check the program that writes it"),
        ("a.json", "", r"a.json' is empty: check the program that writes it"),
        (
            "a.csv",
            "a;b\n1;2\n",
            "the only column is named 'a;b': pass .*delimiter.';' to divide it",
        ),
    ],
)
def test_input_that_cannot_be_meant_publishes_nothing(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(BeamTFRecordError, match=message):
        bt.write(tmp_path / name, tmp_path / "out")
    (tmp_path / name).write_text("a,b\n1,2\n" if name == "a.csv" else '{"a": 1, "b": 2}')
    log = logging.getLogger("apache_beam")
    before = log.level
    assert bt.write(tmp_path / name, tmp_path / "out").examples == 1
    assert log.level == before, "Beam's log is silent during a job only"


def test_an_output_inside_the_input_is_warned_of(tmp_path, caplog):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n")
    bt.write(tmp_path / "in", tmp_path / "in" / "out")
    assert "the output is inside the input" in caplog.text


@pytest.mark.slow
def test_no_rows_replace_no_dataset(parquet, tmp_path):
    bt.write(parquet, tmp_path / "out")
    kept = (tmp_path / "out" / "manifest.json").read_bytes()
    (tmp_path / "empty.csv").write_text("id\n")
    for inputs, filtered in ((tmp_path / "empty.csv", None), (parquet, "id < 0")):
        with pytest.raises(TargetExists, match="no rows are left to replace the dataset in"):
            bt.write(inputs, tmp_path / "out", overwrite=True, filter=filtered)
    assert (tmp_path / "out" / "manifest.json").read_bytes() == kept
    assert bt.verify(tmp_path / "out").ok


def test_another_dataset_is_only_replaced_when_asked(parquet, tmp_path):
    bt.write(parquet, tmp_path, shards=8)
    (tmp_path / "notes.txt").write_text("mine")
    before = shard_hashes(tmp_path)
    with pytest.raises(TargetExists, match="already holds another dataset: pass --overwrite"):
        bt.write(parquet, tmp_path, shards=2)
    assert shard_hashes(tmp_path) == before
    bt.write(parquet, tmp_path, shards=2, overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "_index",
        "data-00000-of-00002.tfrecord",
        "data-00001-of-00002.tfrecord",
        "idx-data-00000-of-00002",
        "idx-data-00001-of-00002",
        "job.json",
        "manifest.json",
        "notes.txt",
        "schema.json",
        "schema.pbtxt",
    ]
    assert sorted(ids(tmp_path)) == list(range(1000))


def test_a_dataset_in_the_way_is_told_by_its_differences(tmp_path):
    source, out = tmp_path / "a.csv", tmp_path / "out"
    source.write_text("a\n1\n2\n")
    null = {"null_words": ["?"]}
    bt.write(source, out, splits={"train": 0.5, "test": 0.5}, source_options=null)
    with pytest.raises(TargetExists) as error:
        bt.write(source, out, splits="train=0.6,test=0.4", shuffle=False)
    assert error.value.message.endswith(
        " (different: --split: train=0.5,test=0.5 there, train=0.6,test=0.4 now; "
        "--null: ? there, unset now; --no-shuffle: unset there, set now)"
    )
    source.write_text("a\n1\n2\n3\n")
    with pytest.raises(TargetExists, match=r" \(different: input edited: a\.csv\)$"):
        bt.write(source, out, splits="train=0.5,test=0.5", source_options=null)


def test_files_that_were_added_and_removed_are_told_apart(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "in" / name).write_text("a\n1\n")
    bt.write(tmp_path / "in", tmp_path / "out")
    (tmp_path / "in" / "a.csv").write_text("a\n1\n2\n")
    (tmp_path / "in" / "b.csv").rename(tmp_path / "in" / "c.csv")
    differences = "input edited: a.csv; input removed: b.csv; input added: c.csv"
    with pytest.raises(TargetExists, match=rf"\(different: {differences}\)$"):
        bt.write(tmp_path / "in", tmp_path / "out")


def test_a_plan_foresees_what_is_at_the_output(parquet, tmp_path, caplog):
    out = str(tmp_path / "out")
    bt.plan(parquet, out)
    assert caplog.messages == []
    bt.write(parquet, out)
    caplog.clear()
    bt.plan(parquet, out, overwrite=True, seed=1)
    assert caplog.messages == []
    bt.plan(parquet, out)
    describe(make_settings(WriteOptions(parquet, out, seed=1)))
    same, other = caplog.messages
    assert same == f"{out!r} already holds this dataset: there is nothing to do"
    assert other.startswith(f"{out!r} already holds another dataset: pass --overwrite")
    assert other.endswith("(different: --seed: unset there, 1 now)")


@pytest.mark.parametrize("function", [None, dict])
def test_columns_without_values_are_named_in_one_line(tmp_path, recwarn, function):
    empty = (None, [], {}, [[]], {"a": [], "b": None}, [{}])
    row = {"id": 1} | {f"f{number}": empty[number % len(empty)] for number in range(30)}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    bt.write(tmp_path / "t.jsonl", tmp_path / "out", map=function)
    assert bt.load(tmp_path / "out")[0] == {"id": 1}
    (line,) = [str(one.message) for one in recwarn if "left out" in str(one.message)]
    assert line.startswith("30 columns left out (no value in any row")
    assert line.endswith(" and 20 more")


def test_limit_reads_the_first_rows(parquet, tmp_path):
    bt.write(parquet, tmp_path / "rows", limit=123)
    assert sorted(ids(tmp_path / "rows")) == list(range(123))
    bt.write(parquet, tmp_path / "several", limit=3, map=variants, columns=["id"], shuffle=False)
    assert ids(tmp_path / "several") == [row for row in range(3) for _ in range(4)]


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("kind", sorted(set(CASES) - {"images", "numpy"}))
def test_columns_choose_among_those_of_a_schema(kind, tmp_path):
    case = CASES[kind]
    path = tmp_path / f"x{case.suffix}"
    case.write(path, rows := [case.held(row) for row in some_rows(20)])
    schema = bt.Schema.from_arrow(SCHEMA)
    bt.write(path, tmp_path / "out", schema=schema, columns=["name", "id"], shuffle=False)
    expected = [{"name": row["name"], "id": row["id"]} for row in rows]
    assert list(bt.load(tmp_path / "out").rows()) == expected
    with pytest.raises(UsageError, match="column 'name' is not in the schema: the columns are id"):
        bt.write(path, tmp_path / "o", schema=schema.select(["id"]), columns=["name", "id"])


def test_temporary_files_of_a_failed_job_are_gone(parquet, tmp_path):
    with pytest.raises(UsageError, match="column 'nope' of --key is not in the rows"):
        bt.write(parquet, tmp_path / "out", key=["nope"])
    assert os.listdir(tmp_path / "out") == []


def test_job_json_tells_of_the_run(parquet, tmp_path):
    manifest = bt.write(parquet, tmp_path, compression="gzip")
    job = json.loads((tmp_path / "job.json").read_text())
    assert job["runner"] == "direct"
    assert job["rows_read"] == 1000
    shard = manifest.shards[0].path
    assert job["stored_bytes"] == {shard: (tmp_path / shard).stat().st_size}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 2, "shard_size": "1MB"}, "exclude each other"),
        ({"seed": "x"}, "seed 'x' is out of range"),
        ({"columns": ["nope"]}, "nope"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_that_do_not_fit(parquet, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        bt.write(parquet, tmp_path / "out", **options)


@pytest.mark.parametrize(
    ("name", "function", "cure"),
    [
        ("a.csv", bt.write, r"name it '.*/a/', or run export --to csv for a dataset as CSV$"),
        ("a.v1.PARQUET", bt.extract, r"name it '.*/a\.v1/'$"),
        ("a.parquet", bt.write, "name it '.*/a/', or run extract for Parquet files$"),
    ],
)
def test_an_output_has_no_name_of_a_file(parquet, tmp_path, name, function, cure):
    with pytest.raises(UsageError, match=f"^the output is a directory: {cure}"):
        function(parquet, tmp_path / name)
    function(parquet, f"{tmp_path / name}/", limit=1)


def test_an_output_that_is_a_file(parquet, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="is a file: give a directory"):
        bt.write(parquet, tmp_path / "out")


def drop(row: dict) -> None:
    return None


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("text", "function", "line"),
    [
        ("id\n", None, "the input holds no rows: the output has no files of data"),
        (
            "id\n0\n1\n",
            drop,
            "no rows are left: a filter, a sample or the map function left out 2 of 2 rows",
        ),
    ],
)
def test_an_empty_output_has_a_reason(tmp_path, recwarn, text, function, line):
    (tmp_path / "a.csv").write_text(text)
    bt.write(tmp_path / "a.csv", tmp_path / "out", map=function)
    assert [str(one.message) for one in recwarn if "no rows" in str(one.message)] == [line]


def test_words_that_decide_a_type_are_warned_of(tmp_path, recwarn):
    (tmp_path / "a.csv").write_text("hp,sex\n130,F\n165,NA\n?,M\n")
    bt.write(tmp_path / "a.csv", tmp_path / "out")
    assert [str(one.message) for one in recwarn if "--null" in str(one.message)] == [
        "hp: text because of '?' in a.csv:4: pass --null '?' if it means missing, or "
        "--types hp=string",
        "sex: 'NA' in a.csv:3 is text: if it means missing, pass --null 'NA'",
    ]


def test_writing_never_imports_tensorflow(parquet, tmp_path):
    script = (
        "import sys, beam_tfrecord as bt\n"
        "bt.write(sys.argv[1], sys.argv[2], splits='a=0.5,b=0.5', compression='gzip')\n"
        "sys.exit('tensorflow' in sys.modules)\n"
    )
    command = [*warm.program(), "-c", script, parquet, str(tmp_path / "out")]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])


def variants(row):
    return [{**row, "variant": number} for number in range(4)]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("options", "is_torn"),
    [({}, True), ({"group": "id"}, False), ({"key": "id"}, False), ({"map": None}, False)],
    ids=str,
)
def test_variants_of_a_row_in_two_splits_get_a_warning(
    parquet, tmp_path, recwarn, options, is_torn
):
    options = {"map": variants, "splits": {"a": 0.5, "b": 0.5}, **options}
    with options_named_by("flag"):
        bt.write(parquet, tmp_path / "out", **options)
    a, b = (set(ids(tmp_path / "out", split)) for split in "ab")
    assert bool(a & b) == is_torn
    expected = [
        f"{len(a & b)} rows became several that lie in different splits, because the bytes of an "
        "example decide its split: hold them together by a column with --group, or by AssignSplits "
        "before MapRows"
    ]
    assert [str(one.message) for one in recwarn] == expected * is_torn


def test_nan_of_exact_numbers_gets_a_warning(tmp_path, recwarn):
    seen = bt.write({"x": np.array([1.0, np.nan, 2.0])}, tmp_path / "out").schema["x"]
    assert (seen.store, seen.observed.nan) == ("bytes", 1)
    (warning,) = recwarn
    assert "in 'x' (1 value)" in str(warning.message)


@pytest.mark.slow
def test_nan_is_counted_and_gets_a_warning(tmp_path, recwarn):
    nan = float("nan")
    x = [nan if row % 3 == 0 else row / 2 for row in range(100)]
    table = pa.table({"x": x, "y": [1.0] * 100, "v": [[value, nan] for value in x]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    with options_named_by("flag"):
        seen = bt.write(tmp_path / "a.parquet", tmp_path / "out").schema
    counts = {of.name: of.observed.nan for of in seen.features if of.observed}
    assert counts == {"x": 34, "y": 0, "v": 134}
    assert [str(one.message) for one in recwarn] == [
        "NaN, which is not null, and from which no model learns, in 'x' (34 values): "
        '--filter "x = x" leaves out rows with NaN in x, a step such as impute fills it, and '
        "docs/types.md says how to make it null"
    ]
    # The remedy that the warning names, and a copy of the records.
    recwarn.clear()
    left = bt.write(tmp_path / "a.parquet", tmp_path / "left", columns=["x"], filter="x = x")
    assert left.examples == 66
    assert not recwarn
    assert bt.write(tmp_path / "out", tmp_path / "copy", shards=2).schema == seen
    assert len(recwarn) == 1


@pytest.mark.slow
def test_structs_of_nulls_are_counted_and_get_a_warning(tmp_path, recwarn):
    rows = [{"p": {"a": None, "b": None}}, {"p": None}, {"p": {"a": 1, "b": None}}] * 20
    struct = pa.struct({"a": pa.int64(), "b": pa.string()})
    pq.write_table(pa.Table.from_pylist(rows, pa.schema({"p": struct})), tmp_path / "a.parquet")
    bt.write(tmp_path / "a.parquet", tmp_path / "out", shuffle=False)
    seen = bt.Manifest.load(tmp_path / "out").schema["p"].observed
    assert (seen.missing, seen.null_structs) == (40, 20)
    assert [str(one.message) for one in recwarn] == [
        "structs whose fields are all null come back as null structs, in 'p' (20 rows): to tell "
        "them apart, add a field that is never null, such as is_known"
    ]
    assert [row["p"] for row in bt.load(tmp_path / "out")][:3] == [None, None, rows[2]["p"]]
    assert bt.verify(tmp_path / "out").ok


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    ("options", "remarks"),
    [
        ({"group": "g"}, ["--group has no effect without --split"]),
        (
            {"seed": 7, "shuffle": False},
            ["--seed has no effect with --no-shuffle unless there is a --split"],
        ),
        (
            {"shards": 5000},
            ["there are 200 shards instead of 5,000, because the dataset has only 200 rows"],
        ),
        (
            {"splits": "a=0.7,b=0.3", "group": "g"},
            ["no row is in split 'a': rows with equal --group columns stay together"],
        ),
        ({"splits": "a=0.999999,b=1e-6"}, ["no row is in split 'b'"]),
        ({"splits": "a=0.5,b=0.5", "group": "id"}, []),
    ],
)
def test_settings_of_no_or_another_effect_are_remarked_on(options, remarks, tmp_path, recwarn):
    (tmp_path / "a.csv").write_text("id,g\n" + "".join(f"{i},x\n" for i in range(200)))
    with options_named_by("flag"):
        bt.write(tmp_path / "a.csv", tmp_path / "out", **options)
    assert [str(one.message) for one in recwarn] == remarks


@pytest.mark.slow
def test_no_seed_is_seed_0(tmp_path):
    rows = [{"x": number} for number in range(20)]
    none, zero = (
        bt.write(rows, tmp_path / str(seed), splits="a=0.5,b=0.5", sample=0.5, **options)
        for seed in (None, 0)
        for options in [{"seed": seed, "sample_seed": seed}]
    )
    assert none.content == zero.content
    assert none.splits == zero.splits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "data"), [("a.csv", b"x\n1\n"), ("a.jpg", jpeg())], ids=["csv", "images"]
)
def test_job_json_counts_the_files_that_a_directory_hides(tmp_path, read, data):
    (tmp_path / "in" / "below").mkdir(parents=True)
    for name in (f"below/{read}", "b.json", "c.json", "below/part-0"):
        (tmp_path / "in" / name).write_bytes(data)
    bt.write(tmp_path / "in", tmp_path / "out")
    job = json.loads((tmp_path / "out" / "job.json").read_text())
    assert job["skipped_files"] == {".json": 2, "without a suffix": 1}


def test_a_function_that_fails_for_all_rows_is_what_the_error_says(tmp_path):
    with pytest.raises(RejectedRows, match=r"(?s)2 of 2 rows made the map function fail.*KeyError"):
        bt.write(
            {"x": [1, 2]}, tmp_path, map=lambda row: {**row, "fold": row["y"]}, split_column="fold"
        )
