"""Steps as values, and the one line that a wrong one gets before any data is read."""

import json

import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.preprocess.request import make_request
from beam_tfrecord.preprocess.steps import (
    Step,
    check_steps,
    load_steps,
    parse_step,
    steps_from_json,
)

SCHEMA = pa.schema(
    {
        "fare": pa.float64(),
        "seats": pa.int32(),
        "city": pa.string(),
        "tags": pa.list_(pa.string()),
        "box": pa.struct({"x": pa.int32()}),
        "void": pa.null(),
    }
)


def test_three_ways_to_write_a_step(tmp_path):
    step = Step("impute", ("fare", "tip"), {"how": "median"})
    as_json = {"op": "impute", "columns": ["fare", "tip"], "how": "median"}
    (tmp_path / "steps.json").write_text(json.dumps([as_json]))
    assert parse_step("impute=fare,tip:how=median") == step
    assert steps_from_json([as_json]) == load_steps(str(tmp_path / "steps.json")) == (step,)
    assert step.to_json() == as_json
    assert str(step) == "impute=fare,tip:how=median"


def test_typed_options_become_numbers_and_lists():
    assert parse_step("clip=fare:low=0:high=2.5").options == {"low": 0, "high": 2.5}
    assert parse_step("bucketize=fare:boundaries=[1, 2]").options == {"boundaries": [1, 2]}
    assert parse_step("impute=city:value=none").options == {"value": "none"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zskore=fare", "there is no step 'zskore': did you mean 'zscore'?"),
        ("zscore", "cannot read step 'zscore': write op=A,B or op=A,B:option=value"),
        ("zscore=", "step zscore names no column: add columns to it"),
        ("zscore=fare:how=mean", "step zscore has no option 'how': it has none"),
        ("vocabulary=city:top_k=many", "option top_k of step .* is 'many': pass a whole number"),
        ("clip=fare:low=many", "option low of step clip is 'many': pass a number"),
        ("one_hot=city,top_k=2", "cannot read step .*: write the option as :top_k=2"),
        ("vocabulary=city:top_k=0", "option top_k of step vocabulary is 0: at least 1"),
        ("hash=city", "step hash of city needs buckets"),
        ("impute=fare:how=average", "impute has no method 'average'"),
        ("impute=fare:how=constant", "impute needs a value with how=constant"),
        ("bucketize=fare", "bucketize needs either buckets"),
        ("bucketize=fare:boundaries=[2, 1]", r"bucketize are not in ascending order: \[2, 1\]"),
        ("clip=fare", "clip needs low or high"),
        ("clip=fare:low=2:high=1", "clip has low 2 above high 1: swap them"),
        ("embed=seats:matrix=m.npy:write=both", "embed writes vectors or index, not 'both'"),
    ],
)
def test_a_step_that_makes_no_sense(text, message):
    with pytest.raises(UsageError, match=message):
        parse_step(text)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["zscore=fair"], "column 'fair' of step zscore is not in the rows: did you mean 'fare'"),
        (["zscore=city"], "zscore cannot work on column 'city', which is text there: it needs nu"),
        (["hash=fare:buckets=9"], "'fare', which is float there: it needs text or whole numbers"),
        (["one_hot=tags"], "'tags', which is a list there: it needs"),
        (["zscore=box"], "column 'box', which is of a type without steps there"),
        (["impute=city"], "column 'city' is text, which has no mean: impute it with most_frequent"),
        (["impute=fare:value=none"], "column 'fare' is float but impute has the value 'none'"),
        (["impute=city:value=1"], "column 'city' is text but impute has the value 1"),
        (["impute=seats:value=1.5"], "column 'seats' is integer but impute has the value 1.5"),
        (["one_hot=city", "zscore=city"], "'city', which is a list of numbers there"),
        (["zscore=seats", "vocabulary=seats"], "column 'seats', which is float there"),
        (["impute=fare", "drop_null=fare"], "drop_null of 'fare' comes too late"),
        (["embed=city:matrix=none.npy"], "'city', which is text there: it needs an index: put voc"),
    ],
)
def test_a_step_that_does_not_fit_its_column(texts, message):
    with pytest.raises(UsageError, match=message):
        check_steps([parse_step(text) for text in texts], SCHEMA)


def test_steps_that_fit():
    texts = [
        *("drop_null=box,fare", "impute=fare:how=median", "clip=fare:low=0", "log1p=fare"),
        *("zscore=fare", "vocabulary=city,tags", "bucketize=seats:buckets=4", "one_hot=seats"),
        "minmax=void",
    ]
    check_steps([parse_step(text) for text in texts], SCHEMA)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["vocabulary=city:top_k=10", "embed=city:matrix=M:width=5"], "is 3 wide, not 5"),
        (["vocabulary=city:top_k=10", "embed=city:matrix=M"], "has 10 rows but column 'city' can"),
        (["embed=seats:matrix=V"], r"has shape \(4,\) of float64: give two axes of numbers"),
        (["embed=seats:matrix=none.npy"], "cannot read matrix 'none.npy': no such file"),
        (["embed=seats:matrix=T"], "is not a .npy file of numbers"),
    ],
)
def test_a_matrix_that_does_not_fit(steps, message, tmp_path):
    np.save(tmp_path / "M.npy", np.zeros((10, 3)))
    np.save(tmp_path / "V.npy", np.zeros(4))
    (tmp_path / "T.npy").write_text("no numbers")
    for name in "MVT":
        steps = [step.replace(f"={name}", f"={tmp_path / name}.npy") for step in steps]
    with pytest.raises(UsageError, match=message):
        check_steps([parse_step(step) for step in steps], SCHEMA)


@pytest.mark.slow
def test_what_is_asked_for_has_to_fit_together(tmp_path):
    with pytest.raises(UsageError, match="there is nothing to preprocess"):
        make_request(None, raw_too=True)
    with pytest.raises(UsageError, match=r"there is no transform_fn/saved_model\.pb in"):
        make_request(None, transform_fn=tmp_path)
    with pytest.raises(UsageError, match="replaces all steps: leave out the steps"):
        make_request(len, step=["zscore=a"])
    with pytest.raises(UsageError, match=r"cannot read steps 'none\.json': no such file"):
        make_request("none.json")
    assert make_request(None) is None


@pytest.mark.slow
def test_identity_changes_with_the_matrix_and_not_with_its_path(tmp_path):
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        np.save(tmp_path / f"{name}.npy", np.full((2, 2), value))
    found = []
    for name in "abc":
        request = make_request(
            [{"op": "embed", "columns": "x", "matrix": f"{tmp_path}/{name}.npy"}]
        )
        found.append(request.identity())
    assert found[0] == found[1] != found[2]


@pytest.mark.slow
def test_a_wrong_step_stops_write_before_it_reads_rows(tmp_path):
    (tmp_path / "in.csv").write_text("fare,city\n1.5,rome\n2.5,oslo\n")
    with pytest.raises(UsageError, match="column 'fair' of step zscore is not in the rows"):
        bt.write(tmp_path / "in.csv", tmp_path / "out", step=["zscore=fair"])
    with pytest.raises(UsageError, match="are made of split 'train', but the splits are a, b"):
        bt.write(tmp_path / "in.csv", tmp_path / "out", splits="a=0.5,b=0.5", step=["zscore=fare"])
    with pytest.raises(UsageError, match="key column 'fare' is changed by preprocessing"):
        bt.write(tmp_path / "in.csv", tmp_path / "out", key=["fare"], step=["zscore=fare"])
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_steps_are_a_list():
    with pytest.raises(UsageError, match=r"^step 'zscore=fare' is one string: pass a list of them"):
        make_request(None, step="zscore=fare")
