"""Datasets of this tree and of each release: this tree opens, checks and reads all of them.

``releases/<version>/`` holds those of a release, each beside its rows as JSON. A release writes
them once, before its tag, with:

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


@pytest.fixture(scope="module")
def releases(tmp_path_factory):
    """Return the directories with the datasets of each release, and of this tree."""
    directory = tmp_path_factory.mktemp("release")
    write_release(directory)
    return [directory, *sorted(RELEASES.glob("*"))]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WRITTEN, "stage"])
def test_datasets_of_a_release_are_sound_and_read_the_same(releases, name):
    for release in releases:
        rows = json.loads((release / f"{name}.json").read_text())
        assert not bt.verify(release / name).faults
        assert plain_rows(release / name) == rows
        if name != "stage":
            size = (8, 8) if name == "images" else None
            splits = [bt.load(release / name, split=one) for one in bt.load(release / name).splits]
            batches = [batch for split in splits for batch in split.tf(7, image_size=size)]
            assert sum(tf.nest.flatten(batch)[0].shape[0] or 0 for batch in batches) == len(rows)


@pytest.mark.slow
def test_stages_and_fitted_functions_of_a_release_make_datasets(releases, tmp_path):
    make, options = test_golden.JOBS[WRITTEN["preprocessed"]]
    source = make(tmp_path)
    again = {name: value for name, value in options.items() if name != "step"}
    for number, release in enumerate(releases):
        out, fitted = tmp_path / f"rows-{number}", tmp_path / f"fitted-{number}"
        bt.write(release / "stage", out, shuffle=False)
        expected = json.loads((release / "stage.json").read_text())
        assert [row["id"] for row in plain_rows(out)] == [row["id"] for row in expected]
        bt.write(source, fitted, **again, transform_fn=release / "preprocessed")
        assert plain_rows(fitted) == json.loads((release / "preprocessed.json").read_text())


if __name__ == "__main__":
    target = RELEASES / bt.__version__
    if target.exists():
        sys.exit(f"{target} exists: a release writes its datasets once")
    target.mkdir(parents=True)
    write_release(target)
