"""A small Keras model trained on what was written: the plain TensorFlow way, and through `load`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from tests.helpers.datasets import write_parquet
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")

ROWS = 600
BATCH_ROWS = 64
DEFAULT_DISTANCE = 1.5
# Rows 64 to 191 are two whole batches in which no row has a tip.
NO_TIPS = range(64, 192)


def distance_of(row):
    return None if row % 5 == 0 else (row % 40) / 8


def tip_of(row):
    return None if row in NO_TIPS or row % 7 == 0 else (row % 16) / 4


def fare_of(row):
    """Return a label that a linear model of the features, missing ones replaced, can learn."""
    distance, tip = distance_of(row), tip_of(row)
    known = DEFAULT_DISTANCE if distance is None else distance
    return 2.0 * known + 0.5 * (tip or 0.0) + (row % 3) + 1.0


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """Write a compressed dataset, in the order of the rows, with a default in its schema."""
    directory = tmp_path_factory.mktemp("training")
    rows = range(ROWS)
    table = pa.table(
        {
            "distance": pa.array([distance_of(row) for row in rows], pa.float32()),
            "tip": pa.array([tip_of(row) for row in rows], pa.float32()),
            "day": pa.array([row % 3 for row in rows], pa.int16()),
            "note": pa.array([None if row % 4 else f"note {row}" for row in rows], pa.string()),
            "fare": pa.array([fare_of(row) for row in rows], pa.float64()),
        }
    )
    source = write_parquet(directory / "input", table, files=2)
    schema = bt.schema(source)
    bt.write(
        source,
        directory / "out",
        schema=schema.edit(distance=bt.Feature(type="float", default=DEFAULT_DISTANCE)),
        compression="gzip",
        shuffle=False,
        shard_size=10_000,
    )
    return directory / "out"


@pytest.fixture
def model():
    """Give a linear model of three numbers, with weights that are the same in every run."""
    with warnings.catch_warnings():
        # Keras and TensorFlow call parts of themselves that they have deprecated.
        warnings.simplefilter("ignore")
        tf.keras.utils.set_random_seed(1)
        inputs = {
            name: tf.keras.Input((1,), name=name, dtype="float32")
            for name in ("distance", "tip", "day")
        }
        joined = tf.keras.layers.Concatenate()(list(inputs.values()))
        made = tf.keras.Model(inputs, tf.keras.layers.Dense(1)(joined))
        made.compile(tf.keras.optimizers.SGD(0.01), loss="mse")
        yield made


def column(values):
    """Return one value per row as a matrix of one column."""
    return tf.reshape(tf.cast(values, tf.float32), [-1, 1])


def dense(tip, rows):
    """Return a sparse feature as a matrix of one column: a batch without values has none."""
    return tf.sparse.to_dense(tf.sparse.reset_shape(tip, tf.stack([rows, 1])))


def numeric(features: dict[str, Any], fare: Any) -> tuple[dict[str, Any], Any]:
    """Return what the model takes: no text, nothing sparse."""
    rows = tf.shape(fare, out_type=tf.int64)[0]
    numbers = {
        "distance": column(features["distance"]),
        "tip": dense(features["tip"], rows),
        "day": column(features["day"]),
    }
    return numbers, fare


def as_written(dataset):
    """Return distance, tip, day and fare of every row of a dataset for the model."""
    return [
        row
        for numbers, fare in dataset.as_numpy_iterator()
        for row in zip(
            *(numbers[name][:, 0].tolist() for name in ("distance", "tip", "day")),
            np.ravel(fare).tolist(),
            strict=True,
        )
    ]


EXPECTED = [
    (
        DEFAULT_DISTANCE if row % 5 == 0 else (row % 40) / 8,
        0.0 if 64 <= row < 192 or row % 7 == 0 else (row % 16) / 4,
        float(row % 3),
        fare_of(row),
    )
    for row in range(ROWS)
]


def counting(batches):
    """Return what keeps each batch that `fit` trained on; ``optimizer.iterations`` may be ahead."""
    return tf.keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: batches.append(batch)
    )


def assert_learns(model, dataset):
    """Train for one epoch, which must end by itself and leave a better model."""
    before = model.evaluate(dataset, verbose=0)
    batches = []
    history = model.fit(dataset, epochs=1, verbose=0, callbacks=[counting(batches)])
    assert history.epoch == [0]
    # 600 rows in batches of 64: nine full ones and the rest.
    assert len(batches) == 10
    assert model.evaluate(dataset, verbose=0) < before / 2


def test_the_written_schema_tells_how_to_read(trips):
    assert bt.load(trips).schema.feature_spec() == {
        "distance": tf.io.FixedLenFeature([], tf.float32, 1.5),
        "tip": tf.io.VarLenFeature(tf.float32),
        "day": tf.io.FixedLenFeature([], tf.int64),
        "note": tf.io.VarLenFeature(tf.string),
        "fare": tf.io.FixedLenFeature([], tf.float32),
    }


def test_make_batched_features_dataset_feeds_fit(trips, model):
    files = sorted(str(path) for path in trips.glob("*.tfrecord.gz"))
    assert len(files) > 1
    batches = tf.data.experimental.make_batched_features_dataset(
        files,
        batch_size=BATCH_ROWS,
        features=bt.load(trips).schema.feature_spec(),
        label_key="fare",
        reader=lambda names: tf.data.TFRecordDataset(names, compression_type="GZIP"),
        reader_num_threads=1,
        num_epochs=1,
        shuffle=False,
    )
    assert batches.cardinality() == tf.data.UNKNOWN_CARDINALITY
    features, _ = next(iter(batches))
    assert sorted(features) == ["day", "distance", "note", "tip"]
    assert isinstance(features["tip"], tf.SparseTensor)
    dataset = batches.map(numeric)
    assert as_written(dataset) == EXPECTED
    assert_learns(model, dataset)


def test_load_feeds_fit(trips, model):
    loaded = bt.load(trips)
    batches = loaded.tf(batch_size=BATCH_ROWS, label="fare", columns=["distance", "tip", "day"])
    assert batches.cardinality() == 10
    dataset = batches.map(numeric)
    assert dataset.cardinality() == 10
    assert as_written(dataset) == EXPECTED
    assert_learns(model, dataset)


def test_load_with_a_default_feeds_fit_as_it_is(trips, model):
    dataset = bt.load(trips).tf(
        batch_size=BATCH_ROWS,
        label="fare",
        columns=["distance", "tip", "day"],
        defaults={"tip": 0.0},
        shuffle=True,
        seed=3,
        repeat=2,
    )
    assert dataset.cardinality() == 20
    before = model.evaluate(dataset, verbose=0)
    batches = []
    model.fit(dataset, epochs=1, verbose=0, callbacks=[counting(batches)])
    assert len(batches) == 20
    assert model.evaluate(dataset, verbose=0) < before / 2
    one_epoch = dataset.take(10)
    fares = np.concatenate([fare for _, fare in one_epoch.as_numpy_iterator()])
    assert sorted(fares.tolist()) == sorted(row[3] for row in EXPECTED)
    assert fares.tolist() != [row[3] for row in EXPECTED]
