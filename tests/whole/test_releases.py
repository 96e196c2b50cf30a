"""Datasets written by each release: this tree opens, checks and reads all of them.

``releases/<version>/`` holds them, each beside its rows as JSON. Releases write theirs once, and
never again, with:

    python -m tests.whole.test_releases
"""

import datetime
import decimal
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy
from tests.whole import test_golden

tf = Lazy("tensorflow")

RELEASES = Path(__file__).parents[1] / "releases"
# Name of a dataset: the job of the golden datasets that writes it.
WRITTEN = {
    "csv": "csv, splits, gzip",
    "parquet": "parquet, key, group",
    "numpy": "numpy",
    "images": "pictures",
    "preprocessed": "preprocessed",
}
DATASETS = sorted(path for path in RELEASES.glob("*/*") if path.is_dir())


def plain(value):
    """Return a value as JSON has it: bytes and arrays with their type, NaN by its name."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": list(value.shape), "hex": value.tobytes().hex()}
    if isinstance(value, np.generic):
        return plain(np.asarray(value))
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, datetime.datetime | datetime.date | datetime.time | decimal.Decimal):
        return {type(value).__name__: str(value)}
    return value


def plain_rows(directory):
    """Return the rows of a dataset or a stage, in its order, as JSON has them."""
    return [plain(row) for row in bt.load(directory).arrow().to_pylist()]


def write_release(directory):
    """Write the datasets of this release, and their rows."""
    for name, job in WRITTEN.items():
        make, options = test_golden.JOBS[job]
        with tempfile.TemporaryDirectory() as scratch:
            if name == "images":
                # Some of these pictures are of kinds that TensorFlow does not decode.
                options = {**options, "source_options": {"format": "png"}}
            if name != "preprocessed":
                options = {**options, "limit": 40}
            bt.write(make(Path(scratch)), directory / name, **options)
    with tempfile.TemporaryDirectory() as scratch:
        bt.extract(test_golden.parquet(Path(scratch)), directory / "stage", limit=40)
    for dataset in sorted(path for path in directory.iterdir() if path.is_dir()):
        text = json.dumps(plain_rows(dataset), ensure_ascii=False)
        dataset.with_suffix(".json").write_text(text + "\n")


def test_there_are_releases():
    assert {path.name for path in DATASETS} == {*WRITTEN, "stage"}


@pytest.mark.parametrize("dataset", DATASETS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_dataset_of_a_release_is_sound_and_reads_the_same(dataset):
    verification = bt.verify(dataset)
    assert not verification.faults
    assert plain_rows(dataset) == json.loads(dataset.with_suffix(".json").read_text())


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("dataset", DATASETS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_dataset_of_a_release_feeds_tensorflow(dataset):
    rows = json.loads(dataset.with_suffix(".json").read_text())
    size = (8, 8) if dataset.name == "images" else None
    splits = [bt.load(dataset, split=split) for split in bt.load(dataset).splits]
    batches = [batch for split in splits for batch in split.tf(batch_size=7, image_size=size)]
    assert sum(tf.nest.flatten(batch)[0].shape[0] or 0 for batch in batches) == len(rows)


@pytest.mark.slow
@pytest.mark.parametrize("release", sorted(RELEASES.glob("*")), ids=lambda path: path.name)
def test_stage_of_a_release_becomes_a_dataset(release, tmp_path):
    bt.write(release / "stage", tmp_path / "out", shuffle=False)
    expected = json.loads((release / "stage.json").read_text())
    assert [row["id"] for row in plain_rows(tmp_path / "out")] == [row["id"] for row in expected]


@pytest.mark.filterwarnings("ignore")  # tensorflow warns of its own loaders
@pytest.mark.parametrize("release", sorted(RELEASES.glob("*")), ids=lambda path: path.name)
@pytest.mark.slow
def test_fitted_function_of_a_release_transforms_new_rows(release, tmp_path):
    make, options = test_golden.JOBS[WRITTEN["preprocessed"]]
    (tmp_path / "in").mkdir()
    again = {name: value for name, value in options.items() if name != "step"}
    bt.write(
        make(tmp_path / "in"),
        tmp_path / "out",
        **again,
        transform_fn=release / "preprocessed",
    )
    assert plain_rows(tmp_path / "out") == json.loads((release / "preprocessed.json").read_text())


if __name__ == "__main__":
    target = RELEASES / bt.__version__
    if target.exists():
        sys.exit(f"{target} exists: a release writes its datasets once")
    target.mkdir(parents=True)
    write_release(target)
