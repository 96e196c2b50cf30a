"""Rows with everything that preprocessing has to bear, and what NumPy makes of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")
tft = Lazy("tensorflow_transform")

ROWS = 600
EPOCH = 1_600_000_000
CITIES = ["berlin", "rome", "oslo"]


def rides():
    """Return rows whose train split is `fold == "train"`: the first 500."""
    i = np.arange(ROWS)
    fare = np.where(i % 13 == 0, np.nan, np.sin(i) * 100)
    # What only the test split has: another city, and values beyond the range of train.
    city = [None if n % 10 == 0 else "" if n % 17 == 0 else CITIES[n % 6 % 3] for n in range(ROWS)]
    city[550] = "lima"
    fare[551] = 1e6
    return pa.table(
        {
            "id": pa.array(i, pa.int64()),
            "fold": ["train" if n < 500 else "test" for n in range(ROWS)],
            "fare": pa.array(fare, pa.float64(), mask=i % 7 == 0),
            "seconds": pa.array(EPOCH + i, pa.int64(), mask=i % 11 == 0),
            "when": pa.array(EPOCH * 10**6 + i * 10**6, pa.timestamp("us")),
            "constant": pa.array(np.full(ROWS, 3.5)),
            "nothing": pa.array([None] * ROWS, pa.float64()),
            "no_word": pa.array([None] * ROWS, pa.string()),
            "city": pa.array(city, pa.string()),
            "code": pa.array(np.where(i < 300, 7, i % 5), pa.int32(), mask=i % 9 == 0),
            "tags": pa.array([[CITIES[n % 3]] * (n % 3) for n in range(ROWS)]),
            "note": [f"note {n}" for n in range(ROWS)],
            "pair": pa.array([[n, n + 1] for n in range(ROWS)], pa.list_(pa.int32(), 2)),
        }
    )


def write_rides(path):
    """Write the rows as one Parquet file of several row groups."""
    pq.write_table(rides(), path, row_group_size=150)
    return path


def train(name):
    """Return a number column of the train split as float64, missing values as NaN."""
    column = rides().slice(0, 500).column(name).cast(pa.float64())
    return column.to_numpy(zero_copy_only=False)


def every(name):
    """Return a number column of all rows as float64, missing values as NaN."""
    return rides().column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)


def check_served(source, out):
    """Check that TFT's own layer makes of raw examples of `source` what `out` holds.

    Returns:
        The columns that the layer returned, as the values of rows by their ids.
    """
    output = tft.TFTransformOutput(str(out))
    raw, spec = out.with_name("raw"), output.raw_feature_spec()
    bt.write(source, raw, columns=list(spec))
    parsed = tf.io.parse_example(list(bt.load(raw).examples()), spec)
    served = _by_id(output.transform_features_layer()(parsed))
    written = list(bt.load(out).examples())
    written = _by_id(tf.io.parse_example(written, output.transformed_feature_spec()))
    assert set(served) == set(written)
    for name, rows in written.items():
        for row, expected in rows.items():
            # Float32 at the entrance, where the dataset was made of float64.
            assert served[name][row] == pytest.approx(expected, abs=1e-6, nan_ok=True), (name, row)
    less = {name: value for name, value in parsed.items() if name not in ("fare", "scaled")}
    assert set(output.transform_features_layer()(less)) == set(served) - {"fare", "scaled"}
    return served


def _by_id(parsed):
    rows = {}
    for name, one in parsed.items():
        values = tf.RaggedTensor.from_sparse(one) if isinstance(one, tf.SparseTensor) else one
        rows[name] = [np.ravel(row).tolist() for row in values.numpy()]
    ids = np.concatenate(rows["id"]).tolist()
    return {name: dict(zip(ids, of, strict=True)) for name, of in rows.items()}
