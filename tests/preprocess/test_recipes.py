"""The recipes of preprocessing and of training, run as people run them."""

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy
from tests.helpers.repository import load_recipe

tf = Lazy("tensorflow")
tft = Lazy("tensorflow_transform")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

RECIPES = Path(__file__).parents[2] / "pipelines"
ROWS = 800


@pytest.fixture
def recipe(monkeypatch):
    """Return a function that imports a recipe."""
    return functools.partial(load_recipe, monkeypatch)


def trips():
    """Return rows whose fare is a linear function of the others, a missing distance taken as 0."""
    i = np.arange(ROWS)
    distance = (i * 37 % 101) / 10
    known = np.where(i % 9 == 0, 0, distance)
    hours, stops = i % 7, i % 4
    return pa.table(
        {
            "fare": pa.array(1 + 2 * known + hours / 2 + stops, pa.float32()),
            "distance": pa.array(distance, pa.float64(), mask=i % 9 == 0),
            "hours": pa.array(hours, pa.int64()),
            "stops": pa.array([list(range(n)) for n in stops], pa.list_(pa.int64())),
            "city": ["rome" if n % 3 else "oslo" for n in i],
        }
    )


def test_tft_recipe_writes_what_its_function_says(recipe, tmp_path):
    pq.write_table(trips(), tmp_path / "trips.parquet")
    words = ["--input", str(tmp_path / "trips.parquet"), "--output", f"{tmp_path}/out/"]
    recipe("tft_to_tfrecord").main([*words, "--direct_num_workers=1"])
    train = bt.load(tmp_path / "out", split="train").numpy()
    assert train["distance"].mean() == pytest.approx(0, abs=1e-5)
    assert train["distance"].std() == pytest.approx(1, abs=1e-5)
    assert set(train["hours_bucket"]) == {0, 1, 2, 3}
    assert set(train["hours"]) == set(range(7))
    output = tft.TFTransformOutput(f"{tmp_path}/out")
    assert output.vocabulary_by_name("city") == [b"rome", b"oslo"]


def test_a_model_learns_from_the_files(recipe, tmp_path):
    pq.write_table(trips(), tmp_path / "trips.parquet")
    bt.write(
        tmp_path / "trips.parquet",
        tmp_path / "out",
        splits={"train": 0.8, "test": 0.2},
        compression="gzip",
    )
    tf.keras.utils.set_random_seed(1)
    loss = recipe("train_from_tfrecord").main(["--input", f"{tmp_path}/out", "--epochs", "40"])
    variance = trips()["fare"].to_numpy().var()
    assert loss < variance / 50


def test_from_a_database_to_a_model(recipe, tmp_path):
    tf.keras.utils.set_random_seed(1)
    loss = recipe("staged_database").main(["--work", f"{tmp_path}/work"])
    stage, out = bt.load(tmp_path / "work" / "stage"), bt.load(tmp_path / "work" / "out")
    assert len(stage) == len(out) == 2000
    fares = bt.load(tmp_path / "work" / "stage", columns=["fare"]).numpy()["fare"]
    assert loss < fares.var() / 4
    assert (tmp_path / "work" / "out" / "transform_fn" / "assets" / "city").exists()
    # The stage needs the database no more.
    (tmp_path / "work" / "trips.db").unlink()
    assert stage.arrow().num_rows == 2000
