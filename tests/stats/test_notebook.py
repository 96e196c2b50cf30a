"""What a notebook shows of a dataset: charts and thumbnails of small ones, images by their size."""

import pickle

import numpy as np
import pyarrow as pa
from PIL import Image

import beam_tfrecord as bt
from tests.helpers.made_datasets import make_dataset


def made(directory, **columns):
    make_dataset(directory, pa.table(columns), splits={"a": [0, 1, 2], "b": [3, 4, 5]})
    bt.index(directory)
    return bt.load(directory)


def test_a_small_dataset_shows_its_head_and_charts(tmp_path):
    ds = made(tmp_path / "d", x=[1.5, 2.5, 2.0, 3.0, 9.0, 4.0], **{"<b>": list("abcabc")})
    shown = ds._repr_html_()
    assert sum(f">{x}</td>" in shown for x in ("1.5", "2.5", "2", "3", "9", "4")) == 5  # the head
    assert shown.count("<svg") == 1
    assert shown.count("<path class=c1") == 1
    assert "<b>" not in shown
    assert "&lt;b&gt;" in shown


def test_a_damaged_dataset_shows_its_splits(tmp_path):
    ds = made(tmp_path / "d", x=[1, 2, 3, 4, 5, 6])
    for file in (tmp_path / "d").glob("*.tfrecord"):
        file.write_bytes(b"\1" * file.stat().st_size)
    assert "<svg" not in ds._repr_html_()
    assert "Dataset" in ds._repr_html_()


def test_images_print_as_their_size_and_show_as_thumbnails(tmp_path):
    Image.fromarray(np.zeros((48, 55, 3), np.uint8)).save(tmp_path / "one.png")
    data = (tmp_path / "one.png").read_bytes()
    ds = made(tmp_path / "d", image=pa.array([data] * 6, pa.binary()), n=[1, 2, 3, 4, 5, 6])
    assert repr(ds[0]) == "{'image': <PNG 55x48>, 'n': 1}"
    assert ds[0]["image"] == data
    assert ds[:2] == pickle.loads(pickle.dumps(ds[:2]))
    assert next(iter(ds))["image"] == data
    assert "data:image/png;base64," in ds._repr_html_()
    broken = made(tmp_path / "e", image=pa.array([data[:20]] * 6, pa.binary()))
    assert repr(broken[0]["image"]) == repr(data[:20])
