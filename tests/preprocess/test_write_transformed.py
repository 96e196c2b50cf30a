"""`write` with preprocessing, end to end: values, splits, files, and the saved function itself."""

import json
import warnings

import numpy as np
import pytest

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy
from tests.preprocess.made_rides import ROWS, check_served, every, rides, train, write_rides

tf = Lazy("tensorflow")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

STEPS = [
    {"op": "impute", "columns": ["fare", "seconds", "nothing"]},
    {"op": "zscore", "columns": ["fare", "seconds", "constant", "nothing", "when"]},
    {"op": "vocabulary", "columns": ["city", "tags"], "min_count": 3},
    {"op": "impute", "columns": ["code"], "how": "most_frequent"},
    {"op": "one_hot", "columns": ["code"]},
    {"op": "impute", "columns": ["no_word"], "value": "none"},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_rides(tmp_path_factory.mktemp("rides") / "rides.parquet")


@pytest.fixture(scope="module")
def out(source, tmp_path_factory):
    """Write the dataset with all steps, the command's way: a file of steps."""
    directory = tmp_path_factory.mktemp("written")
    steps = directory / "steps.json"
    steps.write_text(json.dumps(STEPS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bt.write(source, directory / "out", split_column="fold", transform=str(steps), raw_too=True)
    return directory / "out"


@pytest.fixture(scope="module")
def rows(out):
    """Give the written columns in the order of the ids."""
    table = bt.load(out).arrow().sort_by("id")
    return {name: table.column(name).combine_chunks() for name in table.column_names}


def zscore_of_filled(name):
    seen, values = train(name), every(name)
    mean = np.nanmean(seen)
    seen = np.where(np.isnan(seen), mean, seen)
    values = np.where(np.isnan(values), mean, values)
    return (values - seen.mean()) / seen.std()


@pytest.mark.parametrize("name", ["fare", "seconds"])
def test_imputed_and_normalised_as_by_numpy_on_the_train_split(name, rows):
    found = rows[name].to_numpy()
    assert found.dtype == np.float32
    expected = zscore_of_filled(name)
    assert np.abs(found - expected).max() <= 1e-6 * max(1, np.abs(expected).max())


def test_times_are_normalised_as_whole_numbers(rows):
    seconds = np.arange(ROWS)
    expected = (seconds - np.arange(500).mean()) / np.arange(500).std()
    np.testing.assert_allclose(rows["when"].to_numpy(), expected, atol=1e-6)


def test_a_constant_and_a_column_without_values_become_zero(rows):
    assert rows["constant"].to_pylist() == [0.0] * ROWS
    assert rows["nothing"].to_pylist() == [0.0] * ROWS
    assert rows["no_word"].to_pylist() == ["none"] * ROWS


def test_vocabulary_is_by_count_then_backwards_and_the_rest_is_out_of_it(rows, out):
    cities = rides().slice(0, 500).column("city").to_pylist()
    counts = {city: cities.count(city) for city in ("berlin", "rome", "oslo")}
    order = sorted(counts, key=lambda city: (counts[city], city), reverse=True)
    assert (out / "transform_fn" / "assets" / "city").read_text().split() == order
    numbers = {city: order.index(city) for city in order} | {None: None, "": 3, "lima": 3}
    assert rows["city"].to_pylist() == [numbers[city] for city in rides()["city"].to_pylist()]


def test_steps_work_inside_lists(rows, out):
    order = (out / "transform_fn" / "assets" / "tags").read_text().split()
    expected = [[order.index(tag) for tag in tags] or None for tags in rides()["tags"].to_pylist()]
    assert rows["tags"].to_pylist() == expected


def test_the_schema_has_the_categories_in_order_of_their_numbers(out):
    assets, features = out / "transform_fn" / "assets", bt.load(out).schema.features
    counted = {name: (assets / name).read_text().split() for name in ("city", "tags", "code")}
    assert {one.name: list(one.labels) for one in features if one.labels} == counted
    assert bt.Schema.loads((out / "schema.json").read_text())["city"].labels[0] == "rome"
    # This file is for the classes of images.
    assert not (out / "labels.txt").exists()


def test_a_saved_function_brings_its_categories(source, out, tmp_path):
    bt.write(source, tmp_path / "other", transform_fn=out)
    theirs = bt.load(out).schema
    for feature in bt.load(tmp_path / "other").schema.features:
        assert feature.labels == theirs[feature.name].labels


def test_most_frequent_then_one_hot(rows, out):
    order = [int(word) for word in (out / "transform_fn" / "assets" / "code").read_text().split()]
    assert order[0] == 7
    assert sorted(order) == [0, 1, 2, 3, 4, 7]
    codes = [7 if code is None else code for code in rides()["code"].to_pylist()]
    expected = [[float(code == one) for one in order] for code in codes]
    assert rows["code"].to_pylist() == expected


def test_columns_without_steps_pass_unchanged_and_raw_ones_are_kept(rows):
    assert rows["note"].to_pylist() == rides()["note"].to_pylist()
    assert rows["pair"].to_pylist() == rides()["pair"].to_pylist()
    assert rows["city_raw"].to_pylist() == rides()["city"].to_pylist()
    assert rows["seconds_raw"].to_pylist() == rides()["seconds"].to_pylist()
    assert "note_raw" not in rows


def test_raw_rows_are_served_what_was_written(source, out):
    assert set(check_served(source, out)) == {*rides().column_names} - {"pair"}
    saved = tf.saved_model.load(str(out / "transform_fn"))
    assert saved.transform_fn.structured_outputs["code"].shape.as_list() == [None, 6]


def test_the_function_is_in_the_manifest_and_damage_to_it_is_found(out):
    manifest = bt.load(out).manifest
    assert {
        "transform_fn/saved_model.pb",
        "transform_fn/assets/city",
        "transformed_metadata/schema.pbtxt",
    } <= set(manifest.sidecars)
    assert list(bt.verify(out).faults) == []
