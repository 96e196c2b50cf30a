"""Splits that hold: shares of each class, numbers of rows, folds, and conditions."""

import collections
import datetime
import itertools
import tempfile

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, OutputWarning, RejectedRows, UsageError
from tests.helpers.effort import WHOLE

SHARES = [{"train": 0.8, "test": 0.2}, {"a": 0.5, "b": 0.1, "c": 0.0, "d": 0.4}, {"fold": 3}]


def shares_of(splits):
    return {f"fold{n}": 1 / 3 for n in range(3)} if "fold" in splits else splits


def rows_of(output):
    """Return every row with its split."""
    names = bt.load(output).splits
    rows = [{**row, "of": name} for name in names for row in bt.load(output, split=name).rows()]
    return pd.DataFrame(rows, dtype=object)


def sizes(manifest):
    return {name: split.examples for name, split in manifest.splits.items()}


@settings(max_examples=40 if WHOLE else 2, deadline=None)
@given(
    groups=st.lists(
        st.tuples(st.sampled_from("aaabbc") | st.none(), st.integers(1, 5)), min_size=1
    ),
    splits=st.sampled_from(SHARES),
    is_grouped=st.booleans(),
)
def test_each_split_has_its_share_of_each_class(groups, splits, is_grouped):
    rows = [
        {"label": label, "user": user, "n": user if is_grouped else user * 10 + number}
        for user, (label, size) in enumerate(groups)
        for number in range(size)
    ]
    with tempfile.TemporaryDirectory() as output:
        schema = pa.schema({"label": pa.string(), "user": pa.int64(), "n": pa.int64()})
        table = pa.Table.from_pylist(rows, schema)
        # Rows of a user are equal: they stay together without a group, too.
        bt.write(table, output, splits=splits, stratify="label", group="user" if is_grouped else ())
        assert bt.verify(output).ok
        counts = collections.Counter((row.label, row.of) for row in rows_of(output).itertuples())
        of_users = rows_of(output).groupby("user")["of"].nunique()
    assert not is_grouped or of_users.max() == 1
    totals = collections.Counter(row["label"] for row in rows)
    assert counts.total() == len(rows)
    for label, (name, share) in itertools.product(totals, shares_of(splits).items()):
        largest = max(size for of, size in groups if of == label) if is_grouped else 1
        assert abs(counts[label, name] - share * totals[label]) <= largest + 1e-9


def test_many_small_classes_fill_a_small_split(tmp_path):
    rows = pa.table({"label": np.repeat(np.arange(300), 4), "n": np.arange(1200)})
    made = bt.write(rows, tmp_path, splits={"train": 0.9, "test": 0.1}, stratify="label")
    assert abs(made.splits["test"].examples - 120) <= 5
    assert set(rows_of(tmp_path).groupby("label").size()) == {4}


RULES = {"splits": "train=0.7,val=0.2,test=0.1", "stratify": "label"}


def test_neither_batches_nor_another_order_change_the_limits(tmp_path):
    rng = np.random.default_rng(1)
    table = pa.table({"label": rng.integers(0, 7, 3000), "n": rng.permutation(3000)})
    other = table.take(rng.permutation(3000))
    one = bt.write(table, tmp_path / "one", **RULES)
    two = bt.write(pa.Table.from_batches(other.to_batches(90)), tmp_path / "two", **RULES)
    assert one.strata == two.strata == bt.load(tmp_path / "two").manifest.strata
    first, second = (rows_of(tmp_path / name).sort_values("n") for name in ("one", "two"))
    assert first["of"].tolist() == second["of"].tolist()


@pytest.mark.slow
def test_workers_write_the_same_bytes(tmp_path):
    table = pa.table({"label": np.arange(3000) % 7, "n": np.arange(3000)})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=500)
    one, two = (
        bt.write(
            tmp_path / "in.parquet",
            tmp_path / f"{workers}",
            **RULES,
            map=dict,
            pipeline_options=[f"--direct_num_workers={workers}"],
        )
        for workers in (1, 2)
    )
    assert (one.strata, one.splits) == (two.strata, two.splits)


@pytest.mark.slow
def test_more_rows_than_are_in_memory_at_once(tmp_path):
    number = 2_300_000
    label = np.arange(number) % 3
    rules = {"splits": {"train": 0.7, "test": 0.3}, "stratify": "label"}
    bt.write({"label": label, "n": np.arange(number)}, tmp_path, **rules)
    test = np.bincount(bt.load(tmp_path, split="test").numpy()["label"])
    assert np.abs(test - 0.3 * np.bincount(label)).max() <= 1


def test_limits_split_later_rows_and_classes_that_they_do_not_know(tmp_path):
    rows = pa.table({"label": ["a", "b", "b"] * 100, "n": np.arange(300)})
    made = bt.write(rows, tmp_path, splits="train=0.8,test=0.2", stratify="label").strata
    hashes = np.random.default_rng(0).integers(0, 2**64, 20_000, np.uint64)
    share = {
        value: (made.assign(hashes, pa.array([value] * 20_000, pa.string())) == 0).mean()
        for value in ("a", "b", "new", None)
    }
    assert share["new"] == share[None] == pytest.approx(0.8, abs=0.01)
    assert [share[one] for one in "ab"] == pytest.approx([0.8] * 2, abs=0.12)
    assert [(one.value, one.rows) for one in made.classes] == [("a", 100), ("b", 200)]


@pytest.mark.parametrize("wanted", [0, 1, 170, 344])
def test_numbers_of_rows_are_exact(tmp_path, wanted):
    rows = {"n": np.arange(344)}
    made = bt.write(rows, tmp_path, splits={"train": wanted, "more": 0, "test": "rest"})
    assert sizes(made) == {"train": wanted, "more": 0, "test": 344 - wanted}
    assert sorted(rows_of(tmp_path)["n"]) == list(range(344))


def test_folds_are_equal_shares(tmp_path):
    rows = {"n": np.arange(100)}
    made = bt.write(rows, tmp_path / "k", splits="fold=5")
    shares = {f"fold{number}": 0.2 for number in range(5)}
    assert made.splits == bt.write(rows, tmp_path / "s", splits=shares).splits


DAYS = pd.DataFrame(
    {
        "day": [datetime.date(2023, 12, 1) + datetime.timedelta(n) for n in range(60)],
        "word": [["a", "b", None][n % 3] for n in range(60)],
        "ok": [n % 4 == 0 for n in range(60)],
    }
)
CONDITIONS = "old=day < DATE '2024-01-01',some=word in ('a', 'b,') or (ok and word = 'b'),last=rest"


def expected_splits():
    word, old = DAYS["word"], DAYS["day"] < datetime.date(2024, 1, 1)
    some = (word == "a") | (DAYS["ok"] & (word == "b"))
    return np.select([old, some], ["old", "some"], "last").tolist()


def test_the_first_condition_that_holds_names_the_split(tmp_path):
    made = bt.write(
        DAYS, tmp_path / "all", splits=CONDITIONS, shards={"old": 2, "some": 1, "last": 1}
    )
    assert made.split_by == "column"
    assert rows_of(tmp_path / "all").sort_values("day")["of"].tolist() == expected_splits()
    # Rows as a function returns them, and rows of a dataset.
    later = {"splits": "no=ok,yes=rest", "map": lambda row: {**row, "ok": not row["ok"]}}
    assert sizes(bt.write(DAYS, tmp_path / "map", **later)) == {"no": 45, "yes": 15}
    copied = bt.write(tmp_path / "all", tmp_path / "again", splits="ok=ok,other=rest")
    assert sizes(copied) == {"ok": 15, "other": 45}


def test_conditions_split_the_rows_of_a_pipeline(tmp_path):
    with bt.pipeline() as root:
        rows = root | beam.Create([{"n": n} for n in range(9)])
        _ = rows | bt.WriteToTFRecord(f"{tmp_path}/beam/", splits="few=n < 4,many=rest")
    assert rows_of(tmp_path / "beam").groupby("of")["n"].apply(sorted).tolist() == [
        [0, 1, 2, 3],
        [4, 5, 6, 7, 8],
    ]


def test_a_row_for_which_no_condition_holds_is_rejected(tmp_path):
    rules = {"splits": {"a": "word = 'a'", "ok": "ok"}, "overwrite": True}
    with pytest.raises(
        RejectedRows, match="no condition of --split holds: end it with a split for"
    ):
        bt.write(DAYS, tmp_path, **rules)
    with pytest.warns(OutputWarning, match="rows rejected"):
        made = bt.write(DAYS, tmp_path, **rules, max_rejects="any")
    assert sizes(made) == {"a": 20, "ok": 10}


def test_examples_and_datasets_are_split_alike(tmp_path):
    rules = {"splits": {"train": 0.7, "test": 0.3}, "stratify": "label", "group": "n"}
    table = pa.table({"label": ["x", "y"] * 50, "n": np.arange(100)})
    first = bt.write(table, tmp_path / "a", **rules)
    again = bt.write(tmp_path / "a", tmp_path / "b", **rules)
    assert (sizes(again), again.strata) == (sizes(first), first.strata)
    assert sizes(first) == {"train": 70, "test": 30}
    counted = bt.write(tmp_path / "a", tmp_path / "c", splits="x=31,y=rest")
    assert sizes(counted) == {"x": 31, "y": 69}


def test_rare_classes_are_named(tmp_path):
    table = pa.table({"label": ["x"] * 8 + ["rare", None], "n": np.arange(10)})
    with pytest.warns(OutputWarning) as caught:
        bt.write(table, tmp_path, splits={"train": 0.5, "test": 0.5}, stratify="label")
    line = "classes of 'label' with fewer rows than the 2 splits are not in each: "
    assert [str(one.message) for one in caught] == [f"{line}None (1 row), 'rare' (1 row)"]


TWO = {"a": 0.5, "b": 0.5}
ROWS = pa.table({"x": [1, 1, 2, 2], "y": ["a", "b", "c", "d"], "z": [[1]] * 4})


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"stratify": "x"}, "--stratify needs shares, as in --split"),
        ({"stratify": "x", "splits": {"a": 1.0}}, "--stratify needs shares"),
        ({"stratify": "x", "splits": "a=2,b=rest"}, "--stratify needs shares"),
        ({"stratify": "x", "splits": "a=x > 1,b=rest"}, "--stratify needs shares"),
        ({"stratify": "x", "split_column": "y"}, "--split-column already says where rows go"),
        ({"stratify": "x", "splits": TWO, "dedup": True}, "--dedup leaves out rows after they are"),
        ({"stratify": "q", "splits": TWO}, "column 'q' of --stratify is not in the rows"),
        ({"stratify": "z", "splits": TWO}, "column 'z' is list"),
        ({"stratify": "y", "splits": TWO, "group": "x"}, "rows of one group, or equal rows, have"),
        ({"splits": "a=5,b=rest"}, "--split asks for 5 rows, but there are 4"),
        ({"splits": "a=5,b=3"}, "numbers of rows in --split need a last split for the rest"),
        ({"splits": "a=rest,b=3"}, "only the last split takes the rest"),
        ({"splits": "a=x > 1,b=0.5"}, "--split has conditions and numbers"),
        ({"splits": "a=x > 1,b=rest", "group": "x"}, "the conditions of --split say where rows go"),
        ({"splits": "a=x + 1 > 1,b=rest"}, "--split: 'x + 1' at character 1 has arithmetic"),
        ({"splits": "a=q > 1,b=rest"}, "column 'q' of --split is not in the input"),
        ({"splits": "a=x > 'a',b=rest"}, "--split compares column 'x' (number) with 'a'"),
        ({"splits": "a=0.7,b=0.7,c=rest"}, "split 'c' has share -0.4"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, rules, message):
    with pytest.raises((UsageError, DataError)) as caught:
        bt.write(ROWS, tmp_path / "out", **rules)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_too_many_classes_are_refused(tmp_path):
    with pytest.raises(DataError, match="column 'n' of --stratify has more than 10,000 values"):
        bt.write({"n": np.arange(10_001)}, tmp_path, splits=TWO, stratify="n")


@pytest.mark.parametrize(
    "step", [bt.AssignSplits, lambda splits: bt.WriteToTFRecord("o/", splits=splits)]
)
def test_steps_of_a_pipeline_name_the_function_that_counts_rows(step):
    with pytest.raises(UsageError, match=r"before: call beam_tfrecord\.write, or give shares"):
        step("train=5,test=rest")
