"""The recipes of pictures, run as people run them."""

import numpy as np
import pytest
from PIL import Image

import beam_tfrecord as bt
from tests.helpers.datasets import read_examples
from tests.sources.made_images import jpeg, write_tree
from tests.whole.test_pipelines import script


@pytest.mark.slow
def test_pictures_to_tfrecord(tmp_path):
    write_tree(tmp_path / "photos", **{f"c{n % 3}__{n:02d}": jpeg(n) for n in range(30)})
    write_tree(tmp_path / "photos", c0__tiny=jpeg(width=7), c1__bad=jpeg()[:-2])
    words = ["--input", "photos", "--output", "out/", "--max_rejects", "1"]
    ran = script("images_to_tfrecord", *words, "--splits", "train=0.7,test=0.3", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    examples = read_examples(tmp_path / "out")
    found = {
        example.features.feature["path"].bytes_list.value[0].decode(): (
            example.features.feature["image"].bytes_list.value[0],
            example.features.feature["label"].int64_list.value[0],
        )
        for example in examples
    }
    assert found == {f"c{n % 3}/{n:02d}.jpg": (jpeg(n), n % 3) for n in range(30)}
    assert set(bt.load(tmp_path / "out").splits) == {"train", "test"}


@pytest.mark.slow
@pytest.mark.xdist_group("tensorflow")
def test_a_model_learns_from_a_directory(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(120):
        # Red things and blue things: what a model of this size learns in a few steps.
        pixels = rng.integers(0, 90, (20, 24, 3), np.uint8)
        pixels[..., 0 if number % 2 else 2] += 130
        path = tmp_path / "photos" / ("red" if number % 2 else "blue") / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    words = ["--input", "photos", "--dataset", "out/", "--size", "16", "--epochs", "4"]
    ran = script("train_images", *words, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    accuracy = float(ran.stdout.strip().rpartition(" ")[2])
    assert accuracy > 0.9, ran.stdout
    assert (tmp_path / "out" / "labels.txt").read_text() == "blue\nred\n"
