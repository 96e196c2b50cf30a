"""Which categories reach the schema, from files as tensorflow-transform writes them."""

import json

import pytest

from beam_tfrecord.preprocess.fitted import MAX_CATEGORIES, NO_WORD, save_categories

VOCABULARY, ONE_HOT = {"op": "vocabulary"}, {"op": "one_hot"}


def saved(directory, file, data, *steps, column="city"):
    """Return the categories of the second of two columns, whose steps are `steps`."""
    assets = directory / "transform_fn" / "assets"
    assets.mkdir(parents=True)
    (assets / file).write_bytes(data)
    named = [{**step, "columns": ["other", column]} for step in steps if step["op"] == "zscore"]
    named += [{**step, "columns": [column]} for step in steps if step["op"] != "zscore"]
    save_categories(str(directory), ["other", column], named)
    return json.loads((directory / "categories.json").read_text()).get(column)


@pytest.mark.parametrize("step", [VOCABULARY, ONE_HOT])
def test_the_lines_are_the_categories_of_the_last_step_but_a_fill(tmp_path, step):
    for more in ([], [{"op": "impute", "value": 0}], [{"op": "log1p"}]):
        found = saved(tmp_path / str(more), "city", "Oslo\nÅs\n".encode(), step, *more)
        assert found == (None if {"op": "log1p"} in more else ["Oslo", "Ås"])


@pytest.mark.parametrize("more", [0, 1])
def test_a_large_vocabulary_stays_out(tmp_path, more):
    words = [f"w{number}" for number in range(MAX_CATEGORIES + more)]
    data = "".join(f"{word}\n" for word in words).encode()
    assert saved(tmp_path, "city", data, VOCABULARY) == (None if more else words)


def test_bytes_and_an_empty_vocabulary_stay_out(tmp_path):
    assert saved(tmp_path / "bytes", "city", b"\xff\n", VOCABULARY) is None
    assert saved(tmp_path / "empty", "city", f"{NO_WORD}\n".encode(), VOCABULARY) is None
