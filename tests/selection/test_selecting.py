"""Jobs that select rows: every kind of source, what is counted, and what does not move."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import UsageError
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import with_selection
from beam_tfrecord.sources.choose import make_source
from beam_tfrecord.testing import some_rows
from tests.helpers import warm
from tests.helpers.reading import rows_by_place
from tests.sources.behaviour import CASES
from tests.sources.made_sql import make_database

SPLITS = {"a": 0.5, "b": 0.5}
FILTER = "id > 20 and (name like '%a%' or share is null) and not id between 50 and 60"


def matches(row):
    """Return what `FILTER` says of a row."""
    if row["id"] is None or row["id"] <= 20 or 50 <= row["id"] <= 60:
        return False
    return row["share"] is None or "a" in (row["name"] or "")


def dataset_rows(directory, split=None):
    dataset = bt.load(directory, split=split) if split else bt.load(directory)
    return list(dataset.rows())


def read_job(directory):
    return json.loads((directory / "job.json").read_text())


@pytest.fixture
def table(tmp_path):
    rows = [{"n": n, "part": n % 5, "text": f"t{n}"} for n in range(3000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet", row_group_size=250)
    return tmp_path / "x.parquet"


@pytest.mark.parametrize("kind", sorted(CASES))
def test_every_kind_of_file_has_the_filter(kind, tmp_path, monkeypatch):
    case = CASES[kind]
    case.use_small_units(monkeypatch)
    rows = [case.held(row) for row in some_rows(300)]
    case.write(tmp_path / f"x{case.suffix}", rows)
    # NumPy files have no nulls, so there are no null shares.
    source = with_selection(case.open(tmp_path), make_selection(filter=FILTER))
    found = [row for batch in source.batches(batch_rows=17) for row in batch.rows()]
    assert found == [row for row in rows if matches(row)]
    assert 5 < len(found) < 200
    source = with_selection(case.open(tmp_path, columns=["name"]), make_selection(filter=FILTER))
    names = [row for batch in source.batches() for row in batch.rows()]
    assert names == [{"name": row["name"]} for row in found]
    # Rows keep their numbers.
    every = rows_by_place(case.open(tmp_path))
    selection = make_selection(filter=FILTER, sample=0.7)
    places = rows_by_place(with_selection(case.open(tmp_path), selection))
    assert 3 < len(places) < 200
    assert places == {place: every[place] for place in places}


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_filter_moves_no_row(table, tmp_path, shuffle):
    options = {"splits": SPLITS, "group": "n", "seed": 5, "shuffle": shuffle}
    bt.write(table, tmp_path / "all", **options)
    bt.write(table, tmp_path / "some", **options, filter="part in (1, 3)", sample="60%")
    kept = {row["n"] for row in dataset_rows(tmp_path / "some")}
    assert 600 < len(kept) < 840
    assert all(n % 5 in (1, 3) for n in kept)
    for split in SPLITS:
        before = [row for row in dataset_rows(tmp_path / "all", split) if row["n"] in kept]
        assert dataset_rows(tmp_path / "some", split) == before


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "a longer text than in a view"], pa.string_view()),
        pa.array([b"a", None, b"b"], pa.binary_view()),
        pa.array([[b"a"], None, [b"b"]], pa.list_(pa.binary_view())),
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6.0).reshape(3, 2)),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()),
        pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        pa.nulls(3),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_columns_of_every_type_pass_a_filter(column, tmp_path):
    pq.write_table(pa.table({"c": column, "x": [1, 2, 3]}), tmp_path / "x.parquet")
    every = [row for batch in bt.ReadFromParquet(tmp_path).batches() for row in batch.rows()]
    reader = bt.ReadFromParquet(tmp_path, filter="x <> 2 and (c is null or c is not null)")
    found = [row for batch in reader.batches() for row in batch.rows()]
    assert repr(found) == repr([every[0], every[2]])


def test_the_map_sees_the_rows_that_are_left(table, tmp_path):
    def double(row: dict) -> dict:
        assert "part" not in row
        return {"m": row["n"] * 2}

    bt.write(table, tmp_path / "out", filter="part = 1 and n < 20", columns=["n"], map=double)
    assert sorted(row["m"] for row in dataset_rows(tmp_path / "out")) == [2, 12, 22, 32]


def test_types_are_those_of_all_rows(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,1\n2,1.5\n3,x\n")
    bt.write(tmp_path / "x.csv", tmp_path / "out", filter="a < 2")
    (row,) = dataset_rows(tmp_path / "out")
    assert row == {"a": 1, "b": "1"}


def test_rows_are_rejected_before_the_filter(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,1\n2\n3,3\n")
    out = tmp_path / "out"
    found = bt.write(tmp_path / "x.csv", out, filter="a > 2", max_rejects=1)
    assert (found.examples, found.rejects["rows"], read_job(out)["rows_read"]) == (1, 1, 3)
    with pytest.raises(bt.BeamTFRecordError, match=r"x\.csv:3"):
        bt.write(tmp_path / "x.csv", tmp_path / "strict", filter="a > 2")


def test_floats_that_a_schema_rounds_compare_as_the_file_has_them(tmp_path):
    (tmp_path / "x.csv").write_text("a\n0.1\n0.5\n")
    schema = bt.Schema.from_arrow(pa.schema({"a": pa.float32()}))
    bt.write(tmp_path / "x.csv", tmp_path / "out", filter="a = 0.1", schema=schema)
    assert bt.load(tmp_path / "out").manifest.examples == 1


@pytest.mark.slow
def test_a_database_has_the_filter_besides_where(tmp_path):
    declared = "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT)"
    rows = [(n, "aB"[n % 2]) for n in range(1, 201)]
    path = make_database(tmp_path / "x.db", declared, rows=rows)
    options = {"table": "t", "splits": SPLITS, "group": "id"}
    bt.write(path, tmp_path / "all", **options)
    bt.write(
        path, tmp_path / "some", **options, where="id > 100", filter="name = 'a'", columns=["id"]
    )
    for split in SPLITS:
        before = [row["id"] for row in dataset_rows(tmp_path / "all", split)]
        found = [row["id"] for row in dataset_rows(tmp_path / "some", split)]
        assert found == [n for n in before if n > 100 and n % 2 == 0]
    assert read_job(tmp_path / "some")["rows_read"] == 100


@pytest.mark.slow
def test_a_sample_of_rows_without_numbers_is_refused(tmp_path):
    declared = "CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID"
    rows = [(f"{n:03}",) for n in range(200)]
    path = make_database(tmp_path / "x.db", declared, rows=rows)
    with pytest.raises(UsageError, match="--sample needs rows with numbers"):
        bt.write(path, tmp_path / "out", table="t", sample="50%")
    found = bt.write(path, tmp_path / "out", table="t", sample="50%", shuffle=False)
    assert 60 < found.examples < 140


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "nn > 1"}, "column 'nn' of --filter is not in the input: did you mean 'n'"),
        ({"filter": "nn > 1", "columns": ["n"]}, "column 'nn' is not in the input: did you mean"),
        ({"filter": "text > 1"}, "column 'text' (text) with 1"),
        ({"filter": "n >"}, "is not SQL"),
        ({"sample": "0%"}, "--sample '0%' is not above 0 and at most 1, or 100%"),
        ({"sample": 1.5}, "is not above 0 and at most 1"),
        ({"sample": "some"}, "is not a share: pass 1% or 0.01"),
        ({"sample": "nan"}, "is not a share"),
        ({"sample": 0.5, "sample_seed": -1}, "is out of range: choose one from 0 to 2^64 - 1"),
    ],
)
def test_wrong_options_are_refused(table, tmp_path, options, message):
    for function in (bt.write, bt.plan, bt.extract):
        with pytest.raises(UsageError) as raised:
            function(table, tmp_path / "out", **options)
        assert message in str(raised.value)
        assert not list((tmp_path / "out").glob("*.tfrecord"))
        if function is bt.plan and "columns" in options:
            break


def test_csv_refuses_a_wrong_type_before_anything_is_written(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,x\n")
    with pytest.raises(UsageError, match=r"column 'b' \(text\) with 1: quote the literal"):
        bt.write(tmp_path / "x.csv", tmp_path / "out", filter="b = 1")
    schema = bt.Schema.from_arrow(pa.schema({"a": pa.int64()}))
    with pytest.raises(UsageError, match="column 'b' of --filter is not in --schema"):
        bt.write(tmp_path / "x.csv", tmp_path / "out", filter="b = 'x'", schema=schema)


def test_the_limit_counts_after_filter_and_sample(table, tmp_path):
    options = {"filter": "part = 1", "sample": 0.5, "shuffle": False}
    bt.write(table, tmp_path / "all", **options)
    bt.write(table, tmp_path / "some", **options, limit=7)
    assert dataset_rows(tmp_path / "some") == dataset_rows(tmp_path / "all")[:7]
    assert bt.extract(table, tmp_path / "stage", filter="part = 1", limit=7).rows == 7


def test_extract_has_the_same_rows(table, tmp_path):
    found = bt.extract(table, tmp_path / "stage", filter="part = 1", sample="50%", columns=["n"])
    stage = pa.concat_tables(map(pq.read_table, sorted((tmp_path / "stage").glob("*.parquet"))))
    bt.write(table, tmp_path / "out", filter="part = 1", sample="50%", columns=["n"], shuffle=False)
    assert stage.to_pylist() == dataset_rows(tmp_path / "out")
    assert found.rows == stage.num_rows
    assert read_job(tmp_path / "stage")["rows_read"] == 3000


@pytest.mark.slow
def test_preprocessing_has_the_filter(table, tmp_path):
    if sys.platform != "linux":
        pytest.skip("tensorflow-transform has no wheel")
    pytest.importorskip("tensorflow_transform")
    options = {"step": ["minmax=n"], "columns": ["n"], "filter": "part = 0"}
    bt.write(table, tmp_path / "out", splits={"train": 1.0}, **options)
    found = sorted(row["n"] for row in dataset_rows(tmp_path / "out"))
    assert (len(found), found[0], found[-1]) == (600, 0, 1)


@pytest.mark.slow
def test_identity_covers_what_is_selected_and_nothing_else(table, tmp_path):
    def fingerprint(**options):
        return bt.write(table, tmp_path / "out", overwrite=True, **options).fingerprint

    plain = fingerprint()
    assert fingerprint(sample=1.0) == fingerprint(sample="100%", sample_seed=3) == plain
    one = fingerprint(filter="n > 5 AND part = 1")
    assert one == fingerprint(filter='(5 < n) and "part"=1') != plain
    assert len({plain, one, fingerprint(sample="1%"), fingerprint(sample="1%", sample_seed=1)}) == 4
    assert fingerprint(sample="1%") == fingerprint(sample=0.01)


@pytest.mark.slow
def test_the_summary_and_the_dry_run_name_the_filter(table, tmp_path):
    run = CliRunner()
    words = [str(table), str(tmp_path / "out"), "--filter", "n < 100"]
    shown = run.invoke(cli, ["write", *words, "--dry-run"]).output
    assert "setting: --filter n < 100" in shown
    assert "not read: 2,750 rows" in shown
    assert "wrote 100 of 3,000 rows" in run.invoke(cli, ["write", *words]).output
    stage = [str(table), str(tmp_path / "stage"), "--filter", "n < 100"]
    assert "extracted 100 of 3,000 rows" in run.invoke(cli, ["extract", *stage]).output


@pytest.mark.slow
def test_a_pipeline_has_the_filter(table, tmp_path):
    with bt.pipeline() as root:
        read = root | bt.ReadFromParquet(table, filter="part = 1", columns=["n"])
        _ = read | bt.WriteToTFRecord(tmp_path / "out")
    assert sorted(row["n"] for row in dataset_rows(tmp_path / "out")) == [*range(1, 3000, 5)]
    with pytest.raises(TypeError, match="filtr"):
        bt.ReadFromParquet(table, filtr="part = 1")


def test_workers_need_no_parser(table):
    source = with_selection(
        make_source(str(table)), make_selection(filter="n < 5 and text like 't%'")
    )
    code = f"""
import pickle, sys
source = pickle.loads({pickle.dumps(source.to_send()[0])!r})
assert sum(batch.num_rows for batch in source.batches()) == 5
assert "sqlglot" not in sys.modules
"""
    subprocess.run([*warm.program(), "-c", code], check=True)


def sampled(share, seed=0):
    source = make_source(str(sampled.path))
    found = with_selection(source, make_selection(sample=share, sample_seed=seed)).batches()
    return np.concatenate([batch.data.column("n").to_numpy() for batch in found])


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "x.parquet"
    pq.write_table(pa.table({"n": np.arange(100_000)}), path, row_group_size=10_000)
    sampled.path = path
    return path


def test_a_sample_has_its_share_and_smaller_ones_are_part_of_larger(many):
    one, two, ten = (set(sampled(share).tolist()) for share in ("1%", "2%", "0.1"))
    assert one < two < ten
    # Within five standard deviations of a binomial distribution.
    assert abs(len(one) - 1000) < 5 * 31.5
    assert abs(len(ten) - 10_000) < 5 * 94.9
    other = set(sampled("10%", seed=1).tolist())
    assert abs(len(ten & other) - 1000) < 5 * 31.5
    # Evenly along the input: chi-square over 10 parts, 99.99 % quantile of 9 degrees of freedom.
    counts = np.histogram(list(ten), bins=10, range=(0, 100_000))[0]
    assert ((counts - len(ten) / 10) ** 2 / (len(ten) / 10)).sum() < 33.7


def test_a_sample_is_independent_of_splits_and_order(many, tmp_path):
    chosen = set(sampled("50%").tolist())
    bt.write(many, tmp_path / "out", splits={"a": 0.5, "b": 0.5}, seed=0)
    in_a = [row["n"] for row in dataset_rows(tmp_path / "out", "a")]
    share = sum(n in chosen for n in in_a) / len(in_a)
    assert abs(share - 0.5) < 5 * 0.5 / len(in_a) ** 0.5
    first = sum(n in chosen for n in in_a[:10_000])
    assert abs(first - 5000) < 5 * 50
