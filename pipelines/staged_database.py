"""From a database to a trained model: extract, clean and encode, write, load, fit, evaluate.

    python pipelines/staged_database.py --input sqlite:///trips.db --work work/

Copy this file, and make `steps` and `linear_model` your own. Without --input it makes a small
SQLite database; a postgresql:// or jdbc: URL does as well. The database is read once.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

import beam_tfrecord as bt

TRIPS = """
create table trips (id integer primary key, distance real, day text, city text, fare real);
insert into trips
with recursive n(i) as (select 0 union all select i + 1 from n limit 2000)
select i, iif(i % 9 = 0, null, i % 50 / 5.0), substr('montuesun', 1 + i % 3 * 3, 3),
    substr('osloromelimabern', 1 + i % 4 * 4, 4), 3 + i % 50 / 5.0 + 2 * (i % 3) + i % 4 from n;
"""


def steps(matrix: str) -> list[dict[str, Any]]:
    """Return what is done to the columns; the matrix has a row for each city, and for others."""
    return [
        {"op": "impute", "columns": ["distance"]},
        {"op": "zscore", "columns": ["distance"]},
        {"op": "one_hot", "columns": ["day"]},
        {"op": "vocabulary", "columns": ["city"], "top_k": 3},
        {"op": "embed", "columns": ["city"], "matrix": matrix},
    ]


def linear_model(features: dict[str, Any]) -> keras.Model:
    """Return a linear model of features that look like those of a batch."""
    shapes = {name: tuple(values.shape[1:]) or (1,) for name, values in features.items()}
    inputs = {name: keras.Input(shape, name=name) for name, shape in shapes.items()}
    numbers = keras.layers.Concatenate()([*inputs.values()])
    model = keras.Model(inputs, keras.layers.Dense(1)(numbers))
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
    return model


def main(argv: Sequence[str] | None = None) -> float:
    """Read the command line, do all of it, and return the loss on the split "test"."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--input", help="URL of the database, with a table of trips")
    parser.add_argument("--work", required=True, help="directory for all that is made")
    work = (arguments := parser.parse_args(argv)).work
    os.makedirs(work, exist_ok=True)
    matrix = os.path.join(work, "cities.npy")
    np.save(matrix, np.random.default_rng(0).normal(size=(4, 2)))
    if arguments.input is None:
        sqlite3.connect(os.path.join(work, "trips.db")).executescript(TRIPS).connection.close()
    url = arguments.input or f"sqlite:///{os.path.join(work, 'trips.db')}"
    stage, out = os.path.join(work, "stage"), os.path.join(work, "out")
    bt.extract(url, stage, source_options={"table": "trips"})
    bt.write(stage, out, splits={"train": 0.8, "test": 0.2}, transform=steps(matrix))
    options: dict[str, Any] = {"label": "fare", "columns": ["distance", "day", "city"]}
    train = bt.load(out, split="train").tf(64, shuffle=True, **options)
    (model := linear_model(next(iter(train))[0])).fit(train, epochs=20, verbose=0)
    return float(model.evaluate(bt.load(out, split="test").tf(64, **options), verbose=0))


if __name__ == "__main__":
    print(f"loss on test: {main():.4g}")
