"""`Preprocess` in pipelines of one's own, with functions of one's own, and fitted ones anew."""

import warnings
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError
from tests.helpers.lazy import Lazy
from tests.preprocess.made_rides import ROWS, rides, write_rides

tf = Lazy("tensorflow")
tft = Lazy("tensorflow_transform")
tensor_adapter = Lazy("tfx_bsl.tfxio.tensor_adapter")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SPLITS = {"train": 0.7, "test": 0.3}
STEPS = [
    {"op": "zscore", "columns": ["fare", "seconds"]},
    {"op": "vocabulary", "columns": ["city"]},
]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_rides(tmp_path_factory.mktemp("rides") / "rides.parquet")


def preprocess(inputs: dict[str, Any]) -> dict[str, Any]:
    """Scale, look up and make columns the way TFT's own guide does, and pass some on."""
    outputs = {name: inputs[name] for name in ("id", "note", "when")}
    fare = tf.sparse.to_dense(
        tf.SparseTensor(inputs["fare"].indices, inputs["fare"].values, [ROWS_OF(inputs), 1])
    )
    outputs["fare_scaled"] = tft.scale_to_0_1(tf.where(tf.math.is_nan(fare), 0.0, fare)[:, 0])
    outputs["city"] = tft.compute_and_apply_vocabulary(inputs["city"], vocab_filename="cities")
    outputs["tags"] = inputs["tags"]
    outputs["both"] = tf.stack([inputs["constant"], inputs["constant"] + 1], axis=1)
    return outputs


def ROWS_OF(inputs):  # noqa: N802
    return inputs["fare"].dense_shape[0]


def hashes(out):
    manifest = bt.load(out).manifest
    return {shard.path: shard.xxh64 for shard in manifest.shards} | dict(manifest.sidecars)


@pytest.fixture(scope="module")
def composed(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("composed") / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with bt.pipeline(is_small=True) as p:
            (
                p
                | bt.ReadFromParquet(source)
                | bt.AssignSplits(SPLITS)
                | bt.Preprocess(preprocess)
                | bt.WriteToTFRecord(f"{out}/")
            )
    return out


def test_a_function_of_ones_own_between_the_usual_steps(composed):
    table = bt.load(composed).arrow().sort_by("id")
    assert table.column_names == ["id", "when", "city", "tags", "note", "both", "fare_scaled"]
    # What passes is the raw column: text stays text, and times stay times.
    assert table["note"].to_pylist() == rides()["note"].to_pylist()
    assert table["when"].type == pa.timestamp("us")
    assert table["tags"].to_pylist() == rides()["tags"].to_pylist()
    assert table["both"].to_pylist() == [[3.5, 4.5]] * ROWS
    train = {row["id"] for row in bt.load(composed, split="train").rows()}
    fares = rides()["fare"].fill_null(0).to_numpy()
    fares = np.where(np.isnan(fares), 0, fares)
    seen = fares[sorted(train)]
    expected = (fares - seen.min()) / (seen.max() - seen.min())
    np.testing.assert_allclose(table["fare_scaled"].to_numpy(), expected, rtol=1e-5, atol=1e-6)


def test_rows_are_in_the_split_they_would_be_in_without_it(composed, source, tmp_path):
    bt.write(source, tmp_path / "plain", splits=SPLITS)
    for split in SPLITS:
        ids = [
            sorted(row["id"] for row in bt.load(out, split=split, columns=["id"]).rows())
            for out in (composed, tmp_path / "plain")
        ]
        assert ids[0] == ids[1]
        assert ids[0]


def write(source, out, **options):
    bt.write(source, out, splits=SPLITS, transform=STEPS, **options)
    return out


@pytest.fixture(scope="module")
def written(source, tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return write(source, tmp_path_factory.mktemp("written") / "out")


def test_a_fitted_function_is_used_anew_without_fitting(written, tmp_path):
    """Other rows get what the old statistics make of them; nothing is fitted to them."""
    fares = np.array([1000.0, 2000.0])
    other = rides().slice(0, 2).set_column(2, "fare", pa.array(fares))
    pq.write_table(other, tmp_path / "other.parquet")
    bt.write(tmp_path / "other.parquet", tmp_path / "out", transform_fn=written, raw_too=True)
    found = bt.load(tmp_path / "out").arrow().sort_by("id")
    old = bt.load(written, split="train").arrow()
    raw = dict(zip(rides()["id"].to_pylist(), rides()["fare"].to_pylist(), strict=True))
    seen = np.array([raw[one] for one in old["id"].to_pylist() if raw[one] is not None])
    seen = seen[~np.isnan(seen)]
    expected = (fares - seen.mean()) / seen.std()
    np.testing.assert_allclose(found["fare"].to_numpy(), expected, rtol=1e-6)
    assert found["fare_raw"].to_pylist() == [1000.0, 2000.0]
    assert (
        hashes(tmp_path / "out")["transform_fn/saved_model.pb"]
        == (hashes(written)["transform_fn/saved_model.pb"])
    )
    assert list(bt.verify(tmp_path / "out").faults) == []


def test_a_fitted_function_needs_its_columns(written, tmp_path):
    pq.write_table(rides().drop(["city"]), tmp_path / "less.parquet")
    with pytest.raises(UsageError, match="takes column 'city', which is not there"):
        bt.write(tmp_path / "less.parquet", tmp_path / "out", transform_fn=written)
    texts = rides().set_column(2, "fare", pa.array(["a"] * ROWS))
    pq.write_table(texts, tmp_path / "texts.parquet")
    with pytest.raises(UsageError, match="column 'fare' is string but the saved function takes fl"):
        bt.write(tmp_path / "texts.parquet", tmp_path / "out", transform_fn=written)


def test_another_dataset_takes_the_old_function_away(source, tmp_path):
    old = tmp_path / "out" / "transform_fn" / "assets" / "mine.txt"
    steps = [{"op": "hash", "columns": ["city"], "buckets": 4}]
    bt.write(source, tmp_path / "out", transform=steps)
    assert (tmp_path / "out" / "transform_fn" / "saved_model.pb").exists()
    old.parent.mkdir(exist_ok=True)
    old.write_text("not of the dataset")
    bt.write(source, tmp_path / "out", overwrite=True)
    left = [path.name for path in (tmp_path / "out").rglob("*") if "transform" in str(path)]
    assert sorted(left) == ["assets", "mine.txt", "transform_fn"]


def test_no_row_in_the_split_to_fit_on(source, tmp_path):
    with pytest.raises(DataError, match="no row is in split 'valid', which statistics are made of"):
        bt.write(source, tmp_path / "out", split_column="fold", fit="valid", transform=STEPS)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_function_that_raises_is_one_line_with_its_place(source, tmp_path):
    (tmp_path / "mine.py").write_text("def f(inputs):\n    return {'x': inputs['fair']}\n")
    with pytest.raises(UsageError, match=r"raised KeyError: 'fair' \(.*mine\.py:2\)"):
        bt.write(source, tmp_path / "out", transform=f"{tmp_path}/mine.py:f")


def test_batches_of_unknown_columns_need_a_schema():
    rows = [{"a": 1.0}, {"a": 3.0}]
    with pytest.raises(UsageError, match="TFT needs them when the pipeline is built: pass schema="):
        _ = (
            rows
            | bt.BatchRows(pa.schema({"a": pa.float64()}))
            | bt.Preprocess([{"op": "zscore", "columns": ["a"]}])
        )


def test_rows_of_other_beam_code_with_a_schema():
    schema = pa.schema({"a": pa.float64(), "b": pa.string()})
    rows = [{"a": 1.0, "b": "x"}, {"a": 3.0, "b": None}]
    with beam.Pipeline(runner="FnApiRunner") as p:
        batches = (
            p
            | beam.Create(rows)
            | bt.BatchRows(schema)
            | bt.Preprocess([{"op": "zscore", "columns": ["a"]}], schema=schema)
        )
        found = batches | bt.ToRows()
        assert_that(found, equal_to([{"a": -1.0, "b": "x"}, {"a": 1.0, "b": None}]))
